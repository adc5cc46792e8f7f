// Client of the cluster's REST API: one function per call, errors as `ApiError`.
import { signal } from "@preact/signals";
import { ApiError } from "./api_error.ts";
import type {
  AppLink,
  ApplicationToken,
  BrowserSignIn,
  ClusterUsage,
  ExecutionTypeBody,
  ExtensionBody,
  Info,
  JobCheck,
  JobColumns,
  JobDetail,
  JobPage,
  JobTemplate,
  JobTemplateBody,
  JobTemplateSummary,
  JobUsageOverTime,
  LogLocations,
  LogTimes,
  MetricSeriesPart,
  NamedUsage,
  NodeUse,
  OwnUserChange,
  Problem,
  SshInfo,
  SshKeyBody,
  SshKeyRemoval,
  Tag,
  TaskAddress,
  TokenDetails,
  TokenList,
  TokenPayload,
  UsageOverTime,
  UserInfo,
  VirtualClusterResources,
} from "./api_types.ts";
import { endSession, expireSession, nextSession, session, startSession, type Session } from "./session.ts";

export { ApiError };

type Resources = Pick<VirtualClusterResources, "cpu" | "memory" | "gpu">;

/** Resources in use, of a virtual cluster or a node. */
export interface ResourceUse {
  readonly resourcesUsed: Resources;
  readonly resourcesTotal: Resources;
}

/** Whether the last request reached the cluster. */
export const isConnected = signal(true);

const SESSION_ENDED = "Your session has ended. Sign in to continue.";

interface Options {
  readonly body?: unknown;
  /** Sent as it is, instead of `body` as JSON. */
  readonly text?: string;
  /** Sent as it is. */
  readonly bytes?: BodyInit;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** Send a request. Relative to the page's address, which may be below a path of another server. */
export function request(method: string, path: string, options: Options = {}): Promise<Response> {
  return inSession((used) => send(method, path, options, used), options.signal);
}

/** Do something with the session. If the cluster has ended it, do it again when the same user has signed in again. */
async function inSession<T>(action: (used: Session | null) => Promise<T>, signal?: AbortSignal): Promise<T> {
  for (;;) {
    const used = session.value;
    try {
      return await action(used);
    } catch (error) {
      const isExpired = error instanceof ApiError && error.status === 401;
      if (!used || !isExpired || !(await nextSession(used, signal))) throw error;
    }
  }
}

async function send(method: string, path: string, options: Options, used: Session | null): Promise<Response> {
  const headers: Record<string, string> = { ...options.headers };
  if (used) headers["X-PAI-Session-Proof"] = used.proof;
  const init: RequestInit = { method, headers, credentials: "same-origin", signal: options.signal ?? null };
  if (options.text !== undefined) {
    init.body = options.text;
    headers["Content-Type"] ??= "text/yaml";
  } else if (options.bytes !== undefined) {
    init.body = options.bytes;
  } else if (options.body !== undefined) {
    init.body = JSON.stringify(options.body);
    headers["Content-Type"] = "application/json";
  }
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    isConnected.value = false;
    throw new ApiError("The cluster does not answer.", 0, "Unreachable", "The page tries again by itself.");
  }
  isConnected.value = true;
  if (response.ok) return response;
  throw refusal(response.status, await response.json().catch(() => ({})), used);
}

/** The error of an answer; one that says that the session has ended is the end of it here, too. */
function refusal(status: number, body: ErrorBody, used: Session | null): ApiError {
  const problem = problemOf(body);
  // Another tab may have signed in meanwhile.
  if (status === 401 && used && session.value === used) expireSession(used, endReason(problem));
  return new ApiError(problem.message ?? `The cluster answered with status ${status}.`, status, problem.code, problem.hint);
}

/** Send a large body and report its progress, which `fetch` cannot. */
export function uploadBody(path: string, body: Blob, signal: AbortSignal, onProgress: (sent: number) => void): Promise<void> {
  return inSession((used) => sendBody(path, body, signal, onProgress, used), signal);
}

async function sendBody(
  path: string,
  body: Blob,
  signal: AbortSignal,
  onProgress: (sent: number) => void,
  used: Session | null,
): Promise<void> {
  signal.throwIfAborted();
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open("PUT", path);
    if (used) sending.setRequestHeader("X-PAI-Session-Proof", used.proof);
    sending.setRequestHeader("Content-Type", "application/octet-stream");
    sending.upload.onprogress = (event) => onProgress(event.loaded);
    sending.onload = () => {
      if (sending.status < 300) return resolve();
      let answer: ErrorBody = {};
      try {
        answer = JSON.parse(sending.responseText) as ErrorBody;
      } catch {
        // An answer of a server in between: its status says what there is to say.
      }
      reject(refusal(sending.status, answer, used));
    };
    sending.onerror = () => reject(new ApiError("The upload was interrupted.", 0, "Unreachable", "Submit the job again."));
    sending.onabort = () => reject(new DOMException("The upload was cancelled.", "AbortError"));
    signal.addEventListener("abort", () => sending.abort(), { once: true });
    sending.send(body);
  });
}

/** Why a session ended; a disabled user need not try to sign in again. */
function endReason({ code, message, hint }: Partial<Problem>): string {
  return code === "DisabledUserError" ? [message, hint].filter(Boolean).join(" ") : SESSION_ENDED;
}

/** Body of an error; a server between may send anything, and WebHDFS uses Hadoop's form. */
interface ErrorBody extends Partial<Problem> {
  readonly RemoteException?: { readonly exception?: string; readonly message?: string };
}

function problemOf(body: ErrorBody): Partial<Problem> {
  const remote = body.RemoteException;
  return remote ? { code: remote.exception ?? "", message: remote.message ?? "" } : body;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await request("GET", path, signal ? { signal } : {})).json() as Promise<T>;
}

const jobPath = (framework: string) => `api/v2/jobs/${encodeURIComponent(framework)}`;

// -- session ---------------------------------------------------------------------------------------

export async function signIn(credentials: { username: string; password: string } | { code: string }): Promise<void> {
  // Not in a session: a link that was used before ends none.
  const response = await send("POST", "api/v2/authn/session", { body: credentials satisfies BrowserSignIn }, null);
  startSession((await response.json()) as Session);
}

export async function signOut(everywhere: boolean): Promise<void> {
  try {
    await send("DELETE", `api/v2/authn/session${everywhere ? "?everywhere=true" : ""}`, {}, session.value);
  } finally {
    endSession(everywhere ? "You are signed out of all browsers." : "You are signed out.");
  }
}

// -- jobs ------------------------------------------------------------------------------------------

export function listJobs(query: URLSearchParams, signal?: AbortSignal): Promise<JobPage> {
  return get<JobPage>(`api/v2/jobs?${query.toString()}`, signal);
}

export function jobDetail(framework: string, attempt?: string, signal?: AbortSignal): Promise<JobDetail> {
  return get(`${jobPath(framework)}${attempt ? `/attempts/${encodeURIComponent(attempt)}` : ""}`, signal);
}

/** The job's configuration, as JSON text. */
export async function jobConfig(framework: string, signal?: AbortSignal): Promise<string> {
  return (await request("GET", `${jobPath(framework)}/config`, signal ? { signal } : {})).text();
}

/** The text that was posted, with masked secrets. */
export async function submittedText(framework: string, signal?: AbortSignal): Promise<string> {
  return (await request("GET", `${jobPath(framework)}/config?submitted=true`, signal ? { signal } : {})).text();
}

export async function stopJob(framework: string): Promise<void> {
  await request("PUT", `${jobPath(framework)}/executionType`, { body: { value: "STOP" } satisfies ExecutionTypeBody });
}

export async function changeTag(framework: string, method: "PUT" | "DELETE", tag: string): Promise<void> {
  await request(method, `${jobPath(framework)}/tag`, { body: { value: tag } satisfies Tag });
}

export async function deleteJob(username: string, name: string): Promise<void> {
  await request("DELETE", `api/v1/user/${encodeURIComponent(username)}/jobs/${encodeURIComponent(name)}`);
}

/** Delete a job that has finished; one that has not is refused, not stopped. */
export async function deleteFinishedJob(framework: string): Promise<void> {
  const [username = "", name = ""] = framework.split("~", 2);
  const path = `api/v1/user/${encodeURIComponent(username)}/jobs/${encodeURIComponent(name)}`;
  await request("DELETE", `${path}?finished=only`);
}

/** Names of parameters and metrics in the jobs of a page of the list. */
export function jobColumnNames(query: URLSearchParams, signal?: AbortSignal): Promise<JobColumns> {
  return get(`api/v2/job-columns?${query.toString()}`, signal);
}

export interface SubmittedJob {
  readonly warning: string;
}

/** Submit a job of protocol version 2 (YAML or JSON), or the JSON of version 1. */
export async function submitJob(text: string, version: 1 | 2): Promise<SubmittedJob> {
  const [path, type] = version === 1 ? ["api/v1/jobs", "application/json"] : ["api/v2/jobs", "text/yaml"];
  const headers = { "Content-Type": type, "Idempotency-Key": crypto.getRandomValues(new Uint32Array(4)).join("-") };
  const response = await request("POST", path, { text, headers });
  return { warning: response.headers.get("X-Warning") ?? "" };
}

/** A link that opens a port of a task in a browser, once. */
export async function openApp(framework: string, { role, index, port }: { role: string; index: number; port: number }): Promise<string> {
  const query = new URLSearchParams({ role, index: String(index), port: String(port) });
  const response = await request("POST", `${jobPath(framework)}/apps?${query.toString()}`);
  return ((await response.json()) as AppLink).url;
}

/** How SSH reaches the running tasks of a job. */
export function sshOf(framework: string, signal?: AbortSignal): Promise<SshInfo> {
  return get(`${jobPath(framework)}/ssh`, signal);
}

export interface LogPlace {
  readonly role: string;
  readonly index: number;
  readonly attempt: number;
  readonly taskAttempt: number;
}

/** Address of a task's whole log; valid for two minutes, and needs no header. */
export async function logAddress(framework: string, place: LogPlace, stream: string): Promise<string> {
  const { role, index, attempt, taskAttempt } = place;
  const task = `/attempts/${attempt}/taskRoles/${encodeURIComponent(role)}/taskIndex/${index}/attempts/${taskAttempt}`;
  const { locations } = await get<LogLocations>(`${jobPath(framework)}${task}/logs`);
  const location = locations.find(({ name }) => name === stream);
  if (!location) throw new ApiError("The task has no such log.", 404);
  return location.uri.replace(/^\//, "");
}

export interface LogHit {
  readonly offset: number;
  readonly lineOffset: number;
}

export interface LogQuery {
  readonly stream: string;
  readonly text: string;
  readonly direction: "forward" | "backward";
  /** Where to start; by default at the log's beginning, or backward at its end. */
  readonly from: number | undefined;
}

/** The next line of a task's log with a text, or null. */
export async function searchLog(framework: string, place: LogPlace, wanted: LogQuery, signal: AbortSignal): Promise<LogHit | null> {
  const { role, index, attempt, taskAttempt } = place;
  const { from, ...rest } = wanted;
  const task = { role, index: String(index), attempt: String(attempt), taskAttempt: String(taskAttempt) };
  const query = new URLSearchParams({ ...task, ...rest, ...(from === undefined ? {} : { from: String(from) }) });
  const response = await request("GET", `${jobPath(framework)}/log-search?${query.toString()}`, { signal });
  const frames = (await response.text()).trim().split("\n");
  return frames.map((line) => JSON.parse(line) as LogHit & { kind: string }).find(({ kind }) => kind === "hit") ?? null;
}

/** When a part of a task's log was written. */
export function logTimes(
  framework: string,
  place: LogPlace,
  stream: string,
  { start, end }: { readonly start: number; readonly end: number },
  signal: AbortSignal,
): Promise<LogTimes> {
  const { role, index, attempt, taskAttempt } = place;
  const numbers = Object.entries({ index, attempt, taskAttempt, start, end }).map(([name, value]) => [name, String(value)]);
  const query = new URLSearchParams([["role", role], ["stream", stream], ...numbers] as string[][]);
  return get(`${jobPath(framework)}/log-times?${query.toString()}`, signal);
}

// -- cluster ---------------------------------------------------------------------------------------

export function virtualClusters(signal?: AbortSignal): Promise<Record<string, ResourceUse>> {
  return get("api/v2/virtual-clusters", signal);
}

export async function nodesInUse(signal?: AbortSignal): Promise<Record<string, ResourceUse>> {
  const nodes = await get<Record<string, NodeUse>>("api/v2/virtual-clusters?nodes", signal);
  const resources = (node: NodeUse) => ({
    resourcesUsed: { cpu: node.cpuUsed, memory: node.memoryUsed, gpu: node.gpuUsed },
    resourcesTotal: { cpu: node.cpuTotal, memory: node.memoryTotal, gpu: node.gpuTotal },
  });
  return Object.fromEntries(Object.entries(nodes).map(([name, node]) => [name, resources(node)]));
}

// -- usage -----------------------------------------------------------------------------------------

/** What a job, a task, a node or a virtual cluster can use at most. */
export type UsageTotals = Pick<NamedUsage, "cpuTotal" | "memoryTotal" | "gpuTotal">;

export function jobUsage(framework: string, task?: TaskAddress, signal?: AbortSignal): Promise<JobUsageOverTime> {
  const query = task ? `?${new URLSearchParams({ role: task.role, index: String(task.index) })}` : "";
  return get(`api/v2/jobs/${encodeURIComponent(framework)}/usage${query}`, signal);
}

/** Nodes and virtual clusters. No job has an empty user: the list of jobs is left out. */
export function clusterUsage(signal?: AbortSignal): Promise<ClusterUsage> {
  return get("api/v2/usage?user=", signal);
}

export function usageOverTime(kind: "nodes" | "virtual-clusters", name: string, signal?: AbortSignal): Promise<UsageOverTime> {
  return get(`api/v2/usage/${kind}/${encodeURIComponent(name)}`, signal);
}

export interface SeriesChoice {
  readonly start: number;
  readonly points: number;
  readonly metric?: string;
  /** Scalars of event files of TensorBoard, instead of what the program logged. */
  readonly source?: "tensorboard" | undefined;
}

/** Metrics that a task logged, from a byte on: of each at most about so many values, or of one of them only. */
export function metricSeries(
  framework: string,
  { role, index }: TaskAddress,
  { start, points, metric, source }: SeriesChoice,
  signal?: AbortSignal,
): Promise<MetricSeriesPart> {
  const query = new URLSearchParams({ role, index: String(index), start: String(start), points: String(points) });
  if (metric !== undefined) query.set("metric", metric);
  if (source !== undefined) query.set("source", source);
  return get(`api/v2/jobs/${encodeURIComponent(framework)}/metric-series?${query}`, signal);
}

// -- job files -------------------------------------------------------------------------------------

/** Check a job file without submitting it. */
export async function checkJob(text: string, signal: AbortSignal): Promise<JobCheck> {
  return (await request("POST", "api/v2/job-checks", { text, signal })).json() as Promise<JobCheck>;
}

export function clusterInfo(): Promise<Info> {
  return get("api/v2/info");
}

/** JSON Schema of job files, for completion. */
export function jobSchema(version: "v1" | "v2"): Promise<object> {
  return get(`api/v2/job-schemas/${version}`);
}

type TemplateAddress = Pick<JobTemplateSummary, "username" | "name">;

const templatePath = ({ username, name }: TemplateAddress) =>
  `api/v2/job-templates/${encodeURIComponent(username)}/${encodeURIComponent(name)}`;

export function jobTemplates(signal?: AbortSignal): Promise<readonly JobTemplateSummary[]> {
  return get("api/v2/job-templates", signal);
}

export function jobTemplate(address: TemplateAddress): Promise<JobTemplate> {
  return get(templatePath(address));
}

/** Add a template, or replace the one of this name. */
export async function saveJobTemplate(username: string, name: string, body: JobTemplateBody): Promise<void> {
  await request("PUT", templatePath({ username, name }), { body });
}

export async function deleteJobTemplate(address: TemplateAddress): Promise<void> {
  await request("DELETE", templatePath(address));
}

/** Whether the cluster has an archive of source files that belongs to the caller. */
export async function hasSources(sha256: string): Promise<boolean> {
  try {
    await request("HEAD", `api/v2/sources/${encodeURIComponent(sha256)}`);
    return true;
  } catch (error) {
    if (error instanceof ApiError && (error.status === 404 || error.status === 400)) return false;
    throw error;
  }
}

export function putSources(sha256: string, archive: Blob, signal: AbortSignal, onProgress: (sent: number) => void): Promise<void> {
  return uploadBody(`api/v2/sources/${sha256}`, archive, signal, onProgress);
}

// -- account ---------------------------------------------------------------------------------------

const ownPath = () => `api/v2/users/${encodeURIComponent(session.value?.user ?? "")}`;

export function ownUser(signal?: AbortSignal): Promise<UserInfo> {
  return get(ownPath(), signal);
}

/** Keep a value with the user, under a name of its own. */
export async function keepInExtension(name: string, value: unknown): Promise<void> {
  await request("PUT", `${ownPath()}/extension`, { body: { extension: { [name]: value } } satisfies ExtensionBody });
}

/** Add a key to those that the cluster has now, which may be more than the page shows. */
export async function addSshKey(value: string, title: string): Promise<void> {
  await request("POST", `${ownPath()}/ssh-keys`, { body: { value, title } satisfies SshKeyBody });
}

export async function removeSshKey(value: string): Promise<void> {
  await request("DELETE", `${ownPath()}/ssh-keys`, { body: { value } satisfies SshKeyRemoval });
}

/** Ends all sessions of the user, this one as well. */
export async function changePassword(oldPassword: string, newPassword: string): Promise<void> {
  const data = { username: session.value?.user ?? "", oldPassword, newPassword };
  await request("PUT", "api/v2/users/me", { body: { patch: true, data } satisfies OwnUserChange });
}

export async function listTokens(signal?: AbortSignal): Promise<readonly TokenDetails[]> {
  return (await get<TokenList>("api/v2/tokens?details=only", signal)).details ?? [];
}

/** Id of the token of this session. */
export async function ownTokenId(signal?: AbortSignal): Promise<string | undefined> {
  return (await get<TokenPayload>("api/v2/tokens/check", signal)).jti;
}

/** A new application token; `lifetimeS` null: until it is revoked. */
export async function makeToken(name: string, lifetimeS: number | null): Promise<string> {
  const body = { name, ...(lifetimeS === null ? {} : { expiration: lifetimeS }) };
  const response = await request("POST", "api/v2/tokens/application", { body });
  return ((await response.json()) as ApplicationToken).token;
}

export async function revokeToken(id: string): Promise<void> {
  await request("DELETE", `api/v2/tokens/${encodeURIComponent(id)}`);
}

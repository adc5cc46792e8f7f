// Calls of the API for administrators.
import { request } from "./api.ts";

export interface User {
  readonly username: string;
  readonly email: string;
  readonly admin: boolean;
  readonly disabled: boolean;
  readonly grouplist: readonly string[];
}

export interface Group {
  readonly groupname: string;
  readonly description: string;
  readonly extension: { readonly acls?: Access };
}

/** What the users of a group may use. */
export interface Access {
  readonly virtualClusters?: readonly string[];
  readonly storageConfigs?: readonly string[];
}

export interface ClusterShare {
  readonly capacity: number;
  readonly maxCapacity: number;
}

export interface Alert {
  readonly fingerprint: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: { readonly summary: string };
  readonly startsAt: string;
}

export interface AuditEntry {
  readonly time: string;
  readonly user: string | null;
  readonly address?: string;
  readonly method?: string;
  readonly path?: string;
  readonly status?: number;
  readonly about?: unknown;
  /** Requests of strangers, in one line. */
  readonly refused?: number;
}

export const QUOTA_LIMITS = ["tasks", "cpu", "memoryMB", "gpu", "storageBytes"] as const;
export type QuotaLimits = Readonly<Record<(typeof QUOTA_LIMITS)[number], number | null>>;

async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await request("GET", path, signal ? { signal } : {})).json() as Promise<T>;
}

const userPath = (name: string) => `api/v2/users/${encodeURIComponent(name)}`;
const groupPath = (name: string) => `api/v2/groups/${encodeURIComponent(name)}`;
const clusterPath = (name: string) => `api/v2/virtual-clusters/${encodeURIComponent(name)}`;

// -- users -----------------------------------------------------------------------------------------

export const listUsers = (signal: AbortSignal) => get<readonly User[]>("api/v2/users", signal);

export const userOf = (username: string) => get<User>(userPath(username));

export async function createUser(user: { username: string; password: string; email: string; admin: boolean }) {
  await request("POST", "api/v2/users", { body: user });
}

/** The fields that change. */
export interface UserChange {
  readonly username: string;
  readonly email?: string;
  readonly admin?: boolean;
  readonly password?: string;
}

export async function changeUser(data: UserChange): Promise<void> {
  await request("PUT", "api/v2/users", { body: { data, patch: true } });
}

export async function setGroups(username: string, grouplist: readonly string[]): Promise<void> {
  await request("PUT", `${userPath(username)}/grouplist`, { body: { grouplist } });
}

/** Disable or enable a user; returns how many jobs of the user go on. */
export async function setDisabled(username: string, disabled: boolean): Promise<number> {
  const response = await request("PUT", `${userPath(username)}/disabled`, { body: { disabled } });
  return ((await response.json()) as { unfinishedJobs: number }).unfinishedJobs;
}

export async function deleteUser(username: string): Promise<void> {
  await request("DELETE", userPath(username));
}

interface QuotaReport {
  readonly resources: Readonly<Record<string, { readonly used: number | null; readonly limit: number | null }>>;
}

export async function quotaOf(username: string, signal: AbortSignal): Promise<QuotaLimits> {
  const { resources } = await get<QuotaReport>(`${userPath(username)}/quota`, signal);
  return Object.fromEntries(QUOTA_LIMITS.map((name) => [name, resources[name]?.limit ?? null])) as unknown as QuotaLimits;
}

export async function setQuota(username: string, limits: QuotaLimits): Promise<void> {
  await request("PUT", `${userPath(username)}/quota`, { body: limits });
}

// -- groups and virtual clusters -------------------------------------------------------------------

export const listGroups = (signal: AbortSignal) => get<readonly Group[]>("api/v2/groups", signal);

export async function createGroup(group: Group): Promise<void> {
  await request("POST", "api/v2/groups", { body: group });
}

export const groupOf = (groupname: string) => get<Group>(groupPath(groupname));

/** Change the fields that are there. */
export async function changeGroup(data: Pick<Group, "groupname"> & Partial<Group>): Promise<void> {
  await request("PUT", "api/v2/groups", { body: { data, patch: true } });
}

export async function deleteGroup(groupname: string): Promise<void> {
  await request("DELETE", groupPath(groupname));
}

export const listShares = (signal: AbortSignal) =>
  get<Readonly<Record<string, ClusterShare>>>("api/v2/virtual-clusters", signal);

export async function putShare(name: string, capacity: number, maxCapacity: number): Promise<void> {
  await request("PUT", clusterPath(name), { body: { vcCapacity: capacity, vcMaxCapacity: maxCapacity } });
}

export async function deleteShare(name: string): Promise<void> {
  await request("DELETE", clusterPath(name));
}

// -- the server ------------------------------------------------------------------------------------

export const listAlerts = (signal: AbortSignal) => get<readonly Alert[]>("api/v2/alerts", signal);

export async function serverSettings(signal: AbortSignal): Promise<Readonly<Record<string, unknown>>> {
  return (await get<{ settings: Record<string, unknown> }>("api/v2/settings", signal)).settings;
}

export interface AuditReport {
  readonly entries: readonly AuditEntry[];
  /** Whether the cluster writes an audit log at all. */
  readonly isKept: boolean;
}

export function auditReport(keyword: string, signal: AbortSignal): Promise<AuditReport> {
  const query = new URLSearchParams({ limit: "200", keyword });
  return get(`api/v2/audit?${query.toString()}`, signal);
}

// Types of the REST API, generated from /openapi.json by `make portal-types`.

export interface AdminBody {
  readonly admin: boolean;
}

export interface Alert {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly startsAt: string;
  readonly endsAt: string;
  readonly generatorURL: string;
  readonly status: AlertStatus;
  readonly receivers: readonly string[];
  readonly fingerprint: string;
}

export interface AlertStatus {
  readonly state: "active" | "suppressed" | "unprocessed";
  readonly silencedBy: readonly string[];
  readonly inhibitedBy: readonly string[];
}

export interface AppLink {
  readonly url: string;
  readonly role: string;
  readonly index: number;
  readonly port: number;
}

export interface ApplicationToken {
  readonly token: string;
  readonly application: true;
}

export interface AttemptRole {
  readonly taskRoleStatus: TaskRoleStatus;
  readonly taskStatuses: readonly AttemptTask[];
}

export interface AttemptTask {
  readonly taskIndex: number;
  readonly taskState: "FAILED" | "RUNNING" | "STOPPED" | "STOPPING" | "SUCCEEDED" | "UNKNOWN" | "WAITING";
  readonly containerId: string;
  readonly containerIp: string;
  readonly containerGpus: null;
  readonly containerLog: string;
  readonly containerExitCode: number | null;
}

/** A request, or (with `refused`) how many requests without a valid token were refused since a time. */
export interface AuditEntry {
  readonly time: string;
  readonly since?: string;
  readonly user: string | null;
  readonly address?: string;
  readonly method?: string;
  readonly path?: string;
  readonly status?: number;
  readonly refused?: number;
  readonly requests?: readonly RefusedRequests[];
  readonly addresses?: Readonly<Record<string, number>>;
  readonly operation?: string;
  readonly about?: string | Readonly<Record<string, number>>;
  readonly byJob?: number;
  readonly application?: boolean;
}

export interface AuditReport {
  readonly entries: readonly AuditEntry[];
  readonly isKept: boolean;
}

export interface AuthnInfo {
  readonly authn_type: "OIDC" | "basic";
  readonly loginURI: string;
  readonly loginURIMethod: "get" | "post";
}

export interface BrowserSession {
  readonly user: string;
  readonly admin: boolean;
  readonly proof: string;
}

export interface BrowserSignIn {
  readonly code?: string;
  readonly username?: string;
  readonly password?: string;
}

export interface ClusterUsage {
  readonly time: number | null;
  readonly interval: number | null;
  readonly nodes: readonly NamedUsage[];
  readonly virtualClusters: readonly NamedUsage[];
  readonly jobs: readonly JobUsage[];
  readonly jobCount: number;
  readonly server: CurrentUsage;
}

export interface ConfigNameBody {
  readonly name: string;
}

export interface Container {
  readonly name: string;
  readonly resources: ContainerResources;
}

export interface ContainerResources {
  readonly limits: Readonly<Record<string, string>>;
  readonly requests: Readonly<Record<string, string>>;
}

export interface ContentLink {
  readonly url: string;
}

/** Cores, bytes of memory, bytes per second, busy GPUs, bytes of GPU memory; null: not measured. */
export interface CurrentUsage {
  readonly cpu: number;
  readonly memory: number;
  readonly read: number;
  readonly write: number;
  readonly gpu: number | null;
  readonly gpuMemory: number | null;
}

/** What one request has deleted; repeat it until it is complete. */
export interface DeletedObjects {
  readonly deleted: number;
  readonly isComplete: boolean;
}

export interface DescriptionBody {
  readonly description: string;
}

export interface DisabledBody {
  readonly disabled: boolean;
}

export interface DisabledResult {
  readonly message: string;
  readonly unfinishedJobs: number;
}

export interface EmailBody {
  readonly email: string;
}

/** Last lines of a task's log. */
export interface ErrorLogs {
  readonly user: string;
  readonly platform: string;
}

export interface EventPage {
  readonly totalCount: number;
  readonly data: readonly JobEvent[];
}

export interface ExecutionTypeBody {
  readonly value: "START" | "STOP";
}

export interface ExitDiagnostics {
  readonly diagnosticsSummary: string;
  readonly runtime: RuntimeExit | null;
  readonly launcher: string;
}

export interface ExitMessages {
  readonly container: null;
  readonly runtime: RuntimeExit | null;
  readonly launcher: string | null;
}

export interface ExitSpec {
  readonly code: number;
  readonly phrase: string;
  readonly issuer: string;
  readonly causer: string;
  readonly type: string;
  readonly stage: string;
  readonly behavior: string;
  readonly reaction: string;
  readonly reason?: string;
  readonly repro: readonly string[];
  readonly solution: readonly string[];
}

export interface ExtensionBody {
  readonly extension: Readonly<Record<string, unknown>>;
}

export interface ExtensionValueBody {
  readonly data: unknown;
}

export interface ExternalNameBody {
  readonly externalName: string;
}

export interface Group {
  readonly groupname: string;
  readonly description: string;
  readonly externalName: string;
  readonly extension: {
    readonly acls?: {
      readonly admin?: boolean;
      readonly virtualClusters?: readonly string[];
      readonly storageConfigs?: readonly string[];
    };
  };
}

export interface GroupBody {
  readonly groupname: string;
}

export interface GroupChange {
  readonly patch?: boolean;
  readonly data: NewGroup;
}

export interface GroupExtensionBody {
  readonly extension: Readonly<Record<string, unknown>>;
}

export interface GroupsBody {
  readonly grouplist: readonly string[];
}

export interface Info {
  readonly name: string;
  readonly version: string | null;
  readonly launcherType: "k8s" | "yarn";
  readonly authnMethod: "OIDC" | "basic";
  readonly containers: boolean;
  readonly maxSourcesBytes: number;
}

export interface JobAttempt {
  readonly jobName: string;
  readonly frameworkName: string;
  readonly uid: string;
  readonly userName: string;
  readonly state: "FAILED" | "RUNNING" | "STOPPED" | "STOPPING" | "SUCCEEDED" | "UNKNOWN" | "WAITING";
  readonly originState: string;
  readonly attemptIndex: number;
  /** Since 1970, UTC. */
  readonly jobStartedTime: number;
  readonly attemptStartedTime: number | null;
  readonly attemptCompletedTime: number | null;
  readonly exitCode: number | null;
  readonly exitPhrase: string | null;
  readonly exitType: string | null;
  readonly exitDiagnostics: ExitDiagnostics | null;
  readonly appExitTriggerMessage: string | null;
  readonly appExitTriggerTaskRoleName: string | null;
  readonly appExitTriggerTaskIndex: number | null;
  readonly appExitSpec: ExitSpec | null;
  readonly appExitDiagnostics: string | null;
  readonly appExitMessages: ExitMessages | null;
  readonly totalGpuNumber: number;
  readonly totalTaskNumber: number;
  readonly totalTaskRoleNumber: number;
  readonly jobPriority: string | null;
  readonly taskRoles: Readonly<Record<string, AttemptRole>>;
  readonly isLatest: boolean;
}

export interface JobCheck {
  readonly version: 1 | 2;
  readonly name: string | null;
  readonly problems: readonly JobProblem[];
  readonly warnings: readonly string[];
}

/** What the jobs of a list can be asked for. */
export interface JobColumns {
  readonly parameters: readonly string[];
  readonly metrics: readonly string[];
}

export interface JobDetail {
  readonly debugId: string;
  readonly name: string;
  readonly tags: readonly string[];
  readonly jobPriority: string | null;
  readonly reason?: string;
  readonly cause?: string;
  readonly jobStatus: JobStatus;
  readonly taskRoles: Readonly<Record<string, TaskRole>>;
}

export interface JobEvent {
  readonly uid: string;
  readonly frameworkName: string;
  readonly podUid: string | null;
  readonly taskroleName: string | null;
  readonly taskName: string | null;
  readonly taskIndex: number | null;
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  readonly message: string;
  readonly firstTimestamp: string;
  readonly lastTimestamp: string;
  readonly count: number;
  readonly sourceComponent: string;
  readonly sourceHost: string | null;
  readonly pending: boolean;
}

export interface JobPage {
  readonly totalCount: number;
  readonly data: readonly JobSummary[];
}

export interface JobProblem {
  readonly line: number;
  readonly column: number;
  readonly key: string;
  readonly message: string;
}

/** Parameters, states and metrics of all tasks of a job. */
export interface JobRuns {
  readonly name: string;
  readonly username: string;
  readonly state: "FAILED" | "RUNNING" | "STOPPED" | "STOPPING" | "SUCCEEDED" | "UNKNOWN" | "WAITING";
  readonly tags: readonly string[];
  /** Since 1970, UTC. */
  readonly submissionTime: number;
  readonly launchedTime: number | null;
  readonly completedTime: number | null;
  readonly isArray: boolean;
  readonly parameters: Readonly<Record<string, unknown>>;
  readonly array: Readonly<Record<string, readonly string[]>>;
  readonly arrayRows: Readonly<Record<string, readonly string[]>>;
  readonly tasks: readonly TaskRun[];
  readonly hasUnreadMetrics: boolean;
  readonly hasOmittedMetrics: boolean;
}

export interface JobStatus {
  readonly username: string;
  readonly state: "FAILED" | "RUNNING" | "STOPPED" | "STOPPING" | "SUCCEEDED" | "UNKNOWN" | "WAITING";
  readonly subState: string;
  readonly executionType: "START" | "STOP";
  readonly retries: number;
  readonly retryDetails: RetryDetails;
  readonly retryDelayTime: number | null;
  /** Since 1970, UTC. */
  readonly submissionTime: number;
  /** Since 1970, UTC. */
  readonly createdTime: number;
  readonly launchedTime: number | null;
  readonly completedTime: number | null;
  readonly attemptId: number;
  readonly attemptState: "FAILED" | "RUNNING" | "STOPPED" | "STOPPING" | "SUCCEEDED" | "UNKNOWN" | "WAITING";
  readonly appId: string;
  readonly appProgress: 0 | 1;
  readonly appTrackingUrl: string;
  readonly appCreatedTime: number | null;
  readonly appLaunchedTime: number | null;
  readonly appCompletedTime: number | null;
  readonly appExitCode: number | null;
  readonly appExitSpec: ExitSpec | null;
  readonly appExitDiagnostics: string | null;
  readonly appExitMessages: ExitMessages | null;
  readonly appExitTriggerMessage: string | null;
  readonly appExitTriggerTaskRoleName: string | null;
  readonly appExitTriggerTaskIndex: number | null;
  readonly appExitType: string | null;
  readonly virtualCluster: string;
}

export interface JobSummary {
  readonly debugId: string;
  readonly name: string;
  readonly username: string;
  readonly state: "FAILED" | "RUNNING" | "STOPPED" | "STOPPING" | "SUCCEEDED" | "UNKNOWN" | "WAITING";
  readonly subState: string;
  readonly executionType: "START" | "STOP";
  readonly tags: readonly string[];
  readonly retries: number;
  readonly retryDetails: RetryDetails;
  readonly retryDelayTime: number | null;
  /** Since 1970, UTC. */
  readonly submissionTime: number;
  /** Since 1970, UTC. */
  readonly createdTime: number;
  readonly launchedTime: number | null;
  readonly completedTime: number | null;
  readonly appExitCode: number | null;
  readonly virtualCluster: string;
  readonly totalGpuNumber: number;
  readonly totalTaskNumber: number;
  readonly totalTaskRoleNumber: number;
  readonly jobPriority: string | null;
  readonly failedTaskNumber?: number;
  readonly reason?: string | null;
  readonly metrics?: Readonly<Record<string, ListedMetric>> | null;
  readonly parameters?: Readonly<Record<string, readonly string[]>>;
}

export interface JobTemplate {
  readonly username: string;
  readonly name: string;
  readonly group: string | null;
  readonly description: string;
  readonly modifiedTime: number;
  readonly mayChange: boolean;
  readonly protocol: string;
}

/** `protocol` is a job file of version 2, in YAML or JSON. Without a group only its owner may use it. */
export interface JobTemplateBody {
  readonly protocol: string;
  readonly group?: string | null;
  readonly description?: string;
}

export interface JobTemplateSummary {
  readonly username: string;
  readonly name: string;
  readonly group: string | null;
  readonly description: string;
  readonly modifiedTime: number;
  readonly mayChange: boolean;
}

export interface JobUsage {
  readonly user: string;
  readonly name: string;
  readonly virtualCluster: string;
  readonly tasks: number;
  readonly cpu: number;
  readonly memory: number;
  readonly read: number;
  readonly write: number;
  readonly gpu: number | null;
  readonly gpuMemory: number | null;
  readonly cpuTotal: number;
  readonly memoryTotal: number;
  readonly gpuTotal: number;
}

export interface JobUsageOverTime {
  readonly time: number | null;
  readonly interval: number | null;
  readonly series: UsageSeries;
  readonly tasks: readonly RunningTaskUsage[];
  readonly taskCount: number;
}

export interface KubernetesContainerState {
  readonly running: RunningState;
}

export interface KubernetesContainerStatus {
  readonly name: string;
  readonly ready: boolean;
  readonly state: KubernetesContainerState;
}

export interface KubernetesNode {
  readonly metadata: NodeMetadata;
  readonly spec: NodeSpec;
  readonly status: NodeStatus;
}

export interface KubernetesPod {
  readonly metadata: PodMetadata;
  readonly spec: KubernetesPodSpec;
  readonly status: KubernetesPodStatus;
}

export interface KubernetesPodSpec {
  readonly nodeName: string | null;
  readonly hostNetwork: boolean;
  readonly containers: readonly Container[];
}

export interface KubernetesPodStatus {
  readonly phase: string;
  readonly hostIP: string | null;
  readonly podIP: string | null;
  readonly startTime: string | null;
  readonly containerStatuses: readonly KubernetesContainerStatus[];
}

export interface LegacyStorageConfig {
  readonly name: string;
  readonly default: boolean;
  readonly servers: readonly string[];
  readonly mountInfos: readonly MountInfo[];
  readonly gpn?: string;
}

export interface LegacyStorageServer {
  readonly spn: string;
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
  readonly extension: Readonly<Record<string, unknown>>;
}

/** `next_page` selects the next page; omitted after the last one. */
export interface ListMetadata {
  readonly resourceVersion?: string;
  readonly continue?: string;
}

/** Metric of a job in a list: of its first task that logged it, or of all tasks of an array. */
export interface ListedMetric {
  readonly last: number | string | null;
  readonly min: number | string | null;
  readonly max: number | string | null;
}

export interface LogLocation {
  readonly name: "all" | "stderr" | "stdout";
  readonly uri: string;
}

export interface LogLocations {
  readonly locations: readonly LogLocation[];
}

export interface LogTimes {
  readonly precisionMs: number | null;
  readonly times: readonly (readonly [number, number])[];
}

export interface LoginBody {
  readonly username: string;
  readonly password: string;
  readonly expiration?: number | string;
}

export interface LoginResult {
  readonly user: string;
  readonly token: string;
  readonly admin: boolean;
  readonly hasGitHubPAT: boolean;
}

export interface Member {
  readonly username: string;
  readonly clusterAdmin: boolean;
}

/** Response with a message only. */
export interface Message {
  readonly message: string;
}

export interface MessageWithStatus {
  readonly status: number;
  readonly message: string;
}

/** Values of a metric that one attempt of a task logged, or one of several runs within it. */
export interface MetricSegment {
  readonly name: string;
  readonly attempt: number;
  readonly steps: readonly number[];
  readonly times: readonly (number | null)[];
  readonly values: readonly (number | string)[];
}

/** Metrics of a task, thinned for plots. `next`: the byte offset of what follows. `is_whole`: it has everything, and replaces the parts before. */
export interface MetricSeriesPart {
  readonly segments: readonly MetricSegment[];
  readonly counts: readonly SeriesCount[];
  readonly next: number;
  readonly hasMore: boolean;
  readonly isWhole?: boolean;
}

/** Summary of a metric. What JSON has no number for is a text: `NaN`, `Infinity`, `-Infinity`. */
export interface MetricSummary {
  readonly count: number;
  readonly last: number | string;
  readonly lastStep: number;
  readonly min: number | string | null;
  readonly minStep: number | null;
  readonly max: number | string | null;
  readonly maxStep: number | null;
}

export interface MountInfo {
  readonly mountPoint: string;
  readonly path: string;
  readonly server: string;
  readonly permission: "ro" | "rw";
}

/** What one request has moved; repeat it with `resume=true` until it is complete. */
export interface MovedObjects {
  readonly moved: number;
  readonly isComplete: boolean;
}

export interface NamedUsage {
  readonly name: string;
  readonly cpu: number;
  readonly memory: number;
  readonly read: number;
  readonly write: number;
  readonly gpu: number | null;
  readonly gpuMemory: number | null;
  readonly cpuTotal: number;
  readonly memoryTotal: number;
  readonly gpuTotal: number;
}

/** Our addition: `name` identifies the token later, and it is valid for `expiration` seconds. */
export interface NewApplicationToken {
  readonly name?: string;
  readonly expiration?: number;
}

export interface NewGroup {
  readonly groupname: string;
  readonly description?: string;
  readonly externalName?: string;
  readonly extension?: Readonly<Record<string, unknown>>;
}

export interface NewLegacyStorageConfig {
  readonly name: string;
  readonly default?: boolean;
  readonly servers?: readonly string[];
  readonly mountInfos?: readonly NewMountInfo[];
  readonly gpn?: string;
}

export interface NewLegacyStorageServer {
  readonly spn: string;
  readonly type: "azureblob" | "azurefile" | "hdfs" | "nfs" | "samba";
  readonly data: Readonly<Record<string, unknown>>;
  readonly extension?: Readonly<Record<string, unknown>>;
}

export interface NewMountInfo {
  readonly mountPoint: string;
  readonly path?: string;
  readonly server: string;
  readonly permission?: "ro" | "rw";
}

export interface NewUser {
  readonly username: string;
  readonly password: string;
  readonly email?: string;
  readonly admin?: boolean;
  readonly virtualCluster?: readonly string[];
  readonly extension?: Readonly<Record<string, unknown>>;
}

export interface NodeAddress {
  readonly type: string;
  readonly address: string;
}

export interface NodeCondition {
  readonly type?: string;
  readonly status?: string;
  readonly reason?: string;
  readonly message?: string;
}

export interface NodeList {
  readonly kind?: "NodeList";
  readonly apiVersion?: "v1";
  readonly metadata?: ListMetadata;
  readonly items: readonly KubernetesNode[];
}

export interface NodeMetadata {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** Nothing is said of it. */
export interface NodeSpec {
}

export interface NodeStatus {
  readonly addresses: readonly NodeAddress[];
  readonly capacity: Readonly<Record<string, string>>;
  readonly allocatable: Readonly<Record<string, string>>;
  readonly conditions?: readonly NodeCondition[];
}

/** What tasks requested of a node; memory in MB. */
export interface NodeUse {
  readonly gpuUsed: number;
  readonly gpuAvailable: number;
  readonly gpuTotal: number;
  readonly cpuUsed: number;
  readonly cpuTotal: number;
  readonly memoryUsed: number;
  readonly memoryTotal: number;
}

export interface OwnUserChange {
  readonly patch?: boolean;
  readonly data: OwnUserData;
}

export interface OwnUserData {
  readonly username: string;
  readonly email?: string;
  readonly newPassword?: string;
  readonly oldPassword?: string;
  readonly extension?: Readonly<Record<string, unknown>>;
}

export interface PasswordBody {
  readonly oldPassword?: string;
  readonly newPassword: string;
}

export interface PodList {
  readonly kind?: "PodList";
  readonly apiVersion?: "v1";
  readonly metadata?: ListMetadata;
  readonly items: readonly KubernetesPod[];
}

export interface PodMetadata {
  readonly name: string;
  readonly namespace: string;
  readonly uid: string;
  readonly creationTimestamp: string | null;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** Body of every error response. */
export interface Problem {
  readonly code: string;
  readonly message: string;
  readonly hint?: string;
}

/** What is used of a resource, and its limit; null: not limited. */
export interface QuotaAmount {
  readonly used: number;
  readonly limit: number | null;
}

/** Limits to set; null removes one, and those not sent stay. */
export interface QuotaBody {
  readonly tasks?: number | null;
  readonly cpu?: number | null;
  readonly memoryMB?: number | null;
  readonly gpu?: number | null;
  readonly storageBytes?: number | null;
}

export interface QuotaDetails {
  readonly kind: "group" | "user";
  readonly name: string;
  readonly resources: QuotaResources;
}

export interface QuotaList {
  readonly quotas: readonly QuotaDetails[];
}

export interface QuotaResources {
  readonly tasks: QuotaAmount;
  readonly cpu: QuotaAmount;
  readonly memoryMB: QuotaAmount;
  readonly gpu: QuotaAmount;
  readonly storageBytes: QuotaAmount;
}

export interface RefusedRequests {
  readonly method: string;
  readonly path: string;
  readonly status: number;
  readonly count: number;
}

export interface RetryDetails {
  readonly user: number;
  readonly platform: number;
  readonly resource: number;
}

/** `next`: the offset of the jobs that follow, if there may be some. */
export interface RunPage {
  readonly jobs: readonly JobRuns[];
  readonly next: number | null;
}

export interface RunningState {
  readonly startedAt: string | null;
}

export interface RunningTaskUsage {
  readonly role: string;
  readonly index: number;
  readonly node: string;
  readonly cpu: number;
  readonly memory: number;
  readonly read: number;
  readonly write: number;
  readonly gpu: number | null;
  readonly gpuMemory: number | null;
  readonly cpuTotal: number;
  readonly memoryTotal: number;
  readonly gpuTotal: number;
}

/** How the task ended that decided the attempt. */
export interface RuntimeExit {
  readonly exitCode: number;
  readonly originUserExitCode?: number;
  readonly matchedUserLogString?: string;
  readonly matchedPlatformLogString?: string;
  readonly caughtException?: string | null;
  readonly solution?: string;
  readonly errorLogs?: ErrorLogs;
  readonly name: string;
}

/** How many values of a metric were read, and how many of them are not finite. */
export interface SeriesCount {
  readonly name: string;
  readonly count: number;
  readonly notFinite: number;
}

export interface ServerNameBody {
  readonly spn: string;
}

export interface SettingsReport {
  readonly settings: Readonly<Record<string, unknown>>;
}

export interface SignInLink {
  readonly url: string;
}

export interface Sku {
  readonly cpu: number;
  readonly memory: number;
  readonly gpu: number;
}

export interface SshContainer {
  readonly id: string;
  readonly sshIp: string;
  readonly sshPort: string;
  readonly user?: string;
}

export interface SshInfo {
  readonly containers: readonly SshContainer[];
  readonly keyPair: SshKeyPair;
  readonly hostKey?: string;
}

/** A line of `authorized_keys`. */
export interface SshKeyBody {
  readonly value: string;
  readonly title?: string;
}

export interface SshKeyPair {
  readonly folderPath: string;
  readonly publicKeyFileName: string;
  readonly privateKeyFileName: string;
  readonly privateKeyDirectDownloadLink: string;
}

export interface SshKeyRemoval {
  readonly value: string;
}

export interface StorageDetail {
  readonly name: string;
  readonly share: boolean;
  readonly volumeName: string;
  readonly default: boolean;
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
  readonly readOnly: boolean;
  readonly mountOptions?: readonly string[];
  readonly secretName?: string;
}

/** `file`: the path is a file. `next` is the cursor of the next page, and empty at the end. `isTruncated`: the folder has more entries, which are not listed. */
export interface StorageEntries {
  readonly file: StorageEntry | null;
  readonly entries: readonly StorageEntry[];
  readonly next: string;
  readonly isTruncated: boolean;
}

export interface StorageEntry {
  readonly name: string;
  readonly type: "directory" | "file";
  readonly size: number;
  readonly modifiedTime: number;
}

export interface StorageList {
  readonly storages: readonly StorageSummary[];
}

export interface StorageNamesBody {
  readonly names?: readonly string[];
}

export interface StorageSummary {
  readonly name: string;
  readonly share: boolean;
  readonly volumeName: string;
  readonly default: boolean;
}

export interface StoredFile {
  readonly size: number;
}

export interface Tag {
  readonly value: string;
}

export interface TaskAddress {
  readonly role: string;
  readonly index: number;
}

export interface TaskAttempt {
  readonly containerId: string | null;
  readonly containerIp: string | null;
  readonly containerNodeName: string | null;
  readonly containerPorts: Readonly<Record<string, string>>;
  readonly containerGpus: null;
  readonly containerLog: string;
  readonly containerExitCode: number | null;
  readonly containerExitSpec: ExitSpec | null;
  readonly containerExitDiagnostics: string | null;
  readonly originUserExitCode?: number | null;
  readonly cause?: string;
  readonly attemptId: number;
  readonly attemptState: "FAILED" | "RUNNING" | "STOPPED" | "STOPPING" | "SUCCEEDED" | "UNKNOWN" | "WAITING";
  readonly currentAttemptCreatedTime: number | null;
  readonly currentAttemptLaunchedTime: number | null;
  readonly currentAttemptCompletedTime: number | null;
}

export interface TaskDetail {
  readonly taskIndex: number;
  readonly taskUid: string | null;
  readonly taskState: "FAILED" | "RUNNING" | "STOPPED" | "STOPPING" | "SUCCEEDED" | "UNKNOWN" | "WAITING";
  readonly retries: number;
  readonly accountableRetries: number;
  /** Since 1970, UTC. */
  readonly createdTime: number;
  readonly launchedTime: number | null;
  readonly completedTime: number | null;
  readonly containerId: string | null;
  readonly containerIp: string | null;
  readonly containerNodeName: string | null;
  readonly containerPorts: Readonly<Record<string, string>>;
  readonly containerGpus: null;
  readonly containerLog: string;
  readonly containerExitCode: number | null;
  readonly containerExitSpec: ExitSpec | null;
  readonly containerExitDiagnostics: string | null;
  readonly originUserExitCode?: number | null;
  readonly cause?: string;
  readonly attemptId: number;
  readonly attemptState: "FAILED" | "RUNNING" | "STOPPED" | "STOPPING" | "SUCCEEDED" | "UNKNOWN" | "WAITING";
  readonly currentAttemptCreatedTime: number | null;
  readonly currentAttemptLaunchedTime: number | null;
  readonly currentAttemptCompletedTime: number | null;
}

export interface TaskRole {
  readonly taskRoleStatus: TaskRoleStatus;
  readonly taskStatuses: readonly TaskDetail[];
}

export interface TaskRoleStatus {
  readonly name: string;
}

export interface TaskRun {
  readonly role: string;
  readonly index: number;
  readonly state: "FAILED" | "RUNNING" | "STOPPED" | "STOPPING" | "SUCCEEDED" | "UNKNOWN" | "WAITING";
  readonly launchedTime: number | null;
  readonly completedTime: number | null;
  readonly exitCode: number | null;
  readonly metrics: Readonly<Record<string, MetricSummary>>;
  readonly cause?: string;
}

export interface TaskStatus {
  readonly username: string;
  readonly jobName: string;
  readonly jobAttemptId: number;
  readonly taskRoleName: string;
  readonly taskIndex: number;
  readonly taskUid: string;
  readonly taskState: "FAILED" | "RUNNING" | "STOPPED" | "STOPPING" | "SUCCEEDED" | "UNKNOWN" | "WAITING";
  readonly retries: number;
  readonly accountableRetries: number;
  readonly createdTime: number | null;
  readonly launchedTime: number | null;
  readonly completedTime: number | null;
  readonly attempts: readonly TaskAttempt[];
}

export interface TokenDetails {
  readonly id: string;
  readonly name: string;
  readonly application: boolean;
  readonly createdTime: number;
  readonly expirationTime: number | null;
}

export interface TokenList {
  readonly tokens: readonly string[];
  readonly details?: readonly TokenDetails[];
}

export interface TokenPayload {
  readonly username: string;
  readonly application?: boolean;
  readonly jobSpecific?: boolean;
  readonly jti?: string;
  readonly iat?: number;
  readonly exp?: number;
  readonly localAdmin?: boolean;
  readonly admin: boolean;
}

export interface UploadOffset {
  readonly offset: number;
}

export interface UsageOverTime {
  readonly time: number | null;
  readonly interval: number | null;
  readonly series: UsageSeries;
}

/** Columns of equal length, one entry for each point in the order of time. */
export interface UsageSeries {
  readonly times: readonly number[];
  readonly cpu: readonly number[];
  readonly memory: readonly number[];
  readonly read: readonly number[];
  readonly write: readonly number[];
  readonly gpu: readonly (number | null)[];
  readonly gpuMemory: readonly (number | null)[];
}

/** PEM texts; the cluster does not keep the key. */
export interface UserCertificate {
  readonly certificate: string;
  readonly key: string;
  readonly serial: string;
  readonly expires: number;
}

export interface UserChange {
  readonly patch?: boolean;
  readonly data: UserData;
}

export interface UserData {
  readonly username: string;
  readonly email?: string;
  readonly virtualCluster?: readonly string[];
  readonly admin?: boolean;
  readonly password?: string;
  readonly extension?: Readonly<Record<string, unknown>>;
}

export interface UserInfo {
  readonly username: string;
  readonly grouplist: readonly string[];
  readonly email: string;
  readonly extension: Readonly<Record<string, unknown>>;
  readonly admin: boolean;
  readonly disabled: boolean;
  readonly virtualCluster: readonly string[];
  readonly storageConfig: readonly string[];
}

export interface VirtualCluster {
  readonly capacity: number;
  readonly maxCapacity: number;
  readonly usedCapacity: number;
  readonly dedicated: boolean;
  readonly resourcesUsed: VirtualClusterResources;
  readonly resourcesGuaranteed: VirtualClusterResources;
  readonly resourcesTotal: VirtualClusterResources;
}

export interface VirtualClusterBody {
  readonly vcCapacity: number;
  readonly vcMaxCapacity?: number;
  readonly description?: string;
  readonly externalName?: string;
}

export interface VirtualClusterResources {
  readonly cpu: number;
  readonly memory: number;
  readonly gpu: number;
  readonly vCores: number;
  readonly GPUs: number;
}

export interface VirtualClusterStatusBody {
  readonly vcStatus: "running" | "stopped";
}

export interface VirtualClustersBody {
  readonly virtualCluster: readonly string[];
}

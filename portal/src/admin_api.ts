// Calls of the API for administrators.
import { get, request } from "./api.ts";
import type {
  Alert,
  AuditReport,
  DisabledBody,
  DisabledResult,
  Group,
  GroupChange,
  GroupsBody,
  NewGroup,
  NewUser,
  QuotaBody,
  QuotaDetails,
  QuotaResources,
  SettingsReport,
  UserChange,
  UserData,
  UserInfo,
  VirtualCluster,
  VirtualClusterBody,
} from "./api_types.ts";

/** What the users of a group may use. */
export type Access = Pick<NonNullable<Group["extension"]["acls"]>, "virtualClusters" | "storageConfigs">;

export const QUOTA_LIMITS = ["tasks", "cpu", "memoryMB", "gpu", "storageBytes"] as const satisfies readonly (keyof QuotaResources)[];
export type QuotaLimits = Readonly<Record<keyof QuotaResources, number | null>>;

const userPath = (name: string) => `api/v2/users/${encodeURIComponent(name)}`;
const groupPath = (name: string) => `api/v2/groups/${encodeURIComponent(name)}`;
const clusterPath = (name: string) => `api/v2/virtual-clusters/${encodeURIComponent(name)}`;

// -- users -----------------------------------------------------------------------------------------

export const listUsers = (signal: AbortSignal) => get<readonly UserInfo[]>("api/v2/users", signal);

export const userOf = (username: string) => get<UserInfo>(userPath(username));

export async function createUser(user: NewUser): Promise<void> {
  await request("POST", "api/v2/users", { body: user });
}

/** Change the fields that are there. */
export async function changeUser(data: UserData): Promise<void> {
  await request("PUT", "api/v2/users", { body: { data, patch: true } satisfies UserChange });
}

export async function setGroups(username: string, grouplist: readonly string[]): Promise<void> {
  await request("PUT", `${userPath(username)}/grouplist`, { body: { grouplist } satisfies GroupsBody });
}

/** Disable or enable a user; returns how many jobs of the user go on. */
export async function setDisabled(username: string, disabled: boolean): Promise<number> {
  const response = await request("PUT", `${userPath(username)}/disabled`, { body: { disabled } satisfies DisabledBody });
  return ((await response.json()) as DisabledResult).unfinishedJobs;
}

export async function deleteUser(username: string): Promise<void> {
  await request("DELETE", userPath(username));
}

export async function quotaOf(username: string, signal: AbortSignal): Promise<QuotaLimits> {
  const { resources } = await get<QuotaDetails>(`${userPath(username)}/quota`, signal);
  return Object.fromEntries(QUOTA_LIMITS.map((name) => [name, resources[name].limit])) as unknown as QuotaLimits;
}

export async function setQuota(username: string, limits: QuotaLimits): Promise<void> {
  await request("PUT", `${userPath(username)}/quota`, { body: limits satisfies QuotaBody });
}

// -- groups and virtual clusters -------------------------------------------------------------------

export const listGroups = (signal: AbortSignal) => get<readonly Group[]>("api/v2/groups", signal);

export async function createGroup(group: NewGroup): Promise<void> {
  await request("POST", "api/v2/groups", { body: group });
}

export const groupOf = (groupname: string) => get<Group>(groupPath(groupname));

/** Change the fields that are there. */
export async function changeGroup(data: NewGroup): Promise<void> {
  await request("PUT", "api/v2/groups", { body: { data, patch: true } satisfies GroupChange });
}

export async function deleteGroup(groupname: string): Promise<void> {
  await request("DELETE", groupPath(groupname));
}

export const listShares = (signal: AbortSignal) => get<Readonly<Record<string, VirtualCluster>>>("api/v2/virtual-clusters", signal);

export async function putShare(name: string, capacity: number, maxCapacity: number): Promise<void> {
  await request("PUT", clusterPath(name), {
    body: { vcCapacity: capacity, vcMaxCapacity: maxCapacity } satisfies VirtualClusterBody,
  });
}

export async function deleteShare(name: string): Promise<void> {
  await request("DELETE", clusterPath(name));
}

// -- the server ------------------------------------------------------------------------------------

export const listAlerts = (signal: AbortSignal) => get<readonly Alert[]>("api/v2/alerts", signal);

export async function serverSettings(signal: AbortSignal): Promise<SettingsReport["settings"]> {
  return (await get<SettingsReport>("api/v2/settings", signal)).settings;
}

export function auditReport(keyword: string, signal: AbortSignal): Promise<AuditReport> {
  const query = new URLSearchParams({ limit: "200", keyword });
  return get(`api/v2/audit?${query.toString()}`, signal);
}

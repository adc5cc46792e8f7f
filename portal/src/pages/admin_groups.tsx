// Groups and virtual clusters, as administrators see and change them.
import {
  changeGroup,
  createGroup,
  deleteGroup,
  deleteShare,
  groupOf,
  listGroups,
  listShares,
  putShare,
  type Access,
} from "../admin_api.ts";
import type { Group } from "../api_types.ts";
import { EditableTable } from "../components/editable_table.tsx";
import { checkedNames, Checks, textOf, withChanges } from "../components/form_dialog.tsx";
import { ErrorNotice, Loading } from "../components/notices.tsx";
import { listStorages } from "../files/storage.ts";
import { usePolled } from "../live.ts";

const REFRESH_MS = 15_000;
const DEFAULT = "default";

/** What groups can have access to, by the key of their access. */
const ACCESS = [
  { key: "virtualClusters", label: "Virtual clusters" },
  { key: "storageConfigs", label: "Storages" },
] as const satisfies readonly { key: keyof Access; label: string }[];

async function loadGroups(signal: AbortSignal) {
  const [groups, shares, storages] = await Promise.all([listGroups(signal), listShares(signal), listStorages(signal)]);
  const known = { virtualClusters: Object.keys(shares), storageConfigs: storages.map((storage) => storage.name) };
  return { groups, known };
}

const accessOf = (group: Group | null, key: keyof Access) => group?.extension.acls?.[key] ?? [];

export function Groups() {
  const { value, error, reload } = usePolled("groups", loadGroups, REFRESH_MS);
  if (error) return <ErrorNotice error={error} />;
  if (!value) return <Loading what="the groups" />;
  const { groups, known } = value;
  /** What exists, and what the group names although it does not. */
  const namesOf = (group: Group | null, key: keyof Access) => [...new Set([...known[key], ...accessOf(group, key)])];
  const save = async (groupname: string, form: FormData, shown: Group | null) => {
    const now = shown && (await groupOf(groupname));
    const access = ACCESS.map(({ key }) => {
      const checked = checkedNames(form, key, namesOf(shown, key));
      return [key, withChanges(accessOf(now, key), accessOf(shown, key), checked)];
    });
    const extension = { acls: { ...now?.extension.acls, ...Object.fromEntries(access) } };
    const description = textOf(form, "description");
    if (!shown) return createGroup({ groupname, description, extension });
    return changeGroup({ groupname, extension, ...(description === shown.description ? {} : { description }) });
  };
  return (
    <EditableTable
      what="group"
      label="Groups"
      note="A group lets its users use virtual clusters and storages."
      items={groups}
      nameOf={(group) => group.groupname}
      columns={[
        { label: "Description", cell: (group) => group.description, isLong: true },
        ...ACCESS.map(({ key, label }) => ({ label, cell: (group: Group) => accessOf(group, key).join(", "), isMinor: true })),
      ]}
      fields={(group) => (
        <>
          <label>
            <span>Description</span>
            <input name="description" defaultValue={group?.description ?? ""} />
          </label>
          {ACCESS.map(({ key, label }) => (
            <Checks key={key} legend={label} kind={key} names={namesOf(group, key)} checked={accessOf(group, key)} />
          ))}
        </>
      )}
      onSave={save}
      onDelete={deleteGroup}
      deletion="Its users lose what they may use through this group."
      onChange={reload}
    />
  );
}

const percent = (value: number) => `${Number(value.toFixed(1))} %`;

export function VirtualClusters() {
  const clusters = usePolled("shares", listShares, REFRESH_MS);
  if (clusters.error) return <ErrorNotice error={clusters.error} />;
  if (!clusters.value) return <Loading what="the virtual clusters" />;
  return (
    <EditableTable
      what="virtual cluster"
      label="Virtual clusters"
      note="The virtual cluster default has what the others leave."
      items={Object.entries(clusters.value).map(([name, share]) => ({ name, ...share }))}
      nameOf={(cluster) => cluster.name}
      isFixed={(cluster) => cluster.name === DEFAULT}
      columns={[
        { label: "Guaranteed", cell: (cluster) => percent(cluster.capacity) },
        { label: "At most", cell: (cluster) => percent(cluster.maxCapacity), isMinor: true },
      ]}
      fields={(cluster) => (
        <>
          <ShareField name="capacity" label="Guaranteed share of the cluster (%)" value={cluster?.capacity ?? 10} />
          <ShareField name="maxCapacity" label="Share with what others leave idle (%)" value={cluster?.maxCapacity ?? 100} />
        </>
      )}
      onSave={(name, form) => {
        const capacity = Number(textOf(form, "capacity"));
        return putShare(name, capacity, Math.max(capacity, Number(textOf(form, "maxCapacity"))));
      }}
      onDelete={deleteShare}
      deletion="No job can be submitted to it any more; its share goes to the virtual cluster default."
      onChange={clusters.reload}
    />
  );
}

function ShareField({ name, label, value }: { name: string; label: string; value: number }) {
  return (
    <label>
      <span>{label}</span>
      <input name={name} type="number" min={0} max={100} step="any" required defaultValue={value} />
    </label>
  );
}

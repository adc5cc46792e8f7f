// Groups and virtual clusters, as administrators see and change them.
import {
  createGroup,
  deleteGroup,
  deleteShare,
  describeGroup,
  listGroups,
  listShares,
  putShare,
} from "../admin_api.ts";
import { EditableTable } from "../components/editable_table.tsx";
import { textOf } from "../components/form_dialog.tsx";
import { ErrorNotice, Loading } from "../components/parts.tsx";
import { usePolled } from "../live.ts";

const REFRESH_MS = 15_000;
const DEFAULT = "default";

export function Groups() {
  const groups = usePolled("groups", listGroups, REFRESH_MS);
  if (groups.error) return <ErrorNotice error={groups.error} />;
  if (!groups.value) return <Loading what="the groups" />;
  return (
    <EditableTable
      what="group"
      label="Groups"
      note="A group lets its users use virtual clusters and storages."
      items={groups.value}
      nameOf={(group) => group.groupname}
      columns={[
        { label: "Description", cell: (group) => group.description, isLong: true },
        {
          label: "Virtual clusters",
          cell: (group) => (group.extension.acls?.virtualClusters ?? []).join(", "),
          isMinor: true,
        },
      ]}
      fields={(group) => (
        <label>
          <span>Description</span>
          <input name="description" defaultValue={group?.description ?? ""} />
        </label>
      )}
      onSave={(name, form, isNew) => (isNew ? createGroup : describeGroup)(name, textOf(form, "description"))}
      onDelete={deleteGroup}
      deletion="Its users lose what they may use through this group."
      onChange={groups.reload}
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
        { label: "At most", cell: (cluster) => percent(cluster.maxCapacity) },
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

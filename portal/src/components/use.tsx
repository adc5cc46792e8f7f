// Used and guaranteed resources of the virtual clusters, as bars.
import type { VirtualCluster } from "../api.ts";
import { memory } from "../format.ts";
import { Bar } from "./parts.tsx";

const whole = (value: number) => value.toLocaleString("en", { maximumFractionDigits: 1 });
const KINDS = [
  { name: "gpu", label: "GPUs", shown: whole },
  { name: "cpu", label: "CPUs", shown: whole },
  { name: "memory", label: "Memory", shown: memory },
] as const;

export function VirtualClusterUse({ clusters }: { clusters: Readonly<Record<string, VirtualCluster>> }) {
  return (
    <div class="use">
      {Object.entries(clusters).map(([name, { resourcesUsed: used, resourcesTotal: total }]) => (
        <div key={name}>
          <strong>{name}</strong>
          {KINDS.filter((kind) => total[kind.name] > 0).map((kind) => (
            <div class="use-line" key={kind.name}>
              <span class="quiet">{kind.label}</span>
              <Bar used={used[kind.name]} total={total[kind.name]} label={`${kind.label} of ${name} in use`} />
              <span>
                {kind.shown(used[kind.name])} of {kind.shown(total[kind.name])}
              </span>
            </div>
          ))}
        </div>
      ))}
    </div>
  );
}

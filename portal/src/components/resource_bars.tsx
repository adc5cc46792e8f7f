// Used and free resources of virtual clusters or nodes, as bars.
import type { ResourceUse } from "../api.ts";
import { memory } from "../format.ts";
import { Bar } from "./bar.tsx";

const whole = (value: number) => value.toLocaleString("en", { maximumFractionDigits: 1 });
const KINDS = [
  { name: "gpu", label: "GPUs", shown: whole },
  { name: "cpu", label: "CPUs", shown: whole },
  { name: "memory", label: "Memory", shown: memory },
] as const;

/** By the name of a virtual cluster or node. */
export function ResourceBars({ uses }: { uses: Readonly<Record<string, ResourceUse>> }) {
  return (
    <div class="use">
      {Object.entries(uses).map(([name, { resourcesUsed: used, resourcesTotal: total }]) => (
        <div key={name}>
          <strong>{name}</strong>
          {KINDS.filter((kind) => total[kind.name] > 0).map((kind) => (
            <div class="use-line" key={kind.name}>
              <span class="quiet">{kind.label}</span>
              <Bar used={used[kind.name]} total={total[kind.name]} label={`${kind.label} of ${name} in use`} />
              <span>
                {kind.shown(used[kind.name])} of {kind.shown(total[kind.name])} used
              </span>
            </div>
          ))}
        </div>
      ))}
    </div>
  );
}

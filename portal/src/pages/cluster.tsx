// Cluster: what virtual clusters and nodes have free, and what was used over time.
import { useEffect } from "preact/hooks";
import { clusterUsage, nodesInUse, usageOverTime, virtualClusters, type ResourceUse } from "../api.ts";
import type { ClusterUsage } from "../api_types.ts";
import { Empty, ErrorNotice, Loading } from "../components/notices.tsx";
import { UsagePlots } from "../components/usage_plots.tsx";
import { ResourceBars } from "../components/resource_bars.tsx";
import { usePolled } from "../live.ts";
import { address, setQuery } from "../router.ts";

const REFRESH_MS = 3000;
const SAMPLES_REFRESH_MS = 5000;
/** Virtual clusters or nodes that half of the page has room for. */
const MANY = 3;

export function ClusterPage() {
  const { value, error } = usePolled(
    "cluster",
    async (signal) => ({ clusters: await virtualClusters(signal), nodes: await nodesInUse(signal) }),
    REFRESH_MS,
  );
  useEffect(() => {
    document.title = "Cluster · OpenPAI";
  }, []);
  return (
    <>
      <div class="head">
        <h1>Cluster</h1>
      </div>
      {error && <ErrorNotice error={error} />}
      {!value && !error && <Loading what="the cluster" />}
      {value && (
        <div class="halves">
          <Uses id="clusters" title="Virtual clusters" uses={value.clusters} />
          <Uses id="nodes" title="Nodes" uses={value.nodes} />
        </div>
      )}
      {value && <OverTime />}
    </>
  );
}

interface UsesProps {
  readonly id: string;
  readonly title: string;
  readonly uses: Readonly<Record<string, ResourceUse>>;
}

/** Bars of each; many have the whole width in several columns, and scroll. */
function Uses({ id, title, uses }: UsesProps) {
  const count = Object.keys(uses).length;
  const isMany = count > MANY;
  return (
    <section class={`card padded${isMany ? " many-uses" : ""}`} aria-labelledby={id}>
      <h2 id={id}>
        {title} {count > 1 && <span class="quiet">{count}</span>}
      </h2>
      <div class="uses" {...(isMany ? { tabIndex: 0, role: "region", "aria-labelledby": id } : {})}>
        <ResourceBars uses={uses} />
      </div>
    </section>
  );
}

function OverTime() {
  const usage = usePolled("usage", (signal) => clusterUsage(signal), SAMPLES_REFRESH_MS);
  if (usage.error) return <ErrorNotice error={usage.error} />;
  const known = usage.value;
  if (!known) return <Loading what="the samples" />;
  return (
    <section class="stack over-time" aria-labelledby="over-time">
      <h2 id="over-time">Use over time</h2>
      {known.nodes.length ? (
        <Chosen known={known} />
      ) : (
        <div class="card">
          <Empty title="No samples yet">
            <p>Nodes and virtual clusters are measured every few seconds, unless the cluster is set not to.</p>
          </Empty>
        </div>
      )}
    </section>
  );
}

function Chosen({ known }: { known: ClusterUsage }) {
  const wanted = address.value.query.get("of") ?? "";
  const choices = [
    ...known.nodes.map((one) => ({ ...one, kind: "nodes" as const, text: `Node ${one.name}` })),
    ...known.virtualClusters.map((one) => ({
      ...one,
      kind: "virtual-clusters" as const,
      text: `Tasks of virtual cluster ${one.name}`,
    })),
  ];
  const chosen = choices.find(({ kind, name }) => `${kind}/${name}` === wanted) ?? choices[0];
  const { kind, name } = chosen ?? { kind: "nodes" as const, name: "" };
  const samples = usePolled(`usage ${kind} ${name}`, (signal) => usageOverTime(kind, name, signal), SAMPLES_REFRESH_MS);
  return (
    <>
      <label class="choice">
        <span>Of</span>
        <select value={`${kind}/${name}`} onChange={({ currentTarget }) => setQuery({ of: currentTarget.value })}>
          {choices.map((choice) => (
            <option key={`${choice.kind}/${choice.name}`} value={`${choice.kind}/${choice.name}`}>
              {choice.text}
            </option>
          ))}
        </select>
      </label>
      {samples.error && <ErrorNotice error={samples.error} />}
      {samples.value && <UsagePlots series={samples.value.series} totals={chosen} />}
    </>
  );
}

// Cluster: what virtual clusters and nodes have free, and what was used over time.
import { useEffect } from "preact/hooks";
import { clusterUsage, nodesInUse, usageOverTime, virtualClusters, type ClusterUsage } from "../api.ts";
import { Empty, ErrorNotice, Loading } from "../components/parts.tsx";
import { UsagePlots } from "../components/usage_plots.tsx";
import { ResourceBars } from "../components/use.tsx";
import { usePolled } from "../live.ts";
import { address, setQuery } from "../router.ts";

const REFRESH_MS = 3000;
const SAMPLES_REFRESH_MS = 5000;

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
          <section class="card padded" aria-labelledby="clusters">
            <h2 id="clusters">Virtual clusters</h2>
            <ResourceBars uses={value.clusters} />
          </section>
          <section class="card padded" aria-labelledby="nodes">
            <h2 id="nodes">Nodes</h2>
            <ResourceBars uses={value.nodes} />
          </section>
        </div>
      )}
      {value && <OverTime />}
    </>
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
  const samples = usePolled(
    `usage ${kind} ${name}`,
    (signal) => usageOverTime(kind, name, signal),
    SAMPLES_REFRESH_MS,
  );
  return (
    <>
      <label class="choice">
        <span>Of</span>
        <select value={`${kind}/${name}`} onChange={({ currentTarget }) => setQuery({ of: currentTarget.value })}>
          {choices.map((one) => (
            <option key={`${one.kind}/${one.name}`} value={`${one.kind}/${one.name}`}>
              {one.text}
            </option>
          ))}
        </select>
      </label>
      {samples.error && <ErrorNotice error={samples.error} />}
      {samples.value && <UsagePlots series={samples.value.series} totals={chosen} />}
    </>
  );
}

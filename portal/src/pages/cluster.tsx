// Cluster: use of the virtual clusters, GPUs of the nodes.
import { useEffect } from "preact/hooks";
import { nodeGpus, virtualClusters } from "../api.ts";
import { Bar, ErrorNotice, Loading } from "../components/parts.tsx";
import { VirtualClusterUse } from "../components/use.tsx";
import { usePolled } from "../live.ts";

const REFRESH_MS = 3000;

export function ClusterPage() {
  const { value, error } = usePolled(
    "cluster",
    async (signal) => ({ clusters: await virtualClusters(signal), nodes: await nodeGpus(signal) }),
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
            <VirtualClusterUse clusters={value.clusters} />
          </section>
          <section class="card padded" aria-labelledby="nodes">
            <h2 id="nodes">Nodes</h2>
            <ul class="rows">
              {Object.entries(value.nodes).map(([name, gpus]) => (
                <li key={name}>
                  <span>{name}</span>
                  <span class="quiet">
                    {gpus.gpuTotal ? `${gpus.gpuUsed} of ${gpus.gpuTotal} GPUs in use` : "no GPUs"}
                  </span>
                  {gpus.gpuTotal > 0 && (
                    <div class="node-bar">
                      <Bar used={gpus.gpuUsed} total={gpus.gpuTotal} label={`GPUs of ${name} in use`} />
                    </div>
                  )}
                </li>
              ))}
            </ul>
          </section>
        </div>
      )}
    </>
  );
}

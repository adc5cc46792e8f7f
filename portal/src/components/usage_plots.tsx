// Plots of what a job, a task, a node or a virtual cluster used over time.
import type { UsageSeries } from "../api.ts";
import { bytes, rate } from "../format.ts";
import { Plot } from "./plot.tsx";

interface Totals {
  readonly cpuTotal: number;
  readonly memoryTotal: number;
  readonly gpuTotal: number;
}

const number = (value: number) => value.toLocaleString("en", { maximumFractionDigits: 2 });
const hasValues = (values: readonly (number | null)[]) => values.some((value) => value !== null);

export function UsagePlots({ series, totals }: { series: UsageSeries; totals?: Totals | undefined }) {
  const { times } = series;
  const cores = totals?.cpuTotal ? { total: number(totals.cpuTotal) } : {};
  const memory = totals?.memoryTotal ? { total: bytes(totals.memoryTotal) } : {};
  const gpus = totals?.gpuTotal ? { total: number(totals.gpuTotal) } : {};
  const plot = { x: times, isTime: true };
  return (
    <div class="plots">
      <Plot {...plot} {...cores} title="CPU, in cores" lines={[{ label: "Cores", values: series.cpu }]} format={number} />
      <Plot {...plot} {...memory} title="Memory" lines={[{ label: "Memory", values: series.memory }]} format={bytes} />
      {hasValues(series.gpu) && (
        <>
          <Plot {...plot} {...gpus} title="Busy GPUs" lines={[{ label: "GPUs", values: series.gpu }]} format={number} />
          <Plot {...plot} title="GPU memory" lines={[{ label: "Memory", values: series.gpuMemory }]} format={bytes} />
        </>
      )}
      <Plot
        {...plot}
        title="Disk"
        lines={[
          { label: "Read", values: series.read },
          { label: "Written", values: series.write },
        ]}
        format={rate}
      />
    </div>
  );
}

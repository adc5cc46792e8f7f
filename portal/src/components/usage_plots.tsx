// Plots of what a job, a task, a node or a virtual cluster used over time.
import type { UsageTotals } from "../api.ts";
import type { UsageSeries } from "../api_types.ts";
import { fileSize, rate } from "../format.ts";
import { Plot } from "./plot.tsx";

/** Of small values the digits that differ: an axis up to 0.01 has marks below it. */
const number = (value: number) =>
  value.toLocaleString("en", Math.abs(value) < 1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: 2 });
const hasValues = (values: readonly (number | null)[]) => values.some((value) => value !== null);

export function UsagePlots({ series, totals }: { series: UsageSeries; totals: UsageTotals | undefined }) {
  const { times: x } = series;
  const total = (of: number | undefined, format: (value: number) => string) => (of ? format(of) : "");
  const cores = total(totals?.cpuTotal, number);
  const memory = total(totals?.memoryTotal, fileSize);
  const gpus = total(totals?.gpuTotal, number);
  return (
    <div class="plots">
      <Plot title="CPU, in cores" x={x} isTime values={series.cpu} format={number} total={cores} />
      <Plot title="Memory" x={x} isTime isBytes values={series.memory} format={fileSize} total={memory} />
      {hasValues(series.gpu) && (
        <>
          <Plot title="Busy GPUs" x={x} isTime values={series.gpu} format={number} total={gpus} />
          <Plot title="GPU memory" x={x} isTime isBytes values={series.gpuMemory} format={fileSize} />
        </>
      )}
      <Plot title="Read from disk" x={x} isTime isBytes values={series.read} format={rate} />
      <Plot title="Written to disk" x={x} isTime isBytes values={series.write} format={rate} />
    </div>
  );
}

// Table of the runs that are compared: one row each, with the box that draws it, its parameters and its metrics.
import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { formatOrder, type Order, type RunColumn } from "../compare/run_table.ts";
import type { Run } from "../compare/runs.ts";
import { State } from "../components/notices.tsx";
import { VirtualRows } from "../components/virtual_rows.tsx";
import { runTime, shortName } from "../format.ts";
import type { Look } from "../plot/colours.ts";
import { significant } from "../plot/curve.ts";
import { jobHref, setQuery } from "../router.ts";

interface RunTableProps {
  readonly rows: readonly Run[];
  readonly columns: readonly RunColumn[];
  readonly order: Order | undefined;
  readonly now: number;
  readonly labels: ReadonlyMap<string, string>;
  readonly drawn: ReadonlySet<string>;
  readonly isAll: boolean;
  readonly isChosen: (run: Run) => boolean;
  readonly lookOf: (run: Run) => Look;
  /** Its look as in the plot. */
  readonly Swatch: (look: Look) => VNode;
  readonly onAll: (isOn: boolean) => void;
  readonly onChoose: (run: Run, isOn: boolean) => void;
}

export function RunTable({ rows, columns, order, now, labels, drawn, isAll, isChosen, lookOf, Swatch, onAll, onChoose }: RunTableProps) {
  const numbers = useMemo(() => new Set(columns.filter((column) => isNumber(column, rows)).map(({ id }) => id)), [columns, rows]);
  const head = (
    <tr>
      <th class="c-draw">
        <input type="checkbox" aria-label="Draw all runs" checked={isAll} onChange={() => onAll(!isAll)} />
      </th>
      {columns.map((column) => (
        <ColumnHead key={column.id} column={column} order={order} isNumber={numbers.has(column.id)} />
      ))}
    </tr>
  );
  return (
    <VirtualRows rows={rows} columns={columns.length + 1} head={head} label="Runs">
      {(run) => (
        <tr key={run.key}>
          <td class="c-draw">
            <input
              type="checkbox"
              aria-label={`Draw ${labels.get(run.key) ?? ""}`}
              checked={isChosen(run)}
              onChange={({ currentTarget }) => onChoose(run, currentTarget.checked)}
            />
            {drawn.has(run.key) && <Swatch {...lookOf(run)} />}
          </td>
          {columns.map((column) => (
            <Cell key={column.id} column={column} run={run} now={now} isNumber={numbers.has(column.id)} />
          ))}
        </tr>
      )}
    </VirtualRows>
  );
}

function isNumber({ kind, valueOf }: RunColumn, rows: readonly Run[]): boolean {
  return kind === "metric" || (kind === "parameter" && rows.every((run) => typeof (valueOf(run, 0) ?? 0) === "number"));
}

function ColumnHead({ column, order, isNumber: isRight }: { column: RunColumn; order: Order | undefined; isNumber: boolean }) {
  const isSorted = order?.column === column.id;
  const label = column.kind === "metric" ? `${shortName(column.name)}${column.label.slice(column.name.length)}` : shortName(column.label);
  // A second click turns the order, a third one ends it.
  const next: Order | undefined = !isSorted
    ? { column: column.id, isDescending: false }
    : order.isDescending
      ? undefined
      : { ...order, isDescending: true };
  return (
    <th
      class={isRight ? "number" : ""}
      title={label === column.label ? undefined : column.label}
      aria-sort={isSorted ? (order.isDescending ? "descending" : "ascending") : undefined}
    >
      <button type="button" onClick={() => setQuery({ order: next && formatOrder(next) })}>
        {label}
        {isSorted && <span aria-hidden="true">{order.isDescending ? " ↓" : " ↑"}</span>}
      </button>
    </th>
  );
}

interface CellProps {
  readonly column: RunColumn;
  readonly run: Run;
  readonly now: number;
  readonly isNumber: boolean;
}

function Cell({ column, run, now, isNumber: isRight }: CellProps) {
  const { framework, job, task, role, index, state } = run;
  switch (column.kind) {
    case "job":
      return (
        <td class="c-value">
          <a href={jobHref(framework)} title={framework}>
            {job}
          </a>
        </td>
      );
    case "task":
      return <td>{index !== null && <a href={jobHref(framework, { tab: "metrics", role, index: String(index) })}>{task}</a>}</td>;
    case "state":
      return (
        <td>
          <State state={state} />
        </td>
      );
    case "cause":
      return (
        <td class="c-cause" title={run.cause}>
          {run.cause}
        </td>
      );
    case "duration":
      return <td>{runTime(run.launchedTime, run.completedTime, now)}</td>;
    case "parameter": {
      const text = run.parameters.get(column.name) ?? "";
      return (
        <td class={`c-value mono${isRight ? " number" : ""}`} title={text}>
          {text}
        </td>
      );
    }
    case "metric": {
      const value = column.valueOf(run, now);
      return (
        <td class="number" title={value === null ? "" : String(value)}>
          {typeof value === "number" ? significant(value) : ""}
        </td>
      );
    }
  }
}

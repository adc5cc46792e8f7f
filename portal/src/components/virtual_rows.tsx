// A table of thousands of rows of one height: only the rows on screen are in the page.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";

const ROW_PX = 41;
/** The table is not higher than this or the window. */
const MIN_SHOWN_PX = 560;
const EXTRA_ROWS = 12;
/** Shorter tables are shown whole. */
const MAX_WHOLE = 100;

interface Props<T> {
  readonly rows: readonly T[];
  readonly columns: number;
  readonly label: string;
  /** A class of the table. */
  readonly kind?: string;
  readonly head: ComponentChildren;
  readonly children: (row: T, index: number) => ComponentChildren;
}

export function VirtualRows<T>({ rows, columns, label, kind = "", head, children }: Props<T>) {
  const top = useSignal(0);
  const isWhole = rows.length <= MAX_WHOLE;
  const count = isWhole ? rows.length : Math.ceil(Math.max(MIN_SHOWN_PX, innerHeight) / ROW_PX) + 2 * EXTRA_ROWS;
  // A filter may leave fewer rows than were scrolled by.
  const first = Math.max(0, Math.min(Math.floor(top.value / ROW_PX) - EXTRA_ROWS, rows.length - count));
  const last = first + count;
  const onScroll = (event: Event) => {
    if (!isWhole) top.value = (event.currentTarget as HTMLElement).scrollTop;
  };
  return (
    <div class={`card virtual ${kind}`} tabIndex={0} role="region" aria-label={label} onScroll={onScroll}>
      <table aria-rowcount={rows.length + 1}>
        <thead>{head}</thead>
        <tbody>
          <Spacer columns={columns} height={first * ROW_PX} />
          {rows.slice(first, last).map((row, at) => children(row, first + at))}
          <Spacer columns={columns} height={(rows.length - last) * ROW_PX} />
        </tbody>
      </table>
    </div>
  );
}

function Spacer({ columns, height }: { columns: number; height: number }) {
  if (!height) return null;
  return (
    <tr aria-hidden="true" style={{ height: `${height}px` }}>
      <td class="spacer" colSpan={columns} />
    </tr>
  );
}

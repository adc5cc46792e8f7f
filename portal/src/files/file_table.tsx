// Table of a folder's entries, of which there may be thousands.
import { useMemo } from "preact/hooks";
import { Icon } from "../components/icons.tsx";
import { VirtualRows } from "../components/virtual_rows.tsx";
import { exactTime, fileSize, shortTime } from "../format.ts";
import { orderText, arranged, type Order, type OrderField } from "./listing.ts";
import type { Entry } from "./storage.ts";

const COLUMNS: readonly { readonly field: OrderField; readonly label: string; readonly isNumber?: boolean }[] = [
  { field: "name", label: "Name" },
  { field: "size", label: "Size", isNumber: true },
  { field: "modified", label: "Modified" },
];

interface Selection {
  readonly names: ReadonlySet<string>;
  readonly onChange: (names: ReadonlySet<string>) => void;
}

interface Props {
  readonly entries: readonly Entry[];
  readonly filter?: string;
  readonly order: Order;
  readonly onOrder: (order: string | undefined) => void;
  /** Address of an entry's page. */
  readonly linkOf: (entry: Entry) => string;
  readonly onDownload: (entry: Entry) => void;
  /** Whether folders can be downloaded, as tar files. */
  readonly hasArchives?: boolean;
  readonly selection?: Selection;
}

export function FileTable(props: Props) {
  const { entries, filter = "", order, onOrder, linkOf, onDownload, hasArchives = true, selection } = props;
  const { field, isDescending } = order;
  const rows = useMemo(() => arranged(entries, filter, { field, isDescending }), [entries, filter, field, isDescending]);
  const now = Date.now();
  const head = (
    <tr>
      {selection && (
        <th class="c-select">
          <input
            type="checkbox"
            aria-label="Select all entries"
            checked={rows.length > 0 && rows.every((row) => selection.names.has(row.name))}
            onChange={(event) => selection.onChange(new Set(event.currentTarget.checked ? rows.map((row) => row.name) : []))}
          />
        </th>
      )}
      {COLUMNS.map((column) => (
        <Head key={column.field} column={column} order={order} onOrder={onOrder} />
      ))}
      <th class="c-owner">Owner</th>
      <th class="c-actions">
        <span class="sr">Actions</span>
      </th>
    </tr>
  );
  return (
    <div class="files">
      <VirtualRows rows={rows} columns={selection ? 6 : 5} head={head} label="Entries of the folder">
        {(entry) => (
          <Row
            key={entry.name}
            entry={entry}
            now={now}
            link={linkOf(entry)}
            onDownload={entry.isFolder && !hasArchives ? undefined : onDownload}
            {...(selection ? { selection } : {})}
          />
        )}
      </VirtualRows>
      {rows.length === 0 && <p class="quiet none">No name contains this text.</p>}
    </div>
  );
}

function Head({ column, order, onOrder }: { column: (typeof COLUMNS)[number] } & Pick<Props, "order" | "onOrder">) {
  const isSorted = order.field === column.field;
  // The first click sorts names from A, and shows the largest and the newest first.
  const isDescending = isSorted ? !order.isDescending : column.field !== "name";
  return (
    <th
      class={`c-${column.field}${column.isNumber ? " number" : ""}`}
      aria-sort={isSorted ? (order.isDescending ? "descending" : "ascending") : undefined}
    >
      <button type="button" onClick={() => onOrder(orderText({ field: column.field, isDescending }))}>
        {column.label}
        {isSorted && <span aria-hidden="true">{order.isDescending ? " ↓" : " ↑"}</span>}
      </button>
    </th>
  );
}

interface RowProps {
  readonly entry: Entry;
  readonly now: number;
  readonly link: string;
  readonly onDownload: ((entry: Entry) => void) | undefined;
  readonly selection?: Selection;
}

function Row({ entry, now, link, onDownload, selection }: RowProps) {
  const select = (isOn: boolean) => {
    const names = new Set(selection?.names);
    if (isOn) names.add(entry.name);
    else names.delete(entry.name);
    selection?.onChange(names);
  };
  return (
    <tr>
      {selection && (
        <td class="c-select">
          <input
            type="checkbox"
            aria-label={`Select ${entry.name}`}
            checked={selection.names.has(entry.name)}
            onChange={(event) => select(event.currentTarget.checked)}
          />
        </td>
      )}
      <td class="c-name">
        <a href={link} title={entry.name}>
          <Icon name={entry.isFolder ? "folder" : "file"} />
          <span>{entry.name}</span>
        </a>
      </td>
      <td class="c-size number">{entry.isFolder ? "" : fileSize(entry.size)}</td>
      <td class="c-modified" title={entry.modified > 0 ? exactTime(entry.modified) : undefined}>
        {entry.modified > 0 && shortTime(entry.modified, now)}
      </td>
      <td class="c-owner">{entry.owner}</td>
      <td class="c-actions">
        {onDownload && (
          <button
            class="link"
            type="button"
            aria-label={`Download ${entry.name}`}
            title={entry.isFolder ? "As one tar file" : undefined}
            onClick={() => onDownload(entry)}
          >
            <Icon name="download" />
            <span class="word">Download</span>
          </button>
        )}
      </td>
    </tr>
  );
}

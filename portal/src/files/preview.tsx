// Preview of a file: text, images, tables and notebooks. What is in the file is text or a picture, never markup.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { ApiError } from "../api.ts";
import { Empty, ErrorNotice, Loading } from "../components/notices.tsx";
import { VirtualRows } from "../components/virtual_rows.tsx";
import { counted, fileSize } from "../format.ts";
import { address, setQuery } from "../router.ts";
import { parseTable } from "./csv.ts";
import { HighlightedCode } from "./highlighted_code.tsx";
import type { Block } from "./markdown.ts";
import { MarkdownView } from "./markdown_view.tsx";
import { parseNotebook, type Cell } from "./notebook.ts";
import { endingOf } from "./paths.ts";
import { shownCells, shownText } from "./shown_part.ts";
import { isDrawable } from "./svg.ts";
import type { Entry, StorageReader } from "./storage.ts";
import { decodeText } from "./text.ts";

/** Of a text or table, this much is loaded. */
const MAX_TEXT_BYTES = 1 << 20;
/** An image or a notebook can only be shown whole. */
const MAX_WHOLE_BYTES = 20 << 20;
const MAX_ROWS = 10_000;
/** A longer row would take the page seconds; files for programs have such. */
const MAX_COLUMNS = 200;

const IMAGE_TYPES: Readonly<Record<string, string>> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  bmp: "image/bmp",
  // In an image element an SVG runs no script and loads nothing.
  svg: "image/svg+xml",
};

type Kind = "image" | "notebook" | "table" | "markdown" | "text";

function kindOf(name: string): Kind {
  const ending = endingOf(name);
  if (ending in IMAGE_TYPES) return "image";
  if (ending === "ipynb") return "notebook";
  if (ending === "md" || ending === "markdown") return "markdown";
  return ending === "csv" || ending === "tsv" ? "table" : "text";
}

interface PreviewProps {
  readonly reader: StorageReader;
  readonly path: string;
  readonly name: string;
  readonly entry: Entry;
}

export function Preview({ reader, path, name, entry }: PreviewProps) {
  const kind = kindOf(name);
  const isWhole = kind === "image" || kind === "notebook";
  const isTooLarge = isWhole && entry.size > MAX_WHOLE_BYTES;
  const content = useContent(reader, path, isTooLarge ? 0 : isWhole ? MAX_WHOLE_BYTES : MAX_TEXT_BYTES, entry);
  if (entry.size === 0)
    return (
      <div class="card">
        <Empty title="The file is empty" />
      </div>
    );
  if (isTooLarge) return <NoPreview text={`It has ${fileSize(entry.size)}, and is shown up to ${fileSize(MAX_WHOLE_BYTES)}.`} />;
  if (content.error) return <ErrorNotice error={content.error} />;
  if (!content.bytes) return <Loading what="the file" />;
  const isComplete = content.bytes.length >= entry.size;
  if (kind === "image" && endingOf(name) === "svg") return <VectorPicture bytes={content.bytes} name={name} />;
  if (kind === "image") return <Picture bytes={content.bytes} type={IMAGE_TYPES[endingOf(name)] ?? ""} name={name} />;
  return <Text bytes={content.bytes} kind={kind} ending={endingOf(name)} isComplete={isComplete} size={entry.size} />;
}

/** The first bytes of a file, read again when it has changed. */
function useContent(reader: StorageReader, path: string, length: number, entry: Entry) {
  const state = useSignal<{ bytes?: Uint8Array; error?: ApiError }>({});
  useEffect(() => {
    if (!length || !entry.size) return;
    const abort = new AbortController();
    reader.readStart(path, length, abort.signal).then(
      (bytes) => (state.value = { bytes }),
      (error: unknown) => {
        if (abort.signal.aborted) return;
        if (!(error instanceof ApiError)) throw error;
        state.value = { error };
      },
    );
    return () => abort.abort();
    // oxlint-disable-next-line react/exhaustive-deps -- a reader is a new object in each render: with it, each render would read the file
  }, [path, length, entry.size, entry.modified, state]);
  return state.value;
}

function NoPreview({ text, children }: { text: string; children?: ComponentChildren }) {
  return (
    <div class="card">
      <Empty title="No preview of this file">
        <p>{text} Download it to open it with a program.</p>
        {children}
      </Empty>
    </div>
  );
}

function VectorPicture({ bytes, name }: { bytes: Uint8Array; name: string }) {
  const isWanted = useSignal(false);
  const isHarmless = useMemo(() => {
    const text = decodeText(bytes, true);
    return text !== null && isDrawable(text);
  }, [bytes]);
  if (isHarmless || isWanted.value) return <Picture bytes={bytes} type={IMAGE_TYPES["svg"] ?? ""} name={name} />;
  return (
    <NoPreview text="To draw this picture could take a browser very long.">
      <button class="button" type="button" onClick={() => (isWanted.value = true)}>
        Draw it
      </button>
    </NoPreview>
  );
}

function Picture({ bytes, type, name }: { bytes: Uint8Array; type: string; name: string }) {
  const source = useSignal("");
  const size = useSignal("");
  const isBroken = useSignal(false);
  useEffect(() => {
    const reader = new FileReader();
    reader.onload = () => (source.value = String(reader.result));
    reader.readAsDataURL(new Blob([bytes as Uint8Array<ArrayBuffer>], { type }));
    return () => reader.abort();
  }, [bytes, type, source]);
  if (isBroken.value) return <NoPreview text="The browser cannot read it as an image." />;
  if (!source.value) return <Loading what="the image" />;
  return (
    <figure class="card picture">
      <img
        src={source.value}
        alt={name}
        onError={() => (isBroken.value = true)}
        onLoad={({ currentTarget: image }) => (size.value = `${image.naturalWidth} × ${image.naturalHeight} pixels`)}
      />
      <figcaption class="quiet">{size.value}</figcaption>
    </figure>
  );
}

interface TextProps {
  readonly bytes: Uint8Array;
  readonly kind: Kind;
  readonly ending: string;
  readonly isComplete: boolean;
  readonly size: number;
}

function Text({ bytes, kind, ending, isComplete, size }: TextProps) {
  const text = useMemo(() => decodeText(bytes, isComplete), [bytes, isComplete]);
  const cells = useMemo(() => (kind === "notebook" && text !== null ? parseNotebook(text) : null), [text, kind]);
  if (text === null) return <NoPreview text="It is not a text." />;
  if (cells) return <Notebook cells={cells} />;
  if (kind === "table") return <TableView text={text} isComplete={isComplete} />;
  const rest = isComplete ? "" : `The first ${fileSize(bytes.length)} of ${fileSize(size)}.`;
  if (kind === "markdown") return <Markdown text={text} rest={rest} />;
  return <Lines text={text} ending={ending} rest={rest} />;
}

/** As elements, or as it was written; the address has which. */
function Markdown({ text, rest }: { text: string; rest: string }) {
  const blocks = useSignal<{ readonly of: string; readonly found: readonly Block[] | null } | null>(null);
  const isSource = address.value.query.get("view") === "source";
  useEffect(() => {
    void import("./markdown.ts").then(({ parseMarkdown }) => (blocks.value = { of: text, found: parseMarkdown(text) }));
  }, [text, blocks]);
  if (blocks.value?.of !== text) return <Loading what="the file" />;
  const { found } = blocks.value;
  if (!found) return <Lines text={text} ending="" rest={rest} />;
  const show = (view: string | undefined) => () => setQuery({ view });
  return (
    <>
      <div class="markdown-tools" role="group" aria-label="View of the file">
        <button class="button" type="button" aria-pressed={!isSource} onClick={show(undefined)}>
          Formatted
        </button>
        <button class="button" type="button" aria-pressed={isSource} onClick={show("source")}>
          Source
        </button>
      </div>
      {isSource ? (
        <Lines text={text} ending="" rest={rest} />
      ) : (
        <div class="card padded">
          <MarkdownView blocks={found} />
        </div>
      )}
      {!isSource && rest && <Cut text={rest} />}
    </>
  );
}

/** `rest`: what is said where this is not all of the file. */
function Lines({ text, ending, rest }: { text: string; ending: string; rest: string }) {
  const shown = useMemo(() => shownText(text), [text]);
  const isCut = shown.isCut ? "Only the first lines." : rest;
  return (
    <>
      <pre class="card config" tabIndex={0} aria-label="Content of the file">
        <HighlightedCode text={shown.text} ending={ending} />
      </pre>
      {isCut && <Cut text={isCut} />}
    </>
  );
}

function Cut({ text }: { text: string }) {
  return <p class="quiet cut">{text} Download the file for the rest.</p>;
}

function TableView({ text, isComplete }: { text: string; isComplete: boolean }) {
  const table = useMemo(() => parseTable(text, isComplete, MAX_ROWS), [text, isComplete]);
  const columns = table.head.slice(0, MAX_COLUMNS);
  const head = (
    <tr>
      <th class="number">
        <span class="sr">Row</span>
      </th>
      {columns.map((value, at) => (
        <th key={at}>{value || `Column ${at + 1}`}</th>
      ))}
    </tr>
  );
  return (
    <>
      <div class="csv">
        <VirtualRows rows={table.rows} columns={columns.length + 1} head={head} label="Rows of the file">
          {(row, number) => (
            <tr key={number}>
              <td class="number quiet">{number + 1}</td>
              {columns.map((_, at) => (
                <td key={at} title={row[at]}>
                  {row[at]}
                </td>
              ))}
            </tr>
          )}
        </VirtualRows>
      </div>
      {table.isCut && <Cut text={`The first ${counted(table.rows.length, "row")}.`} />}
      {columns.length < table.head.length && <Cut text={`The first ${counted(columns.length, "column")} of ${table.head.length}.`} />}
    </>
  );
}

/** Markdown of the cells, once it is read; a cell without is shown as it was written. */
function useCellTexts(cells: readonly Cell[]): ReadonlyMap<Cell, readonly Block[] | null> | null {
  const texts = useSignal<{ readonly of: readonly Cell[]; readonly found: ReadonlyMap<Cell, readonly Block[] | null> } | null>(null);
  const written = useMemo(() => cells.filter(({ kind }) => kind === "markdown"), [cells]);
  useEffect(() => {
    void import("./markdown.ts").then(({ parseMarkdowns }) => {
      const blocks = parseMarkdowns(written.map(({ source }) => source));
      texts.value = { of: written, found: new Map(written.map((cell, at) => [cell, blocks[at] ?? null])) };
    });
  }, [written, texts]);
  return texts.value?.of === written ? texts.value.found : null;
}

function CellText({ source, blocks }: { source: string; blocks: readonly Block[] | null }) {
  return blocks ? <MarkdownView blocks={blocks} /> : <pre tabIndex={0}>{source}</pre>;
}

function Notebook({ cells }: { cells: readonly Cell[] }) {
  const shown = useMemo(() => shownCells(cells), [cells]);
  const texts = useCellTexts(shown.cells);
  if (!cells.length)
    return (
      <div class="card">
        <Empty title="The notebook has no cells" />
      </div>
    );
  if (!texts) return <Loading what="the notebook" />;
  return (
    <div class="notebook">
      {shown.cells.map((cell, at) => (
        <section key={at} class={`card cell${cell.kind === "code" ? " code" : ""}`} aria-label={`Cell ${at + 1}`}>
          {cell.kind === "code" && <span class="quiet mono prompt">[{cell.count ?? " "}]</span>}
          <CellText source={cell.source} blocks={texts.get(cell) ?? null} />
          {cell.outputs.map((output, number) =>
            output.kind === "image" ? (
              <img key={number} src={output.address} alt={`Output of cell ${at + 1}`} />
            ) : (
              <pre key={number} class={output.isError ? "output error" : "output"} tabIndex={0}>
                {output.text}
              </pre>
            ),
          )}
        </section>
      ))}
      {shown.isCut && <Cut text="Only the beginning of the notebook." />}
    </div>
  );
}

// Text of a log in an element: blocks of lines, of which the browser lays out only the visible ones.
// Everything is set as text nodes, so output of a job is never markup; what has a colour is in an element with a class.
import { cleanText } from "../escape_sequences.ts";
import { KnownTimes, timeColumn, type ShownRange, type TimePair } from "./log_times.ts";
import { LogStyle } from "../log_style.ts";

const BLOCK_BYTES = 32 << 10;
/** Bytes that stay in the page; beyond it the oldest blocks are dropped, and can be loaded again. */
const MAX_BYTES = 16 << 20;
const MAX_HITS = 5000;
/** A longer line is broken: it would be decoded again with every part of it that arrives. */
const MAX_LINE_BYTES = 1 << 20;
const LINE_PX = 20;
/** Between the numbers and the text. */
const NUMBER_GAP_PX = 8;
const NEWLINE = 10;

interface Block {
  /** Logical offsets in the log. */
  readonly start: number;
  end: number;
  /** Line ends in it. */
  lines: number;
  /** Offsets at which its lines begin. */
  readonly starts: number[];
  /** Whether the times beside it are those of its lines. */
  isTimed: boolean;
  /** Line numbers beside it, as "FIRST COUNT". */
  numbered: string;
  readonly element: HTMLElement;
}

/** A text of which each part is a text node. */
interface SearchedText {
  readonly text: string;
  readonly nodes: readonly Text[];
}

export class LogText {
  private blocks: Block[] = [];
  private pending = new Uint8Array();
  private pendingStart = 0;
  /** Whether the last block is left as it is. */
  private hasFullBlock = false;
  /** Of the text at the end; a part that is shown instead, or before, begins without one. */
  private style = new LogStyle();
  /** Number of the first line that is shown; null where the log's beginning was not read. */
  private firstLine: number | null = null;
  private readonly tailElement = document.createElement("div");
  private readonly tail = document.createTextNode("");
  private readonly decoder = new TextDecoder();
  private readonly body = document.createElement("div");
  private times = new KnownTimes();
  private hasDays = false;
  /** Counts the texts that were shown instead of another one. */
  private generation = 0;
  /** Called when there is more, or other, text. */
  onChange: () => void = () => {};

  constructor(private readonly element: HTMLElement) {
    this.tailElement.className = "tail";
    this.tailElement.append(this.tail);
    element.replaceChildren(this.body, this.tailElement);
  }

  /** Whether this line is among those that are shown. */
  hasLine(line: number): boolean {
    return this.firstLine !== null && line >= this.firstLine && line < this.nextLine(this.firstLine) + Number(this.pending.length > 0);
  }

  /** The text of a line; null if it is not shown. */
  rangeOfLine(line: number): Range | null {
    if (!this.hasLine(line)) return null;
    let first = this.firstLine ?? 1;
    const block = this.blocks.find(({ lines }) => {
      if (line < first + lines) return true;
      first += lines;
      return false;
    });
    const { text, nodes } = block ? searchedText(block.element) : { text: this.tail.data, nodes: [this.tail] };
    let start = 0;
    for (let before = line - first; before > 0; before -= 1) start = text.indexOf("\n", start) + 1;
    const end = text.indexOf("\n", start);
    const place = placesIn(nodes);
    const range = new Range();
    range.setStart(...place(start, false));
    range.setEnd(...place(end < 0 ? text.length : end, true));
    return range;
  }

  get isEmpty(): boolean {
    return this.blocks.length === 0 && this.pending.length === 0;
  }

  /** Offset of the first byte that is shown. */
  get start(): number {
    return this.blocks[0]?.start ?? this.pendingStart;
  }

  /** Offset after the last byte that is shown. */
  get end(): number {
    return this.pendingStart + this.pending.length;
  }

  /** Show a part of the log instead. At `line`, where a line begins, a block begins. */
  show(bytes: Uint8Array, offset: number, line: number): void {
    this.clear();
    this.prepend(bytes.subarray(0, line - offset), offset);
    this.hasFullBlock = true;
    this.append(bytes.subarray(line - offset), line);
  }

  /** Index of the first of these ranges that is at or after an offset where a block begins; -1 if none is. */
  firstFrom(offset: number, ranges: readonly Range[]): number {
    const after = new Set<Element>(this.blocks.filter((block) => block.start >= offset).map((block) => block.element));
    return ranges.findIndex(({ startContainer }) => {
      const block = startContainer.parentElement?.closest(".block");
      return startContainer === this.tail || (block !== null && block !== undefined && after.has(block));
    });
  }

  scrollTo(offset: number): void {
    this.blocks.find((block) => block.start >= offset)?.element.scrollIntoView({ block: "start" });
  }

  clear(): void {
    this.blocks = [];
    this.times = new KnownTimes();
    this.hasDays = false;
    this.generation += 1;
    this.firstLine = null;
    this.style = new LogStyle();
    this.pending = new Uint8Array();
    this.pendingStart = 0;
    this.tail.data = "";
    this.body.replaceChildren();
  }

  /** Add output at the end; `offset` is the place of its first byte. */
  append(bytes: Uint8Array, offset: number): void {
    if (this.isEmpty) this.firstLine = offset === 0 ? 1 : null;
    const all = new Uint8Array(this.pending.length + bytes.length);
    all.set(this.pending);
    all.set(bytes, this.pending.length);
    const start = offset - this.pending.length;
    const lines = all.lastIndexOf(NEWLINE) + 1 || (all.length > MAX_LINE_BYTES ? all.length : 0);
    for (const [from, to] of pieces(all, lines)) this.addLines(all.subarray(from, to), start + from);
    this.pending = all.slice(lines);
    this.pendingStart = start + lines;
    this.tail.data = cleanText(this.decoder.decode(this.pending));
    while (this.blocks.length > 1 && this.end - this.start > MAX_BYTES) {
      const dropped = this.blocks.shift();
      dropped?.element.remove();
      if (this.firstLine !== null) this.firstLine += dropped?.lines ?? 0;
      this.times.dropBefore(this.start);
    }
    this.number();
  }

  /** Add output before what is shown; what is left of a line at its beginning is left out. */
  prepend(bytes: Uint8Array, offset: number): void {
    const first = offset === 0 ? 0 : bytes.indexOf(NEWLINE) + 1;
    const rest = bytes.subarray(first);
    const before = this.element.scrollHeight - this.element.scrollTop;
    const style = new LogStyle();
    const added = pieces(rest, rest.length).map(([from, to]) => this.block(rest.subarray(from, to), offset + first + from, style));
    if (offset === 0) this.firstLine = 1;
    else if (this.firstLine !== null) this.firstLine -= added.reduce((sum, { lines }) => sum + lines, 0);
    this.blocks.unshift(...added);
    this.number();
    this.body.prepend(...added.map((block) => block.element));
    this.element.scrollTop = this.element.scrollHeight - before;
  }

  /** A part of what is shown whose times were not added yet; null if there is none. */
  untimed(): ShownRange | null {
    const range = this.times.missing(this.start, this.end);
    return range && { ...range, generation: this.generation };
  }

  /**
   * Put times beside the lines of a part that `untimed` has returned. Those of another part are not: it returns false, as after
   * `clear`, because the log of the next attempt has the same offsets.
   */
  addTimes(range: ShownRange, times: readonly TimePair[]): boolean {
    const now = this.untimed();
    if (now?.generation !== range.generation || now.start !== range.start || now.end < range.end) return false;
    this.times.add(range, times);
    const { hasDays } = this.times;
    for (const block of this.blocks) {
      if (hasDays !== this.hasDays || block.end > range.start) block.isTimed = false;
    }
    this.hasDays = hasDays;
    this.element.style.setProperty("--time-width", `${hasDays ? 14 : 8}ch`);
    this.element.classList.toggle("known-times", this.times.count > 0);
    this.stamp();
    return true;
  }

  /** A line of ours between two parts of the log. */
  note(text: string): void {
    this.clear();
    const element = document.createElement("div");
    element.className = "note";
    element.textContent = text;
    this.body.append(element);
  }

  /** Ranges of all places with this text, in upper or lower case; at most `MAX_HITS`. */
  find(wanted: string): Range[] {
    const needle = wanted.toLowerCase();
    const ranges: Range[] = [];
    for (const { text, nodes } of needle ? this.texts() : []) {
      const lower = text.toLowerCase();
      // Rare letters change their length in lower case; then places would be wrong.
      if (lower.length !== text.length) continue;
      const place = placesIn(nodes);
      for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, at + needle.length)) {
        if (ranges.length >= MAX_HITS) return ranges;
        const range = new Range();
        range.setStart(...place(at, false));
        range.setEnd(...place(at + needle.length, true));
        ranges.push(range);
      }
    }
    return ranges;
  }

  private nextLine(first: number): number {
    return this.blocks.reduce((line, { lines }) => line + lines, first);
  }

  /** Put the line numbers beside the text: as attributes, so that they are neither found nor copied. */
  private number(): void {
    let line = this.firstLine;
    for (const block of this.blocks) {
      const numbered = line === null ? "" : `${line} ${block.lines}`;
      if (block.numbered !== numbered) setNumbers(block.element, line, block.lines);
      block.numbered = numbered;
      if (line !== null) line += block.lines;
    }
    setNumbers(this.tailElement, line, this.pending.length ? 1 : 0);
    this.element.classList.toggle("known-lines", line !== null);
    this.stamp();
    this.onChange();
  }

  /** Put the times beside the text, as the line numbers. */
  private stamp(): void {
    const { end } = this.times;
    if (end === null) return;
    for (const block of this.blocks) {
      if (block.isTimed) continue;
      setTimes(block.element, timeColumn(this.times.of(block.starts), this.hasDays));
      block.isTimed = block.end <= end;
    }
    const tail = this.pending.length ? [this.pendingStart] : [];
    setTimes(this.tailElement, timeColumn(this.times.of(tail), this.hasDays));
  }

  private texts(): SearchedText[] {
    const blocks = this.blocks.map(({ element }) => searchedText(element));
    return [...blocks, { text: this.tail.data, nodes: [this.tail] }];
  }

  private addLines(bytes: Uint8Array, start: number): void {
    const last = this.blocks.at(-1);
    if (last && !this.hasFullBlock && last.end === start && last.end - last.start + bytes.length <= BLOCK_BYTES) {
      this.write(last, bytes, last.end, this.style);
      last.end += bytes.length;
      last.isTimed = false;
      return;
    }
    const block = this.block(bytes, start, this.style);
    this.hasFullBlock = false;
    this.blocks.push(block);
    this.body.append(block.element);
  }

  private block(bytes: Uint8Array, start: number, style: LogStyle): Block {
    const element = document.createElement("div");
    element.className = "block";
    const block = { start, end: start + bytes.length, lines: 0, starts: [], isTimed: false, numbered: "", element };
    this.write(block, bytes, start, style);
    return block;
  }

  /** Add text at the end of a block, and estimate its height. `offset` is that of its first byte. */
  private write(block: Block, bytes: Uint8Array, offset: number, style: LogStyle): void {
    for (let at = 0; at < bytes.length; at = bytes.indexOf(NEWLINE, at) + 1 || bytes.length) block.starts.push(offset + at);
    for (const { text, style: classes } of style.pieces(this.decoder.decode(bytes))) {
      const last = block.element.lastChild;
      if (!classes && last instanceof Text) last.appendData(text);
      else if (!classes) block.element.append(text);
      else if (last instanceof HTMLElement && last.className === classes) (last.firstChild as Text).appendData(text);
      else {
        const span = document.createElement("span");
        span.className = classes;
        span.append(text);
        block.element.append(span);
      }
      for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) block.lines += 1;
    }
    block.element.style.setProperty("contain-intrinsic-size", `auto ${block.lines * LINE_PX}px`);
  }
}

function setNumbers(element: HTMLElement, first: number | null, count: number): void {
  if (first === null || !count) {
    delete element.dataset["numbers"];
    return;
  }
  element.dataset["first"] = String(first);
  element.dataset["numbers"] = Array.from({ length: count }, (_, at) => first + at).join("\n");
}

function setTimes(element: HTMLElement, times: readonly string[]): void {
  if (times.some(Boolean)) element.dataset["times"] = times.join("\n");
  else delete element.dataset["times"];
}

/** The line whose number is at this place of the window; undefined beside the numbers. */
export function lineAt(target: Element, x: number, y: number): number | undefined {
  const block = target.closest<HTMLElement>("[data-numbers]");
  if (!block) return undefined;
  const { left, top } = block.getBoundingClientRect();
  if (x - left > Number.parseFloat(getComputedStyle(block).paddingLeft) - NUMBER_GAP_PX) return undefined;
  return Number(block.dataset["first"]) + Math.floor((y - top) / LINE_PX);
}

function searchedText(element: Element): SearchedText {
  return { text: element.textContent ?? "", nodes: textNodes(element) };
}

function textNodes(element: Element): Text[] {
  const nodes: Text[] = [];
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) nodes.push(walker.currentNode as Text);
  return nodes;
}

/** Finds the node of a place in the text of several, for places in ascending order; an end belongs to the node before it. */
function placesIn(nodes: readonly Text[]): (place: number, isEnd: boolean) => [Text, number] {
  let [at, start] = [0, 0];
  return (place, isEnd) => {
    for (;;) {
      const node = nodes[at] as Text;
      const offset = place - start;
      if (offset < node.length || (isEnd && offset === node.length) || at === nodes.length - 1) return [node, offset];
      start += node.length;
      at += 1;
    }
  };
}

/** Parts of whole lines, each of about the size of a block. */
function pieces(bytes: Uint8Array, length: number): [number, number][] {
  const parts: [number, number][] = [];
  let from = 0;
  while (from < length) {
    const line = bytes.indexOf(NEWLINE, Math.min(from + BLOCK_BYTES, length) - 1);
    const to = line < 0 || line >= length ? length : line + 1;
    parts.push([from, to]);
    from = to;
  }
  return parts;
}

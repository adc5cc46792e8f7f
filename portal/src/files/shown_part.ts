// How much of a file a page shows: what it cannot lay out in a moment is left out.
import type { Cell } from "./notebook.ts";

/** A million of them take a browser half a minute. */
const MAX_LINES = 20_000;
const MAX_CHARACTERS = 4 << 20;
/** Cells and outputs of a notebook. */
const MAX_BLOCKS = 1000;

/** What is left to show. */
class Budget {
  lines = MAX_LINES;
  characters = MAX_CHARACTERS;
  blocks = MAX_BLOCKS;
  isCut = false;

  /** The beginning of a text, of which this is shown. */
  take(text: string): string {
    let end = 0;
    while (this.lines > 0 && end < text.length) {
      end = text.indexOf("\n", end) + 1 || text.length;
      this.lines -= 1;
    }
    end = Math.min(end, this.characters);
    this.characters -= end;
    if (end < text.length) this.isCut = true;
    return text.slice(0, end);
  }

  /** Whether one more cell or output is shown. */
  takeBlock(): boolean {
    this.isCut ||= this.blocks === 0;
    this.blocks = Math.max(0, this.blocks - 1);
    return !this.isCut;
  }
}

/** The first lines of a text; `isCut`: there are more. */
export function shownText(text: string): { readonly text: string; readonly isCut: boolean } {
  const budget = new Budget();
  return { text: budget.take(text), isCut: budget.isCut };
}

/** The first cells of a notebook; `isCut`: there is more. */
export function shownCells(cells: readonly Cell[]): { readonly cells: readonly Cell[]; readonly isCut: boolean } {
  const budget = new Budget();
  const shown: Cell[] = [];
  for (const cell of cells) {
    if (!budget.takeBlock()) break;
    const source = budget.take(cell.source);
    const outputs = [];
    for (const output of cell.outputs) {
      if (!budget.takeBlock()) break;
      outputs.push(output.kind === "text" ? { ...output, text: budget.take(output.text) } : output);
    }
    shown.push({ ...cell, source, outputs });
  }
  return { cells: shown, isCut: budget.isCut };
}

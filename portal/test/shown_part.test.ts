import assert from "node:assert/strict";
import { test } from "node:test";
import { parseNotebook } from "../src/files/notebook.ts";
import { shownCells, shownText } from "../src/files/shown_part.ts";

test("a text of few lines is shown whole", () => {
  for (const text of ["", "a", "a\n", "a\nb", "\n".repeat(20_000)]) {
    assert.deepEqual(shownText(text), { text, isCut: false });
  }
});

test("of a text of many lines or of a long one the beginning is shown", () => {
  assert.deepEqual(shownText("a\n".repeat(1_000_000)), { text: "a\n".repeat(20_000), isCut: true });
  const long = shownText("a".repeat(5 << 20));
  assert.deepEqual([long.text.length, long.isCut], [4 << 20, true]);
});

const notebook = (...cells: unknown[]) => shownCells(parseNotebook(JSON.stringify({ cells })) ?? []);

test("a usual notebook is shown whole", () => {
  const outputs = [{ text: "one\n" }, { data: { "image/png": "iVBO" } }];
  const { cells, isCut } = notebook({ cell_type: "code", source: "a", outputs }, { source: "b" });
  assert.deepEqual(
    [cells.map((cell) => [cell.source, cell.outputs.length]), isCut],
    [
      [
        ["a", 2],
        ["b", 0],
      ],
      false,
    ],
  );
});

test("of a notebook with many cells, outputs or lines the beginning is shown", () => {
  const many = Array.from({ length: 30_000 }, () => ({ text: "x\n" }));
  const cells = notebook(...many);
  assert.deepEqual([cells.cells.length, cells.isCut], [1000, true]);
  const outputs = notebook({ source: "", outputs: many }, { source: "next" });
  assert.deepEqual([outputs.cells.length, outputs.cells[0]?.outputs.length, outputs.isCut], [1, 999, true]);
  const lines = notebook({ source: "", outputs: [{ text: "x\n".repeat(30_000) }, { text: "y" }] });
  assert.deepEqual([lines.cells[0]?.outputs.length, lines.isCut], [1, true]);
});

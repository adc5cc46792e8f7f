import assert from "node:assert/strict";
import { test } from "node:test";
import { parseNotebook } from "../src/files/notebook.ts";

const parse = (...cells: unknown[]) => parseNotebook(JSON.stringify({ cells }));

test("cells have their text and outputs", () => {
  const outputs = [
    { output_type: "stream", name: "stdout", text: ["one\n", "two\n"] },
    { output_type: "display_data", data: { "image/png": "iVBO\nRw0=", "text/plain": "<Figure>" } },
    { output_type: "error", traceback: ["\u001b[31mError\u001b[0m", "line 2"] },
  ];
  const cells = parse({ cell_type: "code", execution_count: 3, source: ["a = 1\n", "a"], outputs });
  assert.deepEqual(cells, [
    {
      kind: "code",
      count: 3,
      source: "a = 1\na",
      outputs: [
        { kind: "text", text: "one\ntwo\n", isError: false },
        { kind: "image", address: "data:image/png;base64,iVBORw0=" },
        { kind: "text", text: "Error\nline 2", isError: true },
      ],
    },
  ]);
});

test("HTML is shown as its source, and only if there is no text", () => {
  const html = { data: { "text/html": "<script>x()</script>" } };
  const both = { data: { "text/html": "<b>1</b>", "text/plain": ["1"] } };
  const [cell] = parse({ cell_type: "code", source: "", outputs: [html, both] }) ?? [];
  assert.deepEqual(cell?.outputs, [
    { kind: "text", text: "<script>x()</script>", isError: false },
    { kind: "text", text: "1", isError: false },
  ]);
});

test("an image that is no base64 is no image", () => {
  const output = { data: { "image/png": 'x" onerror="alert(1)', "image/svg+xml": "<svg onload='x()'/>" } };
  const [cell] = parse({ cell_type: "code", source: "", outputs: [output] }) ?? [];
  assert.deepEqual(cell?.outputs, []);
});

test("what is no notebook is none", () => {
  for (const text of ["", "{", "[]", "null", "3", '{"cells": 3}']) assert.equal(parseNotebook(text), null);
  assert.deepEqual(parseNotebook('{"cells": [null, 3, {"outputs": [null]}]}'), [
    { kind: "markdown", count: null, source: "", outputs: [] },
  ]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { parseTable } from "../src/files/csv.ts";

const table = (text: string, isComplete = true, maxRows = 100) => parseTable(text, isComplete, maxRows);

test("quotes hold delimiters, quotes and line breaks", () => {
  const { head, rows } = table('a,b\r\n"x, ""y""\nz",2\r\n');
  assert.deepEqual(head, ["a", "b"]);
  assert.deepEqual(rows, [['x, "y"\nz', "2"]]);
});

test("the delimiter is found in the first line", () => {
  assert.deepEqual(table("a;b\n1,5;2").rows, [["1,5", "2"]]);
  assert.deepEqual(table("a\tb\n1\t2").rows, [["1", "2"]]);
  assert.deepEqual(table('"a,b"|c\n1|2').head, ["a,b", "c"]);
});

test("rows may differ in length, and values may be empty", () => {
  const { head, rows } = table("a,b\n1\n1,,3\n,\n");
  assert.deepEqual(head, ["a", "b", ""]);
  assert.deepEqual(rows, [["1"], ["1", "", "3"], ["", ""]]);
});

test("of a file that is cut, the last row is left out", () => {
  for (const rest of ["3,", "3,4", '3,"4', "3"]) {
    const cut = table(`a,b\n1,2\n${rest}`, false);
    assert.deepEqual(cut.rows, [["1", "2"]]);
    assert.equal(cut.isCut, true);
  }
});

test("a file without a line break at its end is whole", () => {
  const whole = table("a,b\n1,2");
  assert.deepEqual(whole.rows, [["1", "2"]]);
  assert.equal(whole.isCut, false);
});

test("rows are counted", () => {
  const cut = table("a\n1\n2\n3\n", true, 2);
  assert.deepEqual(cut.rows, [["1"], ["2"]]);
  assert.equal(cut.isCut, true);
  assert.equal(table("a\n1\n2\n", true, 2).isCut, false);
});

test("markup is text, and nothing is a table, too", () => {
  assert.deepEqual(table("<b>a</b>\n<script>x()</script>").rows, [["<script>x()</script>"]]);
  assert.deepEqual(table("").head, []);
  assert.deepEqual(table("\uFEFFa\n").head, ["a"]);
  // A quote that is never closed takes the rest.
  assert.deepEqual(table('a\n"b,c\nd').rows, [["b,c\nd"]]);
});

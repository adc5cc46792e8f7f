import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_COLOURED_CHARS, piecesOf } from "../src/files/highlight.ts";

test("pieces are the text, whatever the language", async () => {
  const text = 'import os\n\n\ndef f(x):  # why\r\n    return "<b>" + str(1.5)\n';
  for (const ending of ["py", "sh", "toml", "ini", "cpp", "java", "js", "ts", "json", "yaml"]) {
    const pieces = await piecesOf(text, ending);
    assert.equal(pieces?.map((piece) => piece.text).join(""), text, ending);
  }
});

test("keywords, texts and comments have a class", async () => {
  const pieces = await piecesOf('def f():\n    return "a"  # b\n', "py");
  const classOf = (text: string) => pieces?.find((piece) => piece.text.trim() === text)?.className;
  assert.deepEqual(["return", '"a"', "# b"].map(classOf), ["tok-keyword", "tok-string", "tok-comment"]);
  assert.ok((await piecesOf("a: 1 # b\n", "yaml"))?.some(({ className }) => className.includes("tok-comment")));
});

test("of a long text the rest has no colours", async () => {
  const text = "x = 1\n".repeat(MAX_COLOURED_CHARS / 3);
  const pieces = await piecesOf(text, "py");
  assert.equal(pieces?.map((piece) => piece.text).join(""), text);
  assert.equal(pieces?.[pieces.length - 1]?.className, "");
});

test("a language that is not known has no pieces", async () => {
  for (const ending of ["txt", "", "toString", "__proto__"]) {
    assert.equal(await piecesOf("a", ending), null);
  }
});

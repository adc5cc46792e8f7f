import assert from "node:assert/strict";
import { test } from "node:test";
import { exportLine, exportOf, quote, secretLine, secretOf, split } from "../src/editor/shell_words.ts";

test("words are quoted as Python's shlex quotes them", () => {
  assert.equal(quote("plain-1.2/x"), "plain-1.2/x");
  assert.equal(quote(""), "''");
  assert.equal(quote("a b"), "'a b'");
  assert.equal(quote("it's"), `'it'"'"'s'`);
});

test("what is quoted is split into the same words again", () => {
  const words = ["a", "b c", "it's", "", 'say "hi"', "$HOME", "é"];
  assert.deepEqual(split(words.map(quote).join(" ")), words);
});

test("a line that a shell would expand has no words", () => {
  for (const line of ['"$HOME"', "$HOME", "`date`", "a; b", "a > b", "'open", "a*"]) assert.equal(split(line), null);
});

test("a variable is read from the line that exports it", () => {
  assert.deepEqual(exportOf(exportLine("GREETING", "it's me")), { name: "GREETING", value: "it's me" });
  assert.equal(exportOf('export PATH="$HOME:$PATH"'), null);
  assert.equal(exportOf("export A=1 B=2"), null);
  assert.equal(exportOf("echo export A=1"), null);
});

test("a secret is read from the lines that export it", () => {
  assert.equal(secretLine("TOKEN"), "TOKEN=$(cat <<'PAI_END_OF_SECRET'\n<% $secrets.TOKEN %>\nPAI_END_OF_SECRET\n)\nexport TOKEN");
  assert.equal(secretOf(secretLine("TOKEN")), "TOKEN");
  assert.equal(secretOf("export TOKEN=x"), null);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { cleanText, withoutEscapes } from "../src/escape_sequences.ts";
import cases from "../../tests/paiprotocol/jobs/escape_sequences.json";
import { processorMs } from "./processor_time.ts";

for (const { name, raw, shown } of cases) {
  test(`escape sequences: ${name}`, () => assert.equal(withoutEscapes(raw), shown));
}

test("of a line that was overwritten, its last version is shown", () => {
  assert.equal(cleanText("a\n10%\r\u001b[K50%\r\u001b[32m100%\u001b[0m\r\nend\r\n"), "a\n100%\nend\n");
});

test("carriage returns at an end overwrite nothing", () => {
  for (const [raw, shown] of [
    ["50%\r", "50%\r"],
    ["10%\r50%\r", "50%\r"],
    ["\r", "\r"],
    ["\r\n\r\r\na\r\r\nb", "\n\na\nb"],
    ["a\r\rb\r\n\nc", "b\n\nc"],
    ["", ""],
  ] as const) {
    assert.equal(cleanText(raw), shown, JSON.stringify(raw));
  }
});

test("a long line takes no long time", () => {
  for (const text of ["a", "\r", "a\r", "\r\n"]) {
    const began = processorMs();
    cleanText(text.repeat(500_000));
    cleanText(text.repeat(500_000) + "x");
    assert.ok(processorMs() - began < 2000, JSON.stringify(text));
  }
});

test("a long line of beginnings of sequences takes no long time", () => {
  for (const start of ["\u001b]", "\u009d", "\u001b[1", "\u009b", "\u001b("]) {
    const began = processorMs();
    withoutEscapes(start.repeat(500_000));
    withoutEscapes(start + "1".repeat(1_000_000));
    assert.ok(processorMs() - began < 2000, JSON.stringify(start));
  }
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { cleanText } from "../src/escape_sequences.ts";
import { hueOf, LogStyle } from "../src/log_style.ts";
import cases from "../../tests/paiprotocol/jobs/escape_sequences.json";
import { processorMs } from "./processor_time.ts";

const shown = (raw: string) => new LogStyle().pieces(raw).map(({ text, style }) => [text, style]);

test("colours and other styles become classes", () => {
  assert.deepEqual(shown("a \u001b[1;31mred\u001b[0m b \u001b[94mblue\u001b[39m \u001b[42mon\u001b[m"), [
    ["a ", ""],
    ["red", "sgr-bold sgr-red"],
    [" b ", ""],
    ["blue", "sgr-blue"],
    [" ", ""],
    ["on", "sgr-on-green"],
  ]);
  assert.deepEqual(shown("\u001b[38;5;208mx\u001b[38;2;10;200;30my\u001b[7mz"), [
    ["x", "sgr-yellow"],
    ["y", "sgr-green"],
    ["z", "sgr-on-green"],
  ]);
});

test("nothing is hidden: grey, black on black and concealed text have the colour of the text", () => {
  assert.deepEqual(shown("\u001b[30;40ma\u001b[0m\u001b[8mb\u001b[97mc"), [
    ["a", "sgr-on-grey"],
    ["bc", ""],
  ]);
});

test("a style goes on in the next part of the log", () => {
  const style = new LogStyle();
  assert.deepEqual(style.pieces("\u001b[31ma\n"), [{ text: "a\n", style: "sgr-red" }]);
  assert.deepEqual(style.pieces("b\u001b[0mc"), [
    { text: "b", style: "sgr-red" },
    { text: "c", style: "" },
  ]);
});

test("of an overwritten line its last version is shown, in its colour", () => {
  assert.deepEqual(shown("a\n\u001b[32m10%\r\u001b[K50%\r\u001b[1m100%\u001b[0m\r\nend"), [
    ["a\n", ""],
    ["100%", "sgr-bold sgr-green"],
    ["\nend", ""],
  ]);
});

test("the text is the same as without colours", () => {
  const texts = [...cases.map(({ raw }) => raw), "50%\r", "10%\r50%\r", "\r", "\r\n\r\r\na\r\r\nb", "a\r\rb\r\n\nc", "", "\n"];
  for (const raw of [...texts, texts.join("\u001b[33m\n")]) {
    const text = shown(raw)
      .map(([piece]) => piece)
      .join("");
    assert.equal(text, cleanText(raw), JSON.stringify(raw));
  }
});

test("many changes of style take no long time", () => {
  for (const sequence of ["\u001b[1m", "\u001b[1;31mx", "\u009b7m", "\u001b[31mx\u001b[0m", "\u001b[4mx\r"]) {
    const began = processorMs();
    const pieces = new LogStyle().pieces(sequence.repeat(100_000));
    assert.ok(processorMs() - began < 4000, JSON.stringify(sequence));
    assert.ok(pieces.length <= 4000);
  }
});

test("a colour has the nearest hue of the theme", () => {
  const hues = ["255, 0, 0", "255, 0, 60", "0, 255, 250", "128, 128, 120", "255,255,255", "0, 0, 0", "255, 0, 255"].map(hueOf);
  assert.deepEqual(hues, ["red", "red", "cyan", undefined, undefined, undefined, "magenta"]);
});

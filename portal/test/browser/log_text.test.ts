import { lineAt, LogText } from "../../src/components/log_text.ts";
import type { ShownRange } from "../../src/components/log_times.ts";
import { equal, test } from "./runner.ts";

const encoder = new TextEncoder();
const bytesOf = (text: string) => encoder.encode(text);
/** As the blocks of the module. */
const BLOCK_BYTES = 32 << 10;
const MAX_BYTES = 16 << 20;

function shownLog(): { box: HTMLElement; log: LogText; text: () => string; classes: () => string[] } {
  document.body.replaceChildren();
  const box = document.createElement("div");
  box.className = "log";
  const frame = document.createElement("div");
  frame.className = "numbered";
  frame.append(box);
  document.body.append(frame);
  return {
    box,
    log: new LogText(box),
    text: () => box.textContent ?? "",
    classes: () => [...box.querySelectorAll("span")].map((one) => `${one.className}: ${one.textContent ?? ""}`),
  };
}

/** Appends a text in pieces of a size, as it arrives. */
function appendInPieces(log: LogText, bytes: Uint8Array, size: number, offset = 0): void {
  for (let at = 0; at < bytes.length; at += size) log.append(bytes.subarray(at, at + size), offset + at);
}

for (const size of [1, 2, 3, 7, 5000]) {
  test(`text is the same in pieces of ${size} bytes`, () => {
    const raw = `é ü\n\u001b[1;31mred\u001b[0m and plain\r\n\u001b[32mgreen over\ntwo lines\u001b[m\n${"long ".repeat(30)}\nno end 漢`;
    const { log, text, classes } = shownLog();
    appendInPieces(log, bytesOf(raw), size);
    equal(text().replaceAll("\r", ""), raw.replace(/\u001b\[[\d;]*m/g, "").replaceAll("\r", ""));
    equal(classes(), ["sgr-bold sgr-red: red", "sgr-green: green over\ntwo lines"]);
    equal([log.start, log.end], [0, bytesOf(raw).length]);
  });
}

test("markup is text", () => {
  const { box, log, text } = shownLog();
  log.append(bytesOf("<img src=x onerror=alert(1)>\n"), 0);
  equal([text(), box.querySelector("img")], ["<img src=x onerror=alert(1)>\n", null]);
});

test("lines have numbers from the first byte on, and none in a later part", () => {
  const { box, log } = shownLog();
  log.append(bytesOf("one\ntwo\nthr"), 0);
  const numbers = () => [...box.querySelectorAll<HTMLElement>("[data-numbers]")].map((one) => one.dataset["numbers"]);
  equal(numbers(), ["1\n2", "3"]);
  equal([log.hasLine(3), log.hasLine(4), box.classList.contains("known-lines")], [true, false, true]);
  log.append(bytesOf("ee\n"), 11);
  equal([numbers(), log.hasLine(3), log.hasLine(4)], [["1\n2\n3"], true, false]);
  log.clear();
  log.append(bytesOf("later\n"), 5000);
  equal([numbers(), log.hasLine(1), box.classList.contains("known-lines")], [[], false, false]);
});

test("a line is found by its number in each block, and in the line without an end", () => {
  const { log } = shownLog();
  const lines = Array.from({ length: 6000 }, (_, at) => `line ${at + 1} of many`);
  const bytes = bytesOf(`${lines.join("\n")}\nthe last`);
  appendInPieces(log, bytes, 10_000);
  for (const line of [1, 2, 1499, 1500, 3000, 5999, 6000]) equal(log.rangeOfLine(line)?.toString(), lines[line - 1]);
  equal(log.rangeOfLine(6001)?.toString(), "the last");
  equal([log.rangeOfLine(6002), log.rangeOfLine(0)], [null, null]);
});

test("a click beside a line tells its number", () => {
  const { box, log } = shownLog();
  log.append(bytesOf("one\ntwo\nthree\n"), 0);
  const block = box.querySelector(".block");
  const { left, top } = block?.getBoundingClientRect() ?? new DOMRect();
  equal([lineAt(block ?? box, left + 2, top + 5), lineAt(block ?? box, left + 2, top + 45)], [1, 3]);
  equal(lineAt(block ?? box, left + 300, top + 5), undefined);
});

test("what is before is added above, without the rest of a line", () => {
  const { log, text } = shownLog();
  const raw = "first\nsecond\nthird\n";
  log.append(bytesOf("third\n"), 13);
  log.prepend(bytesOf("st\nsecond\n"), 3);
  equal([text(), log.start, log.hasLine(1)], ["second\nthird\n", 6, false]);
  log.prepend(bytesOf("first\n"), 0);
  equal([text(), log.start, log.end], [raw, 0, raw.length]);
  equal(log.rangeOfLine(3)?.toString(), "third");
});

test("numbers go on upwards above a part whose numbers are known", () => {
  const { log } = shownLog();
  const raw = `${"x\n".repeat(40_000)}`;
  appendInPieces(log, bytesOf(raw), BLOCK_BYTES);
  equal(log.rangeOfLine(40_000)?.toString(), "x");
  equal(log.hasLine(40_001), false);
});

test("at most 16 MB stay, and line numbers with them", () => {
  const { log } = shownLog();
  const line = `${"y".repeat(1023)}\n`;
  const part = bytesOf(line.repeat(1024));
  for (let at = 0; at < 20; at += 1) log.append(part, at * part.length);
  equal(log.end, 20 * part.length);
  equal(log.end - log.start <= MAX_BYTES && log.end - log.start > MAX_BYTES - 2 * part.length, true);
  const first = log.start / line.length + 1;
  equal([log.hasLine(first - 1), log.hasLine(first), log.hasLine(20 * 1024)], [false, true, true]);
});

test("a line without an end does not grow without bound", () => {
  const { log, text } = shownLog();
  appendInPieces(log, bytesOf("z".repeat(3 << 20)), 256 << 10);
  equal(text().length, 3 << 20);
  equal(log.hasLine(2), false);
});

test("a text is found in any case, over colours, and in the last line", () => {
  const { log } = shownLog();
  log.append(bytesOf("Loss \u001b[31m0.5\u001b[0m\nloss 0.25\nthe LOSS"), 0);
  equal(log.find("loss").map(String), ["Loss", "loss", "LOSS"]);
  equal(log.find("loss 0.").map(String), ["Loss 0.", "loss 0."]);
  equal(log.find("").length, 0);
  equal(log.find("nothing").length, 0);
});

test("no more than 5000 places are found", () => {
  const { log } = shownLog();
  log.append(bytesOf("aa\n".repeat(4000)), 0);
  equal(log.find("a").length, 5000);
});

test("another part of the log is shown from a line on", () => {
  const { log, text } = shownLog();
  log.append(bytesOf("one\n"), 0);
  const part = "tail of a line\nbefore\nwanted\nafter\n";
  log.show(bytesOf(part), 1000, 1000 + part.indexOf("wanted"));
  equal(text(), "before\nwanted\nafter\n");
  const found = log.find("wanted");
  equal(log.firstFrom(1000 + part.indexOf("wanted"), [...log.find("before"), ...found]), 1);
});

test("a note of ours replaces the text", () => {
  const { box, log, text } = shownLog();
  log.append(bytesOf("one\n"), 0);
  log.note("The log is empty.");
  equal([text(), log.isEmpty, box.querySelector(".note")?.textContent], ["The log is empty.", true, "The log is empty."]);
});

function shownTimes(box: HTMLElement): string[] {
  return [...box.querySelectorAll<HTMLElement>("[data-times]")].flatMap((one) => one.dataset["times"]?.split("\n") ?? []);
}

function untimed(log: LogText): ShownRange {
  const range = log.untimed();
  if (!range) throw new Error("all times are known");
  return range;
}

test("times that were requested for an attempt are not those of the next one", () => {
  const { box, log } = shownLog();
  const time = new Date(2026, 2, 31, 7, 5, 9).getTime();
  log.append(bytesOf("one\ntwo\n"), 0);
  const before = untimed(log);
  log.note("The task started again: attempt 2.");
  log.append(bytesOf("one\ntwo\nthree\n"), 0);
  equal([log.addTimes(before, [[0, time]]), shownTimes(box)], [false, []]);
  log.addTimes(untimed(log), [[0, time + 1000]]);
  equal(shownTimes(box), ["07:05:10", "07:05:10", "07:05:10"]);
});

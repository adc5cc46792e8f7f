import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { sourcesOf } from "../src/sources/selection.ts";

/** Of each case, beside its ignore files. */
const FILES = [
  "a/b/c/d.x",
  "a/c",
  "b/a/a.x",
  "b/b.y",
  "c/a/c",
  "c/d",
  "a.x",
  "b.y",
  "d/#c",
  "d/!d",
  "#c",
  "d/-",
  "d/]",
  "d/[",
  "d/7",
  "d/A",
  "d/z",
  "d/abc",
  "d/Z.X",
  "e f/g ",
  "d/ü",
  "#d [x]*/b/c",
  "#d [x]*/a",
];
/** Folders with ignore files of their own. */
const INNER = ["b", "#d [x]*"];
const LINES = (
  "a| b/|/a|*.x|a/b|**/c|a/**|a/**/c|!a|!*.x|?.y|[ab].x|[!a].y|#c|\\#c||  |c  |!/b|b/*|*|!b/|**|a*|\\!d|d/|b/|/*|!/d|!d/[!a]|*.X" +
  "|[[:alpha:]]|[![:alpha:]]*|[^[:lower:]]|[[:digit:][:upper:]]|[[:none:]]|[a\\-c]|[\\]]|[]b]|[!]b]|[[a]|[--b]|[b-a]|[!b-a]|[b|[|//a|a//|***/c" +
  "|a/***/c|a/***|a***c|\\a|a\\|g\\ |e?f|[a-z]|d/?|ü|[é-ü]|[!ü]|a/*/c|*/c|!**/c|/**/c|a/**/**/c|d/[^a-z]|d/[0-9A]|!|/|\t|a\t|$|(a)|a+|d/{7,A}|.|..|./a|a/.|a/./b|^"
).split("|");
const CASES = 1500;

/** The same numbers in each run. */
function randomNumbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

function generatedCases(): { top: string[]; inner: string[] }[] {
  const random = randomNumbers(1);
  const lines = (count: number) => Array.from({ length: count }, () => LINES[random(LINES.length)] ?? "");
  const single = LINES.map((line) => ({ top: [line], inner: [] as string[] }));
  return [...single, ...Array.from({ length: CASES }, () => ({ top: lines(random(5)), inner: lines(random(4)) }))];
}

test("ignore files leave out what git leaves out", async () => {
  const cases = generatedCases();
  const folder = mkdtempSync(path.join(tmpdir(), "ignore-"));
  try {
    const contents = cases.map(({ top, inner }) => [
      ...FILES.map((name) => ({ name, text: "" })),
      { name: ".gitignore", text: `${top.join("\n")}\n` },
      ...INNER.map((inside) => ({ name: `${inside}/.gitignore`, text: `${inner.join("\n")}\n` })),
    ]);
    for (const [at, files] of contents.entries()) {
      for (const inside of INNER) mkdirSync(path.join(folder, `${at}`, inside), { recursive: true });
      for (const { name, text } of files) if (text) writeFileSync(path.join(folder, `${at}`, name), text);
    }
    execFileSync("git", ["init", "-q"], { cwd: folder });
    const input = contents.flatMap((files, at) => files.map(({ name }) => `${at}/${name}\0`)).join("");
    const options = { cwd: folder, input, maxBuffer: 1 << 28, encoding: "utf8" } as const;
    const ignoredByGit = new Set(execFileSync("git", ["check-ignore", "--no-index", "-z", "--stdin"], options).split("\0"));
    const wrong: unknown[] = [];
    for (const [at, files] of contents.entries()) {
      // Beside another folder: the case's own one is wanted, whatever its name.
      const chosen = files.map(({ name, text }) => ({ path: `case/${name}`, file: new File([text], path.basename(name)) }));
      const ours = (await sourcesOf(chosen)).files.map((one) => one.path.slice("case/".length)).sort();
      const expected = files
        .map(({ name }) => name)
        .filter((name) => !ignoredByGit.has(`${at}/${name}`))
        .sort();
      if (ours.join("\n") !== expected.join("\n")) {
        const only = (some: string[], other: string[]) => some.filter((one) => !other.includes(one));
        wrong.push({ ...cases[at], onlyHere: only(ours, expected), onlyInGit: only(expected, ours) });
      }
    }
    assert.deepEqual(wrong, [], `${wrong.length} of ${cases.length}`);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

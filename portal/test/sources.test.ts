import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { packed } from "../src/sources/archive.ts";
import { sourcesOf, withoutCommonFolder } from "../src/sources/selection.ts";

const HOUR_MS = 3_600_000;

function chosen(name: string, content: string | Uint8Array<ArrayBuffer>, lastModified = HOUR_MS) {
  return { path: name, file: new File([content], path.basename(name), { lastModified }) };
}

test("the archive is a tar that the cluster unpacks", async () => {
  const long = `${"folder/".repeat(20)}file-ü.txt`;
  const large = new Uint8Array(3_000_001).fill(7);
  const archive = await packed(
    [
      chosen("train.py", "print(1)\n"),
      chosen("bin/run", "#!/bin/sh\necho run\n"),
      chosen("bin/tool", "\x7fELF\x02"),
      chosen(long, "deep"),
      chosen("empty", ""),
      chosen("large", large),
    ],
    new AbortController().signal,
  );
  const bytes = Buffer.from(await archive.blob.arrayBuffer());
  assert.equal(archive.size, bytes.length);
  assert.equal(archive.sha256, createHash("sha256").update(bytes).digest("hex"));
  const folder = mkdtempSync(path.join(tmpdir(), "sources-"));
  try {
    writeFileSync(path.join(folder, "a.tar"), bytes);
    execFileSync("tar", ["-xf", "a.tar"], { cwd: folder });
    assert.equal(readFileSync(path.join(folder, "train.py"), "utf8"), "print(1)\n");
    assert.equal(readFileSync(path.join(folder, long), "utf8"), "deep");
    assert.equal(statSync(path.join(folder, "empty")).size, 0);
    assert.equal(statSync(path.join(folder, "large")).size, large.length);
    assert.equal(statSync(path.join(folder, "train.py")).mtimeMs, HOUR_MS);
    // A browser does not know which files are programs: those that begin as such are.
    assert.equal(statSync(path.join(folder, "bin/run")).mode & 0o111, 0o111);
    assert.equal(statSync(path.join(folder, "bin/tool")).mode & 0o111, 0o111);
    assert.equal(statSync(path.join(folder, "train.py")).mode & 0o111, 0);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("the same files make the same archive, in any order", async () => {
  const files = [chosen("a", "1"), chosen("b", "2")];
  const signal = new AbortController().signal;
  assert.equal((await packed(files, signal)).sha256, (await packed(files.reverse(), signal)).sha256);
});

test("packing ends when it is cancelled", async () => {
  const abort = new AbortController();
  abort.abort();
  await assert.rejects(packed([chosen("a", "1")], abort.signal));
});

test("one folder is the working directory; several things keep their names", () => {
  const paths = (names: string[]) => withoutCommonFolder(names.map((name) => chosen(name, ""))).map((one) => one.path);
  assert.deepEqual(paths(["project/train.py", "project/lib/a.py"]), ["train.py", "lib/a.py"]);
  assert.deepEqual(paths(["project/train.py", "data/x"]), ["project/train.py", "data/x"]);
  assert.deepEqual(paths(["train.py"]), ["train.py"]);
});

test("a chosen folder may have any name, also one that is left out elsewhere", async () => {
  const found = await sourcesOf([chosen("__pycache__/a.py", ""), chosen("__pycache__/pyvenv.cfg", "")]);
  assert.deepEqual(found.ignored, []);
});

test("what pai sub leaves out stays out", async () => {
  const found = await sourcesOf([
    chosen("p/.gitignore", "*.pt\nout/"),
    chosen("p/train.py", ""),
    chosen("p/model.pt", ""),
    chosen("p/out/x/y", ""),
    chosen("p/sub/.paiignore", "z"),
    chosen("p/sub/z", ""),
    chosen("p/sub/kept", ""),
    chosen("p/.git/config", ""),
    chosen("p/__pycache__/a.pyc", ""),
    chosen("p/venv/pyvenv.cfg", ""),
    chosen("p/venv/bin/python", ""),
  ]);
  assert.deepEqual(
    found.files.map((one) => one.path),
    ["p/.gitignore", "p/sub/.paiignore", "p/sub/kept", "p/train.py"],
  );
  assert.equal(found.ignored.length, 7);
});

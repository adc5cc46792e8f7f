import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError } from "../src/api_error.ts";
import type { SourceArchive } from "../src/sources/archive.ts";
import { SourceFiles } from "../src/sources/source_files.ts";

const MAX_BYTES = 1000;

function chosen(path: string, content = "") {
  return { path, file: new File([content], path, { lastModified: 0 }) };
}

/** A file whose reading waits until it is released, or fails. */
function heldFile(path: string) {
  const one = chosen(path, "held");
  let release = (_content: ArrayBuffer) => undefined as void;
  let fail = (_problem: Error) => undefined as void;
  const content = new Promise<ArrayBuffer>((resolve, reject) => {
    release = resolve;
    fail = reject;
  });
  one.file.slice = () => ({ text: () => Promise.resolve(""), arrayBuffer: () => content }) as unknown as Blob;
  return { one, release: () => release(new ArrayBuffer(4)), fail: () => fail(new Error("gone")) };
}

function jobWithSources() {
  const sent: string[] = [];
  const named: { now: SourceArchive | null } = { now: null };
  const store = {
    has: () => Promise.resolve(false),
    put: ({ sha256 }: SourceArchive, signal: AbortSignal) => {
      signal.throwIfAborted();
      sent.push(sha256);
      return Promise.resolve();
    },
  };
  const sources = new SourceFiles(MAX_BYTES, store, (archive) => (named.now = archive));
  const paths = () => sources.files.map((one) => one.path);
  return { sources, sent, named, store, paths, send: () => sources.send(() => named.now) };
}

test("a submission waits for the files, and sends them", async () => {
  const { sources, sent, named, send } = jobWithSources();
  void sources.add([chosen("a.py", "print(1)")]);
  await send();
  assert.ok(named.now);
  assert.deepEqual(sent, [named.now.sha256]);
});

test("a submission waits for folders that are still read", async () => {
  const { sources, sent, send } = jobWithSources();
  let found = (_files: ReturnType<typeof chosen>[]) => undefined as void;
  void sources.add(new Promise((resolve) => (found = resolve)));
  void sources.add([chosen("b.py")]);
  const sending = send();
  setTimeout(() => found([chosen("a.py")]), 5);
  await sending;
  assert.equal(sources.files.length, 2);
  assert.equal(sent.length, 1);
});

test("a file that is removed while it is read does not hide the others", async () => {
  const { sources, sent, named, send } = jobWithSources();
  const held = heldFile("slow");
  await sources.add([held.one, chosen("a.py")]);
  const sending = send();
  sources.remove(held.one);
  held.release();
  await sending;
  assert.deepEqual(sent, [named.now?.sha256]);
  assert.equal(sources.progress, null);
});

test("nothing is submitted when the page was left meanwhile", async () => {
  const { sources, sent, send } = jobWithSources();
  const held = heldFile("slow");
  await sources.add([held.one]);
  const sending = send();
  sources.close();
  held.release();
  await assert.rejects(sending, { name: "AbortError" });
  assert.deepEqual(sent, []);
});

test("nothing is submitted when the page was left while the cluster was asked", async () => {
  const { sources, store, send } = jobWithSources();
  await sources.add([chosen("a.py")]);
  store.has = () => {
    sources.close();
    return Promise.resolve(true);
  };
  await assert.rejects(send(), { name: "AbortError" });
});

test("nothing is submitted without a file that cannot be read", async () => {
  const { sources, sent, send } = jobWithSources();
  await sources.add([chosen("a.py")]);
  await send();
  const held = heldFile("gone");
  await sources.add([held.one]);
  held.fail();
  await assert.rejects(send(), ApiError);
  sources.dismissProblem();
  await assert.rejects(send(), ApiError);
  sources.remove(held.one);
  await send();
  assert.equal(sent.length, 2);
});

test("a choice that cannot be read, or is too large, is refused until it is dismissed", async () => {
  const { sources, send, paths } = jobWithSources();
  assert.equal(await sources.add([chosen("a.py")]), true);
  assert.equal(await sources.add(Promise.reject(new Error("no permission"))), false);
  await assert.rejects(send(), /cannot be read/);
  assert.equal(await sources.add([chosen("data", "x".repeat(MAX_BYTES + 1))]), false);
  await assert.rejects(send(), /a job may bring 1000 B/);
  sources.dismissProblem();
  await send();
  assert.deepEqual(paths(), ["a.py"]);
});

test("folders that are added one after the other keep their files", async () => {
  const { sources, paths } = jobWithSources();
  await sources.add([chosen("one/main.py"), chosen("one/.gitignore", "*.pt"), chosen("one/a.pt")]);
  assert.deepEqual(paths(), [".gitignore", "main.py"]);
  await sources.add([chosen("two/main.py")]);
  assert.deepEqual(paths(), ["one/.gitignore", "one/main.py", "two/main.py"]);
  assert.equal(sources.ignored, 1);
});

test("a folder that is added again replaces its files", async () => {
  const { sources, paths } = jobWithSources();
  await sources.add([chosen("one/main.py"), chosen("one/old")]);
  await sources.add([chosen("one/main.py", "new"), chosen("one/.gitignore", "old"), chosen("one/old")]);
  assert.deepEqual(paths(), [".gitignore", "main.py"]);
  assert.equal(sources.files[1]?.file.size, 3);
});

test("files that the job does not name, and those that the cluster has, are not sent", async () => {
  const { sources, sent, named, store, send } = jobWithSources();
  await sources.add([chosen("a.py")]);
  store.has = () => Promise.resolve(true);
  await send();
  store.has = () => Promise.resolve(false);
  named.now = null;
  await send();
  assert.deepEqual(sent, []);
});

test("files that the job names are missing unless they are on the cluster or chosen", async () => {
  const { sources, named, store } = jobWithSources();
  const other = { sha256: "of another user", size: 3 };
  assert.ok(!sources.isMissing(other), "not known yet");
  await sources.look(other);
  assert.ok(sources.isMissing(other));
  assert.ok(!sources.isMissing(null));
  store.has = () => Promise.reject(new ApiError("The server does not answer.", 0, "", ""));
  await sources.look(other);
  assert.ok(sources.isMissing(other), "as it was known");
  store.has = () => Promise.resolve(true);
  await sources.look(other);
  assert.ok(!sources.isMissing(other));

  store.has = () => Promise.resolve(false);
  await sources.add([chosen("a.py")]);
  await sources.send(() => null);
  await sources.look(named.now);
  assert.ok(named.now && !sources.isMissing(named.now));
});

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { outputFolder } from "../src/files/job_folder.ts";
import { arranged, orderText, parseOrder } from "../src/files/listing.ts";
import { combined, hashOf, hex, partBytes, partOffsets } from "../src/files/parts.ts";

const entry = (name: string, size: number, isFolder = false) => ({
  name,
  size,
  isFolder,
  modified: 0,
  owner: "alice",
  permission: "644",
});

test("folders come first, and numbers in names count", () => {
  const entries = [entry("a10", 1), entry("a9", 3), entry("z", 0, true), entry("B", 2)];
  const names = (order: string, filter = "") => arranged(entries, filter, parseOrder(order)).map((one) => one.name);
  assert.deepEqual(names(""), ["z", "a9", "a10", "B"]);
  assert.deepEqual(names("-size"), ["z", "a9", "B", "a10"]);
  assert.deepEqual(names("-name", "A"), ["a10", "a9"]);
  assert.deepEqual(names("nonsense"), ["z", "a9", "a10", "B"]);
});

test("the order survives the address", () => {
  for (const text of ["-name", "size", "-size", "modified"]) assert.equal(orderText(parseOrder(text)), text);
  assert.equal(orderText(parseOrder("")), undefined);
});

test("hashes are those of the transfer API", async () => {
  const bytes = new Uint8Array(1_200_000).map((_, at) => at % 251);
  // What Python's `hashlib.blake2b(digest_size=16)` says about these bytes.
  assert.equal(hex(await hashOf(bytes)), "d504bcd05c19ec5366fbef33f2cc48b6");
  assert.equal(combined([]), "cae66941d9efbd404e4d88758ea67670");
  // The first half of BLAKE2b with 512 bits differs from BLAKE2b with 128: the length is hashed, too.
  assert.ok(!createHash("blake2b512").update(bytes).digest("hex").startsWith(hex(await hashOf(bytes))));
});

test("parts cover a file of any size", () => {
  assert.deepEqual(partOffsets(0), []);
  assert.deepEqual(partOffsets(1), [0]);
  assert.deepEqual(partOffsets(8 << 20), [0, 4 << 20]);
  const tebibyte = 2 ** 40;
  assert.ok(tebibyte / partBytes(tebibyte) <= 131_072);
});

test("outputs are where the job's own folder is", () => {
  const at = (directory: unknown) => outputFolder(JSON.stringify({ parameters: { work_directory: directory } }), "alice", "j");
  assert.equal(outputFolder("", "alice", "j"), "/user/alice/jobs/j/output");
  assert.equal(at(undefined), "/user/alice/jobs/j/output");
  assert.equal(at("/"), "/user/alice/jobs/j/output");
  assert.equal(at("/${PAI_USER_NAME}/ws/jobs/j/"), "/alice/ws/jobs/j/output");
  assert.equal(at("ws"), "/user/alice/ws/output");
});

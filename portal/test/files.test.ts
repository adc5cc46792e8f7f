import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { namedOutputFolder, outputFolder } from "../src/files/job_folder.ts";
import { arranged, orderText, parseOrder } from "../src/files/listing.ts";
import { firstPack, packOf } from "../src/files/pack.ts";
import { combined, hashOf, hex, partBytes, partOffsets } from "../src/files/upload_parts.ts";
import { processorMs } from "./processor_time.ts";

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

test("folders of many slashes take no long time", () => {
  const began = processorMs();
  const directory = `${"/".repeat(1_000_000)}x`;
  const uri = `hdfs://here${directory}`;
  assert.equal(outputFolder(JSON.stringify({ parameters: { work_directory: directory } }), "alice", "j"), `${directory}/output`);
  const prerequisites = [{ type: "output", name: "default", uri }];
  assert.equal(namedOutputFolder(JSON.stringify({ prerequisites }), "alice", "j", "here"), directory);
  assert.ok(processorMs() - began < 2000);
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
  assert.ok(
    !createHash("blake2b512")
      .update(bytes)
      .digest("hex")
      .startsWith(hex(await hashOf(bytes))),
  );
});

test("parts cover a file of any size", () => {
  assert.deepEqual(partOffsets(0), []);
  assert.deepEqual(partOffsets(1), [0]);
  assert.deepEqual(partOffsets(8 << 20), [0, 4 << 20]);
  const tebibyte = 2 ** 40;
  assert.ok(tebibyte / partBytes(tebibyte) <= 131_072);
});

test("outputs of version 1 are where the job names them, on this cluster's storage", () => {
  const at = (uri: unknown) =>
    namedOutputFolder(JSON.stringify({ prerequisites: [{ type: "output", name: "default", uri }] }), "alice", "j", "here:80");
  assert.equal(namedOutputFolder("", "alice", "j", "here:80"), "");
  assert.equal(at(undefined), "");
  assert.equal(at("hdfs://here:80/out/"), "/out");
  assert.equal(at("hdfs://other:9000/out"), "");
  assert.equal(at("hdfs://by-another-name:80/Output/alice/j"), "/Output/alice/j");
  assert.equal(at("/out"), "/out");
  assert.equal(at("out"), "/user/alice/out");
});

test("outputs are where the job's own folder is", () => {
  const at = (directory: unknown) => outputFolder(JSON.stringify({ parameters: { work_directory: directory } }), "alice", "j");
  assert.equal(outputFolder("", "alice", "j"), "/user/alice/jobs/j/output");
  assert.equal(at(undefined), "/user/alice/jobs/j/output");
  assert.equal(at("/"), "/user/alice/jobs/j/output");
  assert.equal(at("/${PAI_USER_NAME}/ws/jobs/j/"), "/alice/ws/jobs/j/output");
  assert.equal(at("ws"), "/user/alice/ws/output");
});

test("packs are those of the transfer API", async () => {
  const pack = await packOf([{ path: "/user/a", modifiedMs: 1500, content: new TextEncoder().encode("hi") }]);
  const bytes = Buffer.from(await pack.arrayBuffer());
  // Kind, algorithm, length of the name, mode, size, nanoseconds, digest; then name and content.
  assert.equal(bytes.subarray(0, 24).toString("hex"), "01010006000001a400000000000000020000000059682f00");
  assert.equal(bytes.subarray(24, 40).toString("hex"), hex(await hashOf(new TextEncoder().encode("hi"))));
  assert.equal(bytes.subarray(40, 48).toString(), "user/ahi");
  // The end has the number of records.
  assert.equal(bytes.subarray(48).toString("hex"), `${"0".repeat(31)}1${"0".repeat(48)}`);
});

test("packs have at most a thousand files, and four megabytes", () => {
  const files = (count: number, size: number) =>
    Array.from({ length: count }, (_, at) => ({ file: { size } as File, path: `/${at}`, overwrite: false }));
  assert.equal(firstPack(files(3, 10)).length, 3);
  assert.equal(firstPack(files(1001, 10)).length, 1000);
  assert.equal(firstPack(files(100, 256 << 10)).length, 16);
  assert.equal(firstPack(files(2, 8 << 20)).length, 1);
});

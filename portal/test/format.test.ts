import assert from "node:assert/strict";
import { test } from "node:test";
import { cleanText } from "../src/escape_sequences.ts";
import { counted, duration, fileSize, grouped, memory, rate, shortName } from "../src/format.ts";
import { lastErrorLine } from "../src/job_failure.ts";
import { keyProblem, keySummary } from "../src/ssh_key.ts";

test("sizes of files", () => {
  assert.deepEqual([0, 1023, 1024, 1536, 1024 ** 2 - 1, 123 * 1024 ** 2, 1024 ** 4].map(fileSize), [
    "0 B",
    "1023 B",
    "1 KB",
    "1.5 KB",
    "1 MB",
    "123 MB",
    "1 TB",
  ]);
  assert.deepEqual([0.4, 1536].map(rate), ["0 B/s", "1.5 KB/s"]);
});

test("durations, memory and counts", () => {
  assert.deepEqual([0, 59_999, 61_000, 7_260_000, 90_000_000].map(duration), ["0 s", "1 min", "1 min 1 s", "2 h 1 min", "1 d 1 h"]);
  assert.deepEqual([512, 1536, 515_277, 4_094_259].map(memory), ["512 MB", "1.5 GB", "503 GB", "3.9 TB"]);
  assert.equal(counted(1, "entry", "entries"), "1 entry");
  assert.equal(counted(1204, "entry", "entries"), "1,204 entries");
  assert.deepEqual([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
});

test("long names keep both ends", () => {
  assert.equal(shortName("train/loss"), "train/loss");
  assert.equal(shortName("gradient_norm_of_the_second_block"), "gradient_norm…cond_block");
  assert.equal(shortName("gradient_norm", 8), "grad…orm");
});

test("output of terminals as text", () => {
  assert.equal(cleanText("\u001b[31mred\u001b[0m\r\n10%\r100%\n"), "red\n100%\n");
});

const KEY = `ssh-ed25519 ${"A".repeat(68)} me@laptop`;

test("public keys", () => {
  assert.equal(keyProblem(KEY, []), "");
  assert.match(keyProblem("-----BEGIN OPENSSH PRIVATE KEY-----", []), /private/);
  assert.match(keyProblem("ssh-ed25519", []), /no public key/);
  assert.match(keyProblem("<script>", []), /no public key/);
  assert.match(keyProblem(`${KEY}\n${KEY}`, []), /one line/);
  assert.match(keyProblem(KEY, [KEY.replace("me@laptop", "other")]), /already/);
  assert.match(
    keyProblem(
      KEY,
      Array.from({ length: 64 }, () => ""),
    ),
    /at most 64/,
  );
  assert.equal(keySummary(KEY), `ssh-ed25519 …${"A".repeat(12)} me@laptop`);
});

test("last line of a failed job, without colours", () => {
  const ended = (user: string, reason = "") =>
    lastErrorLine({
      jobStatus: { appExitMessages: { runtime: { errorLogs: { user } } }, appExitSpec: { reason } },
    } as Parameters<typeof lastErrorLine>[0]);
  assert.equal(ended("first\n\u001b[31mthe disk is \u001b[1mfull\n\u001b[0m\n"), "the disk is full");
  assert.equal(ended("\u001b[31mNo GPU\u001b[0m", "The program wrote: No GPU."), "");
});

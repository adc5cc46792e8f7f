import assert from "node:assert/strict";
import { test } from "node:test";
import { sshKeysOf } from "../src/ssh_key.ts";

const keysOf = (sshKeys: unknown) => sshKeysOf({ extension: { sshKeys } });

test("keys of a user are those that the cluster lists", () => {
  const key = { title: "laptop", value: "ssh-ed25519 AAAA me@laptop", time: 1 };
  assert.deepEqual(keysOf([key]), [{ title: "laptop", value: "ssh-ed25519 AAAA me@laptop" }]);
  assert.deepEqual(sshKeysOf({ extension: {} }), []);
});

test("what other programs wrote in place of keys is left out", () => {
  for (const written of [null, "ssh-ed25519 AAAA", 7, { value: "x" }, [null, "x", 7, {}, { value: 1 }]]) {
    assert.deepEqual(keysOf(written), []);
  }
  assert.deepEqual(keysOf([{ value: "ssh-rsa BBBB" }]), [{ title: "key", value: "ssh-rsa BBBB" }]);
});

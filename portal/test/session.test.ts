import assert from "node:assert/strict";
import { test } from "node:test";

// What a browser has, and the modules need when they are loaded.
const stored = new Map<string, string>();
Object.assign(globalThis, {
  localStorage: {
    getItem: (key: string) => stored.get(key) ?? null,
    setItem: (key: string, value: string) => stored.set(key, value),
    removeItem: (key: string) => stored.delete(key),
  },
  addEventListener: () => undefined,
});
const { endSession, expireSession, isSessionExpired, nextSession, session, startSession } = await import("../src/session.ts");
const { onceAborted } = await import("../src/files/cancel.ts");

const KEY = "pai-session";
const ALICE = { user: "alice", admin: false, proof: "one" };
const BOB = { user: "bob", admin: false, proof: "other" };

test("an expired session is marked for the other tabs", () => {
  startSession(ALICE);
  expireSession(ALICE, "It has ended.");
  assert.equal(isSessionExpired.value, true);
  assert.deepEqual(JSON.parse(stored.get(KEY) ?? ""), { expired: "It has ended." });
});

test("an expired session does not replace what another tab has just stored", () => {
  startSession(ALICE);
  const newer = { ...ALICE, proof: "two" };
  stored.set(KEY, JSON.stringify(newer));
  expireSession(ALICE, "It has ended.");
  assert.deepEqual([session.value, isSessionExpired.value], [newer, false]);
  assert.deepEqual(JSON.parse(stored.get(KEY) ?? ""), newer);
  stored.delete(KEY);
  expireSession(newer, "It has ended.");
  assert.equal(stored.has(KEY), false);
});

test("what was cancelled before does not wait for the next session", async () => {
  startSession(ALICE);
  expireSession(ALICE, "It has ended.");
  await assert.rejects(nextSession(ALICE, AbortSignal.abort()), { name: "AbortError" });
});

test("an upload is cancelled in the name of its own user only", async () => {
  const done: string[] = [];
  const cancel = (name: string) => {
    const abort = new AbortController();
    onceAborted(abort.signal, async () => void done.push(name));
    return () => abort.abort();
  };
  startSession(ALICE);
  cancel("same user")();
  const whenOther = cancel("other user");
  const whenSignedOut = cancel("signed out");
  startSession(BOB);
  whenOther();
  endSession();
  whenSignedOut();
  assert.deepEqual(done, ["same user"]);
});

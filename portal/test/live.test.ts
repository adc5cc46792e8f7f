import assert from "node:assert/strict";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";

// What a browser has, and the modules need when they are loaded.
Object.assign(globalThis, {
  localStorage: { getItem: () => null, setItem: () => undefined, removeItem: () => undefined },
  addEventListener: () => undefined,
});
const { followJob } = await import("../src/live.ts");
const { backoffMs, pause } = await import("../src/pause.ts");
type OnFrame = Parameters<typeof followJob>[2];

type Answer = (response: ServerResponse, query: URLSearchParams) => Promise<void> | void;

/** What the server does with each connection, the first one first. */
let answers: Answer[] = [];
let queries: URLSearchParams[] = [];
const server = createServer((asked, response) => {
  const { searchParams } = new URL(asked.url ?? "", "http://cluster");
  queries.push(searchParams);
  const answer = answers.shift();
  if (answer) void answer(response, searchParams);
  else response.destroy();
});
const ownFetch = globalThis.fetch;

before(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  // Addresses are relative to the page.
  globalThis.fetch = (address, init) => ownFetch(new URL(String(address), `http://127.0.0.1:${port}/`), init);
});

after(() => {
  globalThis.fetch = ownFetch;
  server.closeAllConnections();
  server.close();
});

const encoder = new TextEncoder();

function frame(head: object, text = ""): Uint8Array {
  const bytes = encoder.encode(text);
  const line = encoder.encode(`${JSON.stringify(text ? { ...head, size: bytes.length } : head)}\n`);
  return Buffer.concat([line, bytes]);
}

const log = (offset: number, text: string) => frame({ kind: "log", role: "main", index: 0, attempt: 1, taskAttempt: 0, offset }, text);
const END = frame({ kind: "end", state: "SUCCEEDED" });

/** Sends these bytes in pieces of a size, each as a chunk of its own. */
async function inPieces(response: ServerResponse, bytes: Uint8Array, size: number): Promise<void> {
  for (let at = 0; at < bytes.length; at += size) {
    await new Promise<void>((resolve) => response.write(bytes.subarray(at, at + size), () => resolve()));
  }
}

function collector() {
  const parts: Uint8Array[] = [];
  const kinds: string[] = [];
  const onFrame: OnFrame = (one, bytes) => {
    kinds.push(one.kind);
    // The bytes are valid during the call only.
    if (one.kind === "log") parts.push(bytes.slice());
  };
  return { kinds, onFrame, text: () => Buffer.concat(parts).toString() };
}

async function follow(connections: Answer[], signal = new AbortController().signal) {
  answers = connections;
  queries = [];
  const found = collector();
  await followJob("alice~train", { tail: "1000" }, found.onFrame, signal);
  return found;
}

for (const size of [1, 2, 7, 64, 100_000]) {
  test(`frames arrive whole in pieces of ${size} bytes`, async () => {
    const all = Buffer.concat([
      frame({ kind: "state", state: "RUNNING" }),
      // Bytes of the log may look like frames.
      log(0, 'é\n{"kind":"end"}\n'),
      frame({ kind: "ping" }),
      log(20, "x".repeat(300)),
      END,
    ]);
    const found = await follow([
      async (response) => {
        await inPieces(response, all, size);
        response.end();
      },
    ]);
    assert.deepEqual(found.kinds, ["state", "log", "ping", "log", "end"]);
    assert.equal(found.text(), `é\n{"kind":"end"}\n${"x".repeat(300)}`);
  });
}

test("a broken connection is resumed behind the last whole part of the log", async () => {
  const found = await follow([
    async (response) => {
      const bytes = Buffer.concat([log(0, "one\n"), log(4, "two\n")]);
      // The second part does not arrive whole.
      await inPieces(response, bytes.subarray(0, -2), 1000);
      response.destroy();
    },
    (response) => void response.writeHead(503, { "Content-Type": "application/json" }).end("{}"),
    async (response) => {
      await inPieces(response, Buffer.concat([log(4, "two\n"), END]), 1000);
      response.end();
    },
  ]);
  assert.equal(found.text(), "one\ntwo\n");
  assert.deepEqual(
    queries.map((query) => [query.get("tail"), query.get("from")]),
    [
      ["1000", null],
      [null, "1.0:4"],
      [null, "1.0:4"],
    ],
  );
});

test("a connection that ends before the job has ended is opened again", async () => {
  const found = await follow([
    (response) => void response.end(frame({ kind: "state", state: "RUNNING" })),
    (response) => void response.end(END),
  ]);
  assert.deepEqual(found.kinds, ["state", "end"]);
});

test("a refusal is no broken connection", async () => {
  const refused: Answer = (response) => {
    response.writeHead(404, { "Content-Type": "application/json" }).end('{"code": "NoJobError", "message": "No such job."}');
  };
  await assert.rejects(follow([refused]), { message: "No such job.", status: 404 });
  assert.equal(queries.length, 1);
});

test("nothing is followed after it is cancelled", async () => {
  const abort = new AbortController();
  const endless: Answer = async (response) => {
    await inPieces(response, log(0, "one\n"), 1000);
    abort.abort();
  };
  const found = await follow([endless], abort.signal);
  assert.deepEqual([found.kinds.length <= 1, queries.length], [true, 1]);
});

test("pauses grow to a bound, and end when they are cancelled", async () => {
  assert.deepEqual([1, 2, 3, 6, 60].map(backoffMs), [500, 1000, 2000, 10_000, 10_000]);
  const abort = new AbortController();
  const waiting = pause(3_600_000, abort.signal);
  abort.abort();
  await waiting;
  await pause(3_600_000, abort.signal);
});

import assert from "node:assert/strict";
import { test } from "node:test";

class StandInSocket {
  static last: StandInSocket;
  readonly sent: (string | Uint8Array)[] = [];
  onopen: (() => void) | null = null;

  constructor() {
    StandInSocket.last = this;
  }

  send(message: string | Uint8Array): void {
    this.sent.push(message);
  }
}

// What a browser has, and the modules need when they are loaded.
Object.assign(globalThis, {
  WebSocket: StandInSocket,
  location: { href: "http://cluster/" },
  localStorage: { getItem: () => null },
  addEventListener: () => undefined,
});
const { ExecSession } = await import("../src/terminal/exec_session.ts");

test("what is typed and the size that changes before the connection opens reach the session", () => {
  const ignore = () => undefined;
  const handlers = { onOpen: ignore, onOutput: ignore, onSilence: ignore, onEnd: ignore };
  const session = new ExecSession("api", { rows: 24, columns: 80 }, handlers);
  session.type("ls\n");
  session.resize({ rows: 50, columns: 132 });
  const socket = StandInSocket.last;
  assert.deepEqual(socket.sent, []);
  socket.onopen?.();
  const [start, typed] = socket.sent;
  const { terminal } = JSON.parse(String(start)) as { terminal: { rows: number; columns: number } };
  assert.deepEqual([terminal.rows, terminal.columns], [50, 132]);
  assert.deepEqual(typed, new Uint8Array([0, ...Buffer.from("ls\n")]));
});

// An exec session: the WebSocket of a command in a task (docs/contributing/exec-and-forward.md).
import { ApiError } from "../api_error.ts";
import { session } from "../session.ts";

const PROTOCOL = "pai.session.v1";
const STDIN = 0;
/** So many bytes of input may be on their way. */
const WINDOW_BYTES = 1 << 20;
const MAX_PART_BYTES = 64 << 10;
/** Input is acknowledged at once; after this time without a word the other end is not there. */
const SILENCE_MS = 10_000;

export interface TaskName {
  readonly role: string;
  readonly index: number;
}

export interface WindowSize {
  readonly rows: number;
  readonly columns: number;
}

export type SessionEnd =
  | { readonly kind: "exit"; readonly status: number }
  | { readonly kind: "error"; readonly message: string }
  /** There never was a session; the API says why. */
  | { readonly kind: "refused" }
  | { readonly kind: "lost" };

interface Handlers {
  readonly onOpen: () => void;
  readonly onOutput: (bytes: Uint8Array) => void;
  /** Input was not answered for a while; or something came after that. */
  readonly onSilence: (isSilent: boolean) => void;
  readonly onEnd: (end: SessionEnd) => void;
}

/** Path of a task's sessions, relative to the page. */
export function sessionPath(framework: string, { role, index }: TaskName, { terminal = true } = {}): string {
  const query = new URLSearchParams({ role, index: String(index), terminal: String(terminal) });
  return `api/v2/jobs/${encodeURIComponent(framework)}/exec?${query.toString()}`;
}

function connected(path: string): WebSocket {
  const url = new URL(path, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  // A page can set no header of a WebSocket, so the proof of the session is a protocol that it offers.
  const socket = new WebSocket(url, [PROTOCOL, `proof.${session.value?.proof ?? ""}`]);
  socket.binaryType = "arraybuffer";
  return socket;
}

/** Run a command in a task, without input. Says why if it does not succeed. */
export function runInTask(framework: string, task: TaskName, command: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connected(sessionPath(framework, task, { terminal: false }));
    socket.onopen = () => socket.send(JSON.stringify({ type: "start", command }));
    socket.onmessage = ({ data }: MessageEvent<ArrayBuffer | string>) => {
      const message = typeof data === "string" ? (JSON.parse(data) as { type: string; status?: number; message?: string }) : null;
      if (message?.type === "exit" && message.status === 0) resolve();
      if (message?.type === "exit") reject(new ApiError(`The command ended with exit code ${message.status}.`, 0));
      if (message?.type === "error") reject(new ApiError(message.message ?? "The command could not be started.", 0));
    };
    // After an answer this changes nothing.
    socket.onclose = () => reject(new ApiError("The task could not be reached.", 0));
  });
}

/** The user's shell in a task, with a terminal. */
export class ExecSession {
  readonly #socket: WebSocket;
  readonly #encoder = new TextEncoder();
  readonly #waiting: Uint8Array[] = [];
  #unacknowledged = 0;
  #size: WindowSize;
  #isOpen = false;
  #isSilent = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #onSilence: (isSilent: boolean) => void;
  #end: SessionEnd | null = null;

  constructor(path: string, size: WindowSize, handlers: Handlers) {
    this.#onSilence = handlers.onSilence;
    this.#size = size;
    this.#socket = connected(path);
    this.#socket.onopen = () => {
      this.#isOpen = true;
      this.#send({ type: "start", command: [], terminal: { term: "xterm-256color", ...this.#size } });
      this.#flush();
      handlers.onOpen();
    };
    this.#socket.onmessage = ({ data }: MessageEvent<ArrayBuffer | string>) => {
      this.#heard();
      if (typeof data === "string") this.#receive(data);
      else handlers.onOutput(new Uint8Array(data, 1));
    };
    this.#socket.onclose = () => {
      clearTimeout(this.#timer);
      handlers.onEnd(this.#end ?? { kind: this.#isOpen ? "lost" : "refused" });
    };
  }

  type(text: string): void {
    const bytes = this.#encoder.encode(text);
    for (let at = 0; at < bytes.length; at += MAX_PART_BYTES) this.#waiting.push(bytes.subarray(at, at + MAX_PART_BYTES));
    this.#flush();
  }

  resize(size: WindowSize): void {
    this.#size = size;
    if (this.#isOpen) this.#send({ type: "resize", ...size });
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#socket.onclose = this.#socket.onmessage = null;
    this.#socket.close();
  }

  #send(message: Readonly<Record<string, unknown>>): void {
    this.#socket.send(JSON.stringify(message));
  }

  #flush(): void {
    while (this.#isOpen && this.#unacknowledged < WINDOW_BYTES - MAX_PART_BYTES) {
      const part = this.#waiting.shift();
      if (!part) return;
      const frame = new Uint8Array(part.length + 1);
      frame[0] = STDIN;
      frame.set(part, 1);
      this.#socket.send(frame);
      this.#unacknowledged += part.length;
      this.#timer ??= setTimeout(() => this.#becomeSilent(), SILENCE_MS);
    }
  }

  /** A connection may break without a word to either end: a laptop that slept, a network that was left. */
  #becomeSilent(): void {
    this.#isSilent = true;
    this.#onSilence(true);
  }

  #heard(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#isSilent) this.#onSilence(false);
    this.#isSilent = false;
  }

  #receive(text: string): void {
    const message = JSON.parse(text) as { type: string; bytes?: number; status?: number; message?: string };
    if (message.type === "ack") {
      this.#unacknowledged -= message.bytes ?? 0;
      this.#flush();
    }
    if (message.type === "exit") this.#end = { kind: "exit", status: message.status ?? 0 };
    if (message.type === "error") this.#end = { kind: "error", message: message.message ?? "" };
  }
}

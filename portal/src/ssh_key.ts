// SSH public keys, as a line of `authorized_keys` has them: type, key in base64, comment.
import type { UserInfo } from "./api_types.ts";

const TYPE = /^(ssh-(rsa|ed25519)|ecdsa-sha2-nistp(256|384|521)|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com)$/;
const BASE64 = /^[A-Za-z0-9+/]{40,}={0,2}$/;
const SHOWN_LENGTH = 12;
/** The SSH endpoint of the cluster reads as many of a user. */
const MAX_KEYS = 64;

export interface SshKey {
  readonly title: string;
  /** A line of `authorized_keys`. */
  readonly value: string;
}

/** SSH keys of a user. Other programs write the extension, too: what is no key is left out. */
export function sshKeysOf({ extension }: Pick<UserInfo, "extension">): readonly SshKey[] {
  const listed: unknown = extension["sshKeys"];
  if (!Array.isArray(listed)) return [];
  return listed.flatMap((entry: Partial<SshKey> | null) =>
    typeof entry?.value === "string" ? [{ value: entry.value, title: String(entry.title ?? "key") }] : [],
  );
}

/** What is wrong with a new key; empty if nothing is. */
export function keyProblem(line: string, others: readonly string[]): string {
  if (line.includes("PRIVATE KEY")) return "This is a private key: keep it to yourself. The public one is in the file that ends in .pub.";
  if (/[\r\n]/.test(line)) return "A public key is one line.";
  const [type = "", key = ""] = line.split(/\s+/);
  if (!TYPE.test(type) || !BASE64.test(key)) return "This is no public key: it begins with its type, like ssh-ed25519.";
  if (others.some((other) => other.split(/\s+/)[1] === key)) return "You have this key already.";
  return others.length >= MAX_KEYS ? `A user has at most ${MAX_KEYS} keys.` : "";
}

/** "ssh-ed25519 …abcdef me@laptop": the end of a key tells it from others. */
export function keySummary(line: string): string {
  const [type = "", key = "", ...comment] = line.trim().split(/\s+/);
  return [type, `…${key.slice(-SHOWN_LENGTH)}`, ...comment].join(" ");
}

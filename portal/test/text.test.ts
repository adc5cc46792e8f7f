import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeText } from "../src/files/text.ts";

const latin = (text: string) => Uint8Array.from(text, (one) => one.charCodeAt(0));
const utf8 = (text: string) => new TextEncoder().encode(text);

test("text of UTF-8 may end within a character if more follows", () => {
  const bytes = utf8("größe").subarray(0, 3);
  assert.equal(decodeText(bytes, false), "gr");
  assert.equal(decodeText(utf8("größe"), true), "größe");
});

test("a table of an older program keeps its letters", () => {
  assert.equal(decodeText(latin("caf\xe9;1\r\n"), true), "café;1\r\n");
});

test("damaged characters leave the others as they are", () => {
  assert.equal(decodeText(Uint8Array.from([...utf8("ü"), 0xff, ...utf8("ß")]), true), "ü\ufffdß");
});

test("bytes of a program are no text", () => {
  assert.equal(decodeText(latin("a\0b"), true), null);
  assert.equal(decodeText(latin("\x80\x02}q\x00"), true), null);
  assert.equal(decodeText(latin("\x1f\x8b\x08\xff\xfe\x03"), true), null);
});

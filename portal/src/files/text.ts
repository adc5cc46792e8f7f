// Text of a file's bytes, in whichever encoding it is written.

/** What a text has of these are tabs, line and page breaks, and the escapes of terminals. */
const CONTROL = /[\u0000-\u0007\u000e-\u001a\u001c-\u001f]/;
const BEYOND_ASCII = /[^\u0000-\u007f\ufffd]/;

/** The text of these bytes, of which a character at the end may be cut; null if they are none. */
export function decodeText(bytes: Uint8Array, isComplete: boolean): string | null {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: !isComplete });
    return text.includes("\0") ? null : text;
  } catch {
    const text = new TextDecoder("utf-8").decode(bytes, { stream: !isComplete });
    if (CONTROL.test(text)) return null;
    // Some damaged characters among others, as a log may have; else those of an older encoding.
    return BEYOND_ASCII.test(text) ? text : new TextDecoder("windows-1252").decode(bytes);
  }
}

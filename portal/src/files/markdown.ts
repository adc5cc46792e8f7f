// Markdown, read into blocks and parts of text. What could load or run anything is text: HTML, links of other kinds than to
// pages and addresses, images that are not in the file. Reading takes a bounded time, whatever the text is.
import { Lexer, type Token, type Tokens, type TokensList } from "marked";

/** Longer texts are shown as they are. */
export const MAX_MARKDOWN_CHARS = 256 << 10;
/** Longer parts of text, and what is nested deeper, stay as they are; and all that is left after this time. */
const MAX_PART_CHARS = 4000;
const MAX_DEPTH = 16;
const MAX_READ_MS = 500;
const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/;
/** Without user names, which would show another host than the one that is opened. */
const LINK = /^(https?:\/\/(?![^/?#]*@)|mailto:)\S+$/i;

export type Inline =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "code"; readonly text: string }
  | { readonly kind: "break" }
  | { readonly kind: "strong" | "emphasis" | "deleted"; readonly parts: readonly Inline[] }
  | { readonly kind: "link"; readonly address: string; readonly parts: readonly Inline[] }
  | { readonly kind: "image"; readonly address: string; readonly text: string };

export interface ListItem {
  /** null: it is no task. */
  readonly isDone: boolean | null;
  readonly blocks: readonly Block[];
}

export type Block =
  | { readonly kind: "heading"; readonly level: number; readonly parts: readonly Inline[] }
  | { readonly kind: "paragraph"; readonly parts: readonly Inline[] }
  | { readonly kind: "code"; readonly language: string; readonly text: string }
  | { readonly kind: "quote"; readonly blocks: readonly Block[] }
  | { readonly kind: "list"; readonly start: number | null; readonly items: readonly ListItem[] }
  | { readonly kind: "table"; readonly head: readonly (readonly Inline[])[]; readonly rows: readonly (readonly (readonly Inline[])[])[] }
  | { readonly kind: "rule" };

/** null: the text is too long, or no parser can read it. */
export function parseMarkdown(text: string, now: () => number = () => performance.now()): readonly Block[] | null {
  if (text.length > MAX_MARKDOWN_CHARS) return null;
  try {
    return blocksOf(new BoundedLexer(now).lex(text));
  } catch (error) {
    // The stack of the parser has an end.
    if (error instanceof RangeError) return null;
    throw error;
  }
}

/** Several texts, all within about the time of one; null: one that is shown as it is. */
export function parseMarkdowns(
  texts: readonly string[],
  now: () => number = () => performance.now(),
): readonly (readonly Block[] | null)[] {
  const end = now() + MAX_READ_MS;
  return texts.map((text) => (now() < end ? parseMarkdown(text, now) : null));
}

/** The time that the library takes grows with the square of some texts, and more. */
class BoundedLexer extends Lexer {
  private depth = 0;
  private readonly end: number;
  private readonly now: () => number;

  constructor(now: () => number) {
    super({ gfm: true });
    this.now = now;
    this.end = now() + MAX_READ_MS;
  }

  override blockTokens(text: string, tokens: Token[] = [], lastParagraphClipped = false): TokensList {
    if (this.depth >= MAX_DEPTH || this.now() > this.end) {
      if (text) tokens.push({ type: "text", raw: text, text });
      return tokens as TokensList;
    }
    this.depth += 1;
    try {
      return super.blockTokens(text, tokens, lastParagraphClipped) as TokensList;
    } finally {
      this.depth -= 1;
    }
  }

  override inlineTokens(text: string, tokens: Token[] = []): Token[] {
    if (text.length <= MAX_PART_CHARS && this.now() <= this.end) return super.inlineTokens(text, tokens);
    tokens.push({ type: "text", raw: text, text });
    return tokens;
  }
}

function blocksOf(tokens: readonly Token[]): readonly Block[] {
  return tokens.flatMap((token): readonly Block[] => {
    switch (token.type) {
      case "space":
      case "def":
        return [];
      case "hr":
        return [{ kind: "rule" }];
      case "heading":
        return [{ kind: "heading", level: (token as Tokens.Heading).depth, parts: inlineOf(token) }];
      case "code": {
        const { lang, text } = token as Tokens.Code;
        return [{ kind: "code", language: /^\w+/.exec(lang ?? "")?.[0].toLowerCase() ?? "", text }];
      }
      case "blockquote":
        return [{ kind: "quote", blocks: blocksOf((token as Tokens.Blockquote).tokens) }];
      case "list": {
        const { ordered, start, items } = token as Tokens.List;
        return [
          {
            kind: "list",
            start: ordered ? Number(start) || 0 : null,
            items: items.map((item) => ({ isDone: item.task ? item.checked === true : null, blocks: blocksOf(item.tokens) })),
          },
        ];
      }
      case "table": {
        const { header, rows } = token as Tokens.Table;
        return [{ kind: "table", head: header.map(inlineOf), rows: rows.map((row) => row.map(inlineOf)) }];
      }
      case "checkbox":
        return [];
      default:
        return [{ kind: "paragraph", parts: inlineOf(token) }];
    }
  });
}

/** Parts of a token; what is none is its text. */
function inlineOf(token: {
  readonly tokens?: readonly Token[];
  readonly text?: unknown;
  readonly raw?: string;
  readonly type?: string;
}): readonly Inline[] {
  if (token.tokens && token.type !== "html") return token.tokens.flatMap(partOf);
  return [{ kind: "text", text: token.type === "html" ? (token.raw ?? "") : String(token.text ?? token.raw ?? "") }];
}

function partOf(token: Token): readonly Inline[] {
  switch (token.type) {
    case "strong":
      return [{ kind: "strong", parts: inlineOf(token) }];
    case "em":
      return [{ kind: "emphasis", parts: inlineOf(token) }];
    case "del":
      return [{ kind: "deleted", parts: inlineOf(token) }];
    case "codespan":
      return [{ kind: "code", text: (token as Tokens.Codespan).text }];
    case "br":
      return [{ kind: "break" }];
    case "checkbox":
      return [];
    case "link": {
      const { href } = token as Tokens.Link;
      const parts = inlineOf(token);
      if (LINK.test(href)) return [{ kind: "link", address: href, parts }];
      return isAddress(parts, href) ? parts : [...parts, { kind: "text", text: ` (${href})` }];
    }
    case "image": {
      const { href, text } = token as Tokens.Image;
      if (IMAGE.test(href)) return [{ kind: "image", address: href, text }];
      const shown = href.startsWith("data:") ? "data" : href;
      return [{ kind: "text", text: `[image${text ? ` ${text}` : ""}: ${shown}]` }];
    }
    default:
      return inlineOf(token);
  }
}

/** Whether the text of a link is its address, as in `[train.py](train.py)`. */
function isAddress(parts: readonly Inline[], address: string): boolean {
  return parts.map(textOf).join("") === address;
}

function textOf(part: Inline): string {
  if ("text" in part) return part.text;
  return "parts" in part ? part.parts.map(textOf).join("") : "";
}

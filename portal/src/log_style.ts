// Colours and other styles of a log's text, as its program set them for a terminal. Every colour becomes one of those
// of the theme, which are readable on its background: no output can hide itself.
import Anser from "anser";
import { shownParts, splitSequences } from "./escape_sequences.ts";

/** A piece of text; its style is the names of classes, empty for plain text. */
export interface StyledPiece {
  readonly text: string;
  readonly style: string;
}

/** Pieces of a text; more would be slow to lay out. */
const MAX_PIECES = 4000;
const HUES = ["red", "yellow", "green", "cyan", "blue", "magenta"] as const;
const DECORATIONS = ["bold", "italic", "underline", "strikethrough"] as const;
/** Less coloured than this is grey, which is the colour of the text. */
const MIN_SATURATION = 0.2;

/** Reads the text of a log from its beginning on; the style goes on where it is not changed. */
export class LogStyle {
  private parser = new Anser();
  private style = "";

  pieces(raw: string): StyledPiece[] {
    const { plain, styles } = splitSequences(raw);
    const pieces: { text: string; style: string }[] = [];
    let next = 0;
    const add = (text: string) => {
      const last = pieces[pieces.length - 1];
      if (!text) return;
      if (last && (last.style === this.style || pieces.length >= MAX_PIECES)) last.text += text;
      else pieces.push({ text, style: this.style });
    };
    for (const { start, end } of plain.includes("\r") ? shownParts(plain) : [{ start: 0, end: plain.length }]) {
      let from = start;
      for (let change = styles[next]; change && change.at < end; change = styles[(next += 1)]) {
        if (change.at > from) {
          add(plain.slice(from, change.at));
          from = change.at;
        }
        this.apply(change.text);
      }
      add(plain.slice(from, end));
    }
    for (; next < styles.length; next += 1) this.apply(styles[next]?.text ?? "");
    return pieces;
  }

  private apply(sequence: string): void {
    const codes = sequence.slice(sequence.startsWith("\x1b") ? 2 : 1, -1);
    // Each is kept by the parser until the next reset.
    if (codes === "" || codes === "0") {
      this.parser = new Anser();
      this.style = "";
      return;
    }
    // The parser tells the style of a text, which must not be empty.
    const entry = this.parser.ansiToJson(`\x1b[${codes}m.`, { json: true, remove_empty: true })[0];
    this.style = entry ? classesOf(entry) : "";
    // The parser notes each again that a program repeats.
    const state = this.parser as unknown as { decorations: string[] };
    state.decorations = [...new Set(state.decorations)];
  }
}

function classesOf({ fg, bg, decorations }: Anser.AnserJsonEntry): string {
  const names: string[] = DECORATIONS.filter((name) => decorations.includes(name));
  const background = bg ? hueOf(bg) : undefined;
  const foreground = fg && !bg ? hueOf(fg) : undefined;
  // On a background the text keeps its own colour.
  if (bg) names.push(background ? `on-${background}` : "on-grey");
  else if (foreground) names.push(foreground);
  return names.map((name) => `sgr-${name}`).join(" ");
}

/** The hue that is nearest to a colour "r, g, b"; undefined for greys. */
export function hueOf(colour: string): (typeof HUES)[number] | undefined {
  const [red = 0, green = 0, blue = 0] = colour.split(",").map(Number);
  const most = Math.max(red, green, blue);
  const range = most - Math.min(red, green, blue);
  if (range <= most * MIN_SATURATION) return undefined;
  const sector = most === red ? (green - blue) / range : most === green ? 2 + (blue - red) / range : 4 + (red - green) / range;
  return HUES[(Math.round(sector) + HUES.length) % HUES.length];
}

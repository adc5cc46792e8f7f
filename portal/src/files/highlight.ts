// Colours of code: what the languages of the editor find in a text, as pieces with a class. Loaded by the first file with code.
import { StreamLanguage, type Language, type StreamParser } from "@codemirror/language";
import { json } from "@codemirror/lang-json";
import { yaml } from "@codemirror/lang-yaml";
import { classHighlighter, highlightCode } from "@lezer/highlight";

export interface Piece {
  readonly text: string;
  /** Empty: it has no colour. */
  readonly className: string;
}

type Load = () => Promise<Language>;

/** Of a longer text the rest has no colours. */
export const MAX_COLOURED_CHARS = 128 << 10;

const legacy =
  (load: () => Promise<StreamParser<unknown>>): Load =>
  async () =>
    StreamLanguage.define(await load());
const python = legacy(() => import("@codemirror/legacy-modes/mode/python").then((mode) => mode.python as StreamParser<unknown>));
const shell = legacy(() => import("@codemirror/legacy-modes/mode/shell").then((mode) => mode.shell as StreamParser<unknown>));
const toml = legacy(() => import("@codemirror/legacy-modes/mode/toml").then((mode) => mode.toml as StreamParser<unknown>));
const ini = legacy(() => import("@codemirror/legacy-modes/mode/properties").then((mode) => mode.properties as StreamParser<unknown>));
const clike = (name: "c" | "cpp" | "java" | "scala") =>
  legacy(() => import("@codemirror/legacy-modes/mode/clike").then((mode) => mode[name] as StreamParser<unknown>));
const script = (name: "javascript" | "typescript" | "json") =>
  legacy(() => import("@codemirror/legacy-modes/mode/javascript").then((mode) => mode[name] as StreamParser<unknown>));
const jsonLanguage: Load = () => Promise.resolve(json().language);
const yamlLanguage: Load = () => Promise.resolve(yaml().language);

/** By the ending of a name, and by what a block of Markdown says. */
const LANGUAGES: Readonly<Record<string, Load>> = {
  py: python,
  pyi: python,
  python: python,
  sh: shell,
  bash: shell,
  shell,
  toml,
  ini,
  cfg: ini,
  conf: ini,
  properties: ini,
  c: clike("c"),
  h: clike("cpp"),
  cc: clike("cpp"),
  cpp: clike("cpp"),
  cxx: clike("cpp"),
  hpp: clike("cpp"),
  cu: clike("cpp"),
  java: clike("java"),
  scala: clike("scala"),
  js: script("javascript"),
  mjs: script("javascript"),
  javascript: script("javascript"),
  ts: script("typescript"),
  typescript: script("typescript"),
  json: jsonLanguage,
  yml: yamlLanguage,
  yaml: yamlLanguage,
};

/** The text in pieces; null for a language that is not known. */
export async function piecesOf(text: string, ending: string): Promise<readonly Piece[] | null> {
  const load = Object.hasOwn(LANGUAGES, ending) ? LANGUAGES[ending] : undefined;
  if (!load) return null;
  const language = await load();
  const coloured = text.slice(0, MAX_COLOURED_CHARS);
  const pieces: Piece[] = [];
  const add = (part: string, className: string) => {
    const last = pieces[pieces.length - 1];
    if (last?.className === className) pieces[pieces.length - 1] = { text: last.text + part, className };
    else pieces.push({ text: part, className });
  };
  highlightCode(coloured, language.parser.parse(coloured), classHighlighter, add, () => add("\n", ""));
  if (text.length > coloured.length) add(text.slice(coloured.length), "");
  return pieces;
}

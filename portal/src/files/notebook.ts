// Notebooks (nbformat 4): cells with their text, and outputs as text or images. Markup is not shown as such.
import { cleanText } from "../escape_sequences.ts";

export type Output =
  { readonly kind: "text"; readonly text: string; readonly isError: boolean } | { readonly kind: "image"; readonly address: string };

export interface Cell {
  readonly kind: "code" | "markdown" | "raw";
  readonly count: number | null;
  readonly source: string;
  readonly outputs: readonly Output[];
}

/** Images that an output may have, by preference. */
const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"] as const;
const BASE64 = /^[A-Za-z0-9+/=\s]*$/;

type Json = Record<string, unknown>;

/** The cells of a notebook; null if the text is none. */
export function parseNotebook(text: string): readonly Cell[] | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (!isObject(value)) return null;
  const cells = value["cells"];
  return Array.isArray(cells) ? cells.filter(isObject).map(cellOf) : null;
}

function cellOf(cell: Json): Cell {
  const kind = cell["cell_type"];
  const count = cell["execution_count"];
  const outputs = Array.isArray(cell["outputs"]) ? cell["outputs"].filter(isObject) : [];
  return {
    kind: kind === "code" || kind === "raw" ? kind : "markdown",
    count: typeof count === "number" ? count : null,
    source: joined(cell["source"]),
    outputs: outputs.map(outputOf).filter((output) => output !== null),
  };
}

function outputOf(output: Json): Output | null {
  if (Array.isArray(output["traceback"])) {
    return { kind: "text", text: cleanText(output["traceback"].map(String).join("\n")), isError: true };
  }
  if (output["text"] !== undefined) {
    return { kind: "text", text: cleanText(joined(output["text"])), isError: output["name"] === "stderr" };
  }
  const data = isObject(output["data"]) ? output["data"] : {};
  for (const type of IMAGES) {
    const image = joined(data[type]);
    if (image && BASE64.test(image)) {
      return { kind: "image", address: `data:${type};base64,${image.replace(/\s/g, "")}` };
    }
  }
  const text = joined(data["text/plain"]) || joined(data["text/html"]);
  return text ? { kind: "text", text: cleanText(text), isError: false } : null;
}

/** A text that may be a list of lines. */
function joined(value: unknown): string {
  if (typeof value === "string") return value;
  return Array.isArray(value) ? value.filter((line) => typeof line === "string").join("") : "";
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// Completion of job files from the JSON Schema of the cluster. Works on texts that are not finished: YAML by its
// indentation, JSON by its brackets.

export interface Schema {
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly enum?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: boolean | Schema;
  readonly items?: Schema;
  readonly oneOf?: readonly Schema[];
  readonly anyOf?: readonly Schema[];
}

export interface Option {
  readonly label: string;
  /** What is inserted. */
  readonly apply: string;
  readonly info: string;
}

export interface Completions {
  /** The word that is completed. */
  readonly from: number;
  readonly to: number;
  readonly options: readonly Option[];
}

/** Names that only the cluster or the job knows, such as storages; `*` in the path is an item of a list. */
export type KnownNames = (path: readonly string[]) => readonly string[];

const ITEM = "*";

/** A place in the text: the path of the mapping or list around it, and what belongs there. */
interface Place {
  readonly path: readonly string[];
  readonly from: number;
  readonly to: number;
  /** Key whose value belongs here; null where a key belongs. */
  readonly key: string | null;
  /** Keys and plain values beside this place. */
  readonly siblings: ReadonlyMap<string, string>;
  readonly apply: (key: string, schema: Schema) => string;
  readonly applyValue: (value: string, isText: boolean) => string;
}

export function completionsAt(schema: Schema, text: string, at: number, names: KnownNames = () => []): Completions | null {
  const place = text.trimStart().startsWith("{") ? jsonPlace(text, at) : yamlPlace(text, at);
  if (!place) return null;
  const around = merged(resolve(schema, place.path), place.siblings);
  const options = place.key === null ? keyOptions(around, place) : valueOptions(around, place, place.key, names);
  return options.length ? { from: place.from, to: place.to, options } : null;
}

function keyOptions(around: Schema, place: Place): Option[] {
  return Object.entries(around.properties ?? {})
    .filter(([name]) => !place.siblings.has(name))
    .map(([name, schema]) => ({ label: name, apply: place.apply(name, schema), info: schema.description ?? "" }));
}

function valueOptions(around: Schema, place: Place, key: string, names: KnownNames): Option[] {
  const schema = flat(around.properties?.[key] ?? {});
  const known = schema.enum?.map(String) ?? (schema.type === "boolean" ? ["true", "false"] : names([...place.path, key]));
  const isText = schema.type !== "boolean" && typeof (schema.enum?.[0] ?? "") === "string";
  return known.map((label) => ({ label, apply: place.applyValue(label, isText), info: "" }));
}

// -- schema ----------------------------------------------------------------------------------------

function resolve(schema: Schema, path: readonly string[]): Schema {
  let at = schema;
  for (const name of path) {
    const here = merged(flat(at), new Map());
    const other = typeof here.additionalProperties === "object" ? here.additionalProperties : {};
    at = (name === ITEM ? here.items : (here.properties?.[name] ?? other)) ?? {};
  }
  return flat(at);
}

/** The schema itself where it may also be null. */
function flat(schema: Schema): Schema {
  return schema.anyOf?.[0] ?? schema;
}

/** One schema for a choice of several: the one whose fixed values are there, or else all together. */
function merged(schema: Schema, siblings: ReadonlyMap<string, string>): Schema {
  if (!schema.oneOf) return schema;
  const fits = schema.oneOf.filter((choice) =>
    Object.entries(choice.properties ?? {}).some(([name, { enum: values }]) => values?.length === 1 && siblings.get(name) === values[0]),
  );
  const properties: Record<string, Schema> = {};
  for (const choice of fits.length ? fits : schema.oneOf) {
    for (const [name, value] of Object.entries(choice.properties ?? {})) {
      const before = properties[name];
      properties[name] = before?.enum && value.enum ? { ...value, enum: [...before.enum, ...value.enum] } : (before ?? value);
    }
  }
  return { type: "object", properties };
}

// -- YAML ------------------------------------------------------------------------------------------

/** What a line opens: items of lists by their dashes, then a key; each with its column. */
interface Line {
  readonly dashes: readonly number[];
  readonly key: string | null;
  readonly column: number;
  readonly value: string;
}

const LINE = /^(\s*)((?:- +|-$)*)(?:(["']?)([\w.$-]+)\3:(?:\s+(.*)|$))?/;
const TYPED_KEY = /^(\s*(?:- +)*)([\w.$-]*)$/;
const TYPED_VALUE = /^\s*(?:- +)*([\w.$-]+):\s+(\S*)$/;

function lineOf(text: string): Line | null {
  if (!text.trim() || text.trimStart().startsWith("#")) return null;
  const match = LINE.exec(text);
  const indent = match?.[1] ?? "";
  const marks = match?.[2] ?? "";
  const dashes = [...marks.matchAll(/-/g)].map((dash) => indent.length + dash.index);
  const value = (match?.[5] ?? "").replace(/\s+#.*$/, "").replace(/^(["'])(.*)\1$/, "$2");
  return { dashes, key: match?.[4] ?? null, column: indent.length + marks.length, value };
}

function yamlPlace(text: string, at: number): Place | null {
  const before = text.slice(0, at).split("\n");
  const after = text.slice(at).split("\n").slice(1);
  const typed = before.pop() ?? "";
  const value = TYPED_VALUE.exec(typed);
  const key = TYPED_KEY.exec(typed);
  if (!value && !key) return null;
  const line = value ? lineOf(typed) : null;
  const start = key?.[1] ?? "";
  const column = line ? line.column : start.length;
  const dashes = line ? line.dashes : [...start.matchAll(/-/g)].map((dash) => dash.index);
  const { path, siblings } = climb(before, column, dashes);
  // Keys of the same mapping below this line.
  for (const below of after) {
    const line = lineOf(below);
    if (!line) continue;
    if (line.dashes.length ? (line.dashes[0] ?? 0) < column : line.column < column) break;
    if (line.key !== null && line.column === column && !line.dashes.length) siblings.set(line.key, line.value);
  }
  const word = (value ? value[2] : key?.[2]) ?? "";
  return {
    path,
    from: at - word.length,
    to: at,
    key: value?.[1] ?? null,
    siblings,
    apply: (name, schema) => {
      const inner = " ".repeat(column + 2);
      const { type, properties, additionalProperties } = flat(schema);
      if (type === "array") return `${name}:\n${inner}- `;
      return properties || typeof additionalProperties === "object" ? `${name}:\n${inner}` : `${name}: `;
    },
    applyValue: (value) => value,
  };
}

/** Path of the mapping whose keys are at `column`, and its keys above. */
function climb(above: readonly string[], column: number, dashes: readonly number[]): { path: string[]; siblings: Map<string, string> } {
  const path: string[] = [];
  const siblings = new Map<string, string>();
  let limit = column;
  let isItem = false;
  const enter = (dash: number) => {
    if (dash >= limit) return;
    path.unshift(ITEM);
    limit = dash;
    isItem = true;
  };
  for (const dash of [...dashes].reverse()) enter(dash);
  for (const text of [...above].reverse()) {
    const line = lineOf(text);
    if (!line) continue;
    if (line.key !== null) {
      // A list may begin at the column of its key.
      const isParent = line.column < limit || (isItem && line.column === limit && !line.dashes.length);
      if (!path.length && line.column === limit) siblings.set(line.key, line.value);
      if (isParent) {
        path.unshift(line.key);
        limit = line.column;
        isItem = false;
      }
    }
    for (const dash of [...line.dashes].reverse()) enter(dash);
  }
  return { path, siblings };
}

// -- JSON ------------------------------------------------------------------------------------------

interface Container {
  readonly isList: boolean;
  readonly keys: Map<string, string>;
  /** The last key; null where a key belongs. */
  key: string | null;
}

const STRING = /"((?:[^"\\\n]|\\.)*)("?)/y;
const WORD = /[\w.+-]+/y;

function jsonPlace(text: string, at: number): Place | null {
  const stack: Container[] = [];
  let from = at;
  let isOpen = false;
  const take = (value: string) => {
    const top = stack.at(-1);
    if (!top || top.isList) return;
    if (top.key === null) top.key = value;
    else top.keys.set(top.key, value);
  };
  for (let here = 0; here < at;) {
    const letter = text[here] ?? "";
    const pattern = letter === '"' ? STRING : WORD;
    pattern.lastIndex = here;
    const match = pattern.exec(text.slice(0, at));
    if (match) {
      const end = here + match[0].length;
      // The word at the cursor is what is completed.
      if (end >= at && (letter !== '"' || !match[2])) {
        from = letter === '"' ? here + 1 : here;
        isOpen = letter === '"';
        break;
      }
      take(match[1] ?? match[0]);
      here = end;
      continue;
    }
    if (letter === "{" || letter === "[") stack.push({ isList: letter === "[", keys: new Map(), key: null });
    else if (letter === "}" || letter === "]") stack.pop();
    else if (letter === ",") {
      const top = stack.at(-1);
      if (top) top.key = null;
    }
    here += 1;
  }
  const top = stack.at(-1);
  if (!top || top.isList) return null;
  // `"key" ` without its colon is neither a key nor a value.
  if (top.key !== null && !/[:{,[]\s*"?[\w.+-]*$/.test(text.slice(0, at))) return null;
  return {
    path: stack.slice(0, -1).map(({ isList, key }) => (isList ? ITEM : (key ?? ""))),
    from,
    // The editor closes quotes by itself.
    to: isOpen && text[at] === '"' ? at + 1 : at,
    key: top.key,
    siblings: top.keys,
    apply: (name) => (isOpen ? `${name}": ` : `"${name}": `),
    applyValue: (value, isText) => (isText ? (isOpen ? `${value}"` : `"${value}"`) : value),
  };
}

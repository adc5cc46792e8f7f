// How large the picture of an SVG file is once every reference to another element is followed.
//
// A browser draws what `<use>` and patterns refer to each time: ten levels of ten references are a file of a kilobyte,
// and ten thousand million elements, at which the page stands still.

/** Elements that a browser draws in a moment. */
const MAX_ELEMENTS = 200_000;
/** Groups in groups; what programs write has a few. */
const MAX_DEPTH = 100;
const TAG = /<(\/?)([^\s<>/"']+)((?:"[^"]*"|'[^']*'|[^"'<>])*)>/g;
const ID = /(?:^|\s)(?:xml:)?id\s*=\s*(?:"([^"]*)"|'([^']*)')/;
/** In attributes of any name: animations set others, too. A colour refers to nothing. */
const REFERENCE = /#([^\s"'();,&]+)/g;
/** What could hide a reference: declarations, style sheets with addresses, and other ways to write a character. */
const DECLARED = /<!(?:ENTITY|ATTLIST)|<\?xml-stylesheet|\sencoding\s*=\s*["'](?!utf-8|us-ascii|iso-8859-1)/i;
const ESCAPED = /&#|\\|#[^\s"'();,:]*%|data:\s*image\/svg/i;
const STYLE = /<(?:[^\s<>]*:)?style[\s/>]/i;
const ADDRESS = /url|\\|@/i;
/** What has no tags: where it begins and ends, and whether it is a text. */
const SECTIONS = [
  ["<!--", "-->", false],
  ["<![CDATA[", "]]>", true],
  ["<?", "?>", false],
] as const;

interface Part {
  elements: number;
  readonly references: string[];
  readonly parts: Part[];
  size?: number;
}

/** Whether a browser surely can draw this file without a standstill. False also for what is not understood. */
export function isDrawable(svg: string): boolean {
  if (DECLARED.test(svg)) return false;
  const text = withoutSections(svg);
  if (STYLE.test(text) && ADDRESS.test(text.replace(TAG, ""))) return false;
  // Of each name, all elements: where it is given twice, a browser takes one.
  const byId = new Map<string, Part>();
  const root = newPart();
  // The open elements: of each whether it has an id, and around which part it is.
  const open: (Part | null)[] = [];
  let current = root;
  for (const [, end, name = "", attributes = ""] of text.matchAll(TAG)) {
    if (name.startsWith("!")) continue;
    if (end) {
      current = open.pop() ?? current;
      continue;
    }
    if (ESCAPED.test(attributes)) return false;
    const id = ID.exec(attributes);
    const part = id ? newPart() : current;
    if (id) {
      current.parts.push(part);
      const named = byId.get(id[1] ?? id[2] ?? "") ?? newPart();
      named.parts.push(part);
      byId.set(id[1] ?? id[2] ?? "", named);
    }
    part.elements += 1;
    for (const [, target = ""] of attributes.matchAll(REFERENCE)) part.references.push(target);
    if (attributes.endsWith("/")) continue;
    open.push(id ? current : null);
    current = part;
  }
  return sizeOf(root, byId, 0) <= MAX_ELEMENTS;
}

/** Without comments and instructions; the text of sections without its marks. */
function withoutSections(svg: string): string {
  const kept: string[] = [];
  let at = 0;
  for (;;) {
    const next = svg.indexOf("<", at);
    if (next < 0) break;
    const section = SECTIONS.find(([start]) => svg.startsWith(start, next));
    if (!section) {
      kept.push(svg.slice(at, next + 1));
      at = next + 1;
      continue;
    }
    const [start, end, isText] = section;
    const ends = svg.indexOf(end, next + start.length);
    if (ends < 0) break; // no browser draws it
    kept.push(svg.slice(at, next), isText ? svg.slice(next + start.length, ends).replace(/[<>]/g, "") : "");
    at = ends + end.length;
  }
  return kept.join("") + svg.slice(at);
}

function newPart(): Part {
  return { elements: 0, references: [], parts: [] };
}

function sizeOf(part: Part, byId: ReadonlyMap<string, Part>, depth: number): number {
  if (part.size !== undefined) return part.size;
  if (depth > MAX_DEPTH) return Infinity;
  // A circle is drawn by no browser.
  part.size = 0;
  let size = part.elements;
  for (const inner of part.parts) size += sizeOf(inner, byId, depth + 1);
  for (const reference of part.references) {
    const target = byId.get(reference);
    if (target) size += sizeOf(target, byId, depth + 1);
  }
  part.size = size;
  return size;
}

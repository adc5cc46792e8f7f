import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_MARKDOWN_CHARS, parseMarkdown, parseMarkdowns, type Block, type Inline } from "../src/files/markdown.ts";

function parsed(text: string): readonly Block[] {
  // However busy the machine is, all is read.
  const blocks = parseMarkdown(text, () => 0);
  assert.ok(blocks);
  return blocks;
}

/** Everything that leads somewhere or is loaded, in any depth. */
function addresses(value: unknown): string[] {
  if (typeof value !== "object" || value === null) return [];
  const own = "address" in value ? [String(value.address)] : [];
  return [...own, ...Object.values(value).flatMap(addresses)];
}

function textOf(parts: readonly Inline[]): string {
  return parts.map((part) => ("parts" in part ? textOf(part.parts) : "text" in part ? part.text : "\n")).join("");
}

test("blocks and parts of Markdown", () => {
  const text =
    "# One *two*\n\nA `b` **c** ~~d~~  \ne\n\n1. x\n2. y\n\n- [x] done\n- [ ] open\n\n> q\n\n```py\nx = 1\n```\n\n|a|b|\n|-|-|\n|1|2|\n\n---\n";
  const blocks = parsed(text);
  assert.deepEqual(
    blocks.map(({ kind }) => kind),
    ["heading", "paragraph", "list", "list", "quote", "code", "table", "rule"],
  );
  assert.deepEqual(blocks[0], {
    kind: "heading",
    level: 1,
    parts: [
      { kind: "text", text: "One " },
      { kind: "emphasis", parts: [{ kind: "text", text: "two" }] },
    ],
  });
  const [, paragraph, ordered, tasks, , code, table] = blocks;
  assert.equal(paragraph?.kind === "paragraph" && textOf(paragraph.parts), "A b c d\ne");
  assert.equal(ordered?.kind === "list" && ordered.start, 1);
  assert.deepEqual(tasks?.kind === "list" && tasks.items.map(({ isDone }) => isDone), [true, false]);
  assert.deepEqual(code, { kind: "code", language: "py", text: "x = 1" });
  assert.deepEqual(table?.kind === "table" && table.rows.map((row) => row.map(textOf)), [["1", "2"]]);
});

test("markup of HTML is its text", () => {
  for (const markup of [
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    "<iframe src=//evil.example></iframe>",
    '<a href="javascript:alert(1)">x</a>',
  ]) {
    for (const text of [
      markup,
      `a ${markup} b`,
      `- ${markup}`,
      `> ${markup}`,
      `|a|\n|-|\n|${markup}|`,
      `# ${markup}`,
      `[${markup}](https://a.example)`,
    ]) {
      const blocks = parsed(text);
      assert.ok(JSON.stringify(blocks).includes(JSON.stringify(markup).slice(1, 8)), text);
      assert.deepEqual(
        addresses(blocks).filter((one) => one !== "https://a.example"),
        [],
        text,
      );
    }
  }
});

test("an address that a link cannot lead to is written once", () => {
  const textOf = (text: string) => JSON.stringify(parsed(text));
  assert.match(textOf("[the script](train.py)"), / \(train\.py\)/);
  for (const text of ["[train.py](train.py)", "[`train.py`](train.py)"]) assert.equal(textOf(text).match(/train\.py/g)?.length, 1);
});

test("links lead to pages and mail only", () => {
  const good = ["https://a.example/b?c#d", "http://a.example", "mailto:a@b.example", "HTTPS://a.example"];
  for (const address of good) assert.deepEqual(addresses(parsed(`[x](${address})`)), [address]);
  const bad = [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "java&#115;cript:alert(1)",
    "&#x6A;avascript:alert(1)",
    "<java\tscript:alert(1)>",
    "vbscript:x",
    "data:text/html,<script>alert(1)</script>",
    "data:text/html;base64,PHNjcmlwdD4=",
    "file:///etc/passwd",
    "//evil.example",
    "/api/v2/jobs",
    "#/jobs",
    "https://user@evil.example/",
    "https://bank.example:x@evil.example",
    "blob:https://a.example/x",
  ];
  for (const address of bad) {
    for (const text of [`[x](${address})`, `[x](<${address}>)`, `[x]: ${address}\n\n[x]`, `<${address}>`]) {
      assert.deepEqual(addresses(parsed(text)), [], text);
    }
  }
});

test("images are those in the file: nothing is loaded", () => {
  const inFile = "data:image/png;base64,iVBORw0KGgo=";
  assert.deepEqual(addresses(parsed(`![x](${inFile})`)), [inFile]);
  for (const address of [
    "https://evil.example/track.png",
    "//evil.example/x.png",
    "x.png",
    "/api/v2/info",
    "data:image/svg+xml;base64,PHN2Zz4=",
    "data:text/html;base64,aaaa",
    "data:image/png;base64,<b>",
    "javascript:alert(1)",
  ]) {
    const blocks = parsed(`![the picture](${address})`);
    assert.deepEqual(addresses(blocks), [], address);
  }
  assert.ok(JSON.stringify(parsed("![the picture](https://a.example/x.png)")).includes("[image the picture: https://a.example/x.png]"));
});

test("hostile texts are read in a bounded time", () => {
  const count = 200_000;
  const texts = ["_a_", "[", "*a ", ">", "`", "- ", "![", "**a", "<a ", "&", "~~a", "|", "[a](", "1. ", "\t", "<!--", "a@", "www."].map(
    (part) => part.repeat(count / part.length),
  );
  texts.push(Array.from({ length: 500 }, (_, at) => `${" ".repeat(2 * at)}- a`).join("\n"));
  texts.push("_a_".repeat(1000).concat("\n\n").repeat(60));
  for (const text of texts) {
    const began = performance.now();
    parseMarkdown(text);
    assert.ok(performance.now() - began < 10_000, `${text.slice(0, 20)} ${performance.now() - began}`);
  }
});

test("of several texts those are read that fit into the time", () => {
  let time = 0;
  const read = parseMarkdowns(["# a", "# b", "# c"], () => (time += 150));
  assert.notEqual(read[0], null);
  assert.equal(read[2], null);
});

test("a text that is too long is none", () => {
  assert.equal(parseMarkdown("a".repeat(MAX_MARKDOWN_CHARS + 1)), null);
});

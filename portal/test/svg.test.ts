import assert from "node:assert/strict";
import { test } from "node:test";
import { isDrawable } from "../src/files/svg.ts";
import { processorMs } from "./processor_time.ts";

const svg = (content: string, before = "") =>
  `${before}<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">${content}</svg>`;

function levels(depth: number, fan: number, reference: (to: string) => string): string {
  const groups = Array.from({ length: depth }, (_, at) => {
    const inner = at ? reference(`a${at - 1}`).repeat(fan) : '<rect width="1" height="1"/>';
    return `<g id="a${at}">${inner}</g>`;
  });
  return svg(`<defs>${groups.join("")}</defs>${reference(`a${depth - 1}`)}`);
}

test("pictures of usual programs are drawn", () => {
  const declaration = '<?xml version="1.0" encoding="utf-8" standalone="no"?>\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "x.dtd">';
  const glyphs = '<defs><style type="text/css">*{stroke-linejoin: round}</style><path id="g" d="M 0 0"/></defs>';
  const marks = '<g clip-path="url(#p)"><use xlink:href="#g" style="fill: #1f77b4"/></g>'.repeat(20_000);
  assert.ok(isDrawable(svg(`${glyphs}${marks}<clipPath id="p"><rect/></clipPath>`, declaration)));
  assert.ok(isDrawable("<svg/>"));
  // A circle of references draws nothing.
  assert.ok(isDrawable(svg('<g id="a"><use href="#b"/></g><g id="b"><use href="#a"/></g>')));
});

test("references that multiply are not drawn", () => {
  assert.ok(!isDrawable(levels(9, 10, (to) => `<use xlink:href="#${to}"/>`)));
  assert.ok(!isDrawable(levels(60, 2, (to) => `<use href='#${to}'></use>`)));
  assert.ok(!isDrawable(levels(9, 10, (to) => `<x:use y:href = " #${to}"/>`)));
  assert.ok(!isDrawable(levels(9, 10, (to) => `<rect style="fill:url(#${to})"/>`)));
  assert.ok(!isDrawable(levels(9, 10, (to) => `<use><set attributeName="href" to="#${to}"/></use>`)));
  assert.ok(!isDrawable(levels(9, 10, (to) => `<use title=">" href="#${to}"/>`)));
});

test("what may hide references is not drawn", () => {
  assert.ok(!isDrawable(svg("&b;", '<!DOCTYPE svg [<!ENTITY a "x"><!ENTITY b "&a;&a;">]>')));
  assert.ok(!isDrawable(svg('<use href="&#35;a"/>')));
  assert.ok(!isDrawable(svg('<rect style="fill:url(\\23 a)"/>')));
  assert.ok(!isDrawable(svg("<style>rect { fill: url(#a) }</style>")));
  assert.ok(!isDrawable(svg("<style><![CDATA[rect { fill: url(#a) }]]></style>")));
  assert.ok(!isDrawable(svg("", '<?xml version="1.0" encoding="utf-16"?>')));
});

test("comments, doubled names and sections hide nothing", () => {
  const bomb = (before: string, inside: string) =>
    svg(`${before}${levels(9, 10, (to) => `<use href="#${to}"/>`).replaceAll("<use", `${inside}<use`)}`);
  assert.ok(!isDrawable(bomb('<g id="a3"/>', "")));
  assert.ok(!isDrawable(bomb("", "<!-- </g> -->")));
  assert.ok(!isDrawable(bomb("", "<![CDATA[ </g> ]]>")));
  assert.ok(!isDrawable(bomb("", "<?x </g> ?>")));
  assert.ok(!isDrawable(levels(9, 10, (to) => `<rect style="fill:url(&quot;#${to}&quot;)"/>`)));
  assert.ok(!isDrawable(svg("<style><!-- x -->rect { fill: url(#a) }</style>")));
  assert.ok(!isDrawable(svg("<style><a/>rect { fill: url(#a) }</style>")));
  assert.ok(!isDrawable(svg('<use href="#%61"/>')));
  assert.ok(!isDrawable(svg('<image href="data:image/svg+xml;base64,PHN2Zy8+"/>')));
  assert.ok(isDrawable(svg('<!-- url(#a) --><image href="data:image/png;base64,iVBO"/><stop offset="50%" style="stop-color:#fff"/>')));
});

test("damaged files take no long time", () => {
  for (const part of [
    "<",
    "<a ",
    '<a "',
    "<style",
    "<g id='a'>",
    '<use href="#a"/>',
    "encoding=",
    "<a b='",
    "#",
    "<style>x",
    "<!--",
    "<![CDATA[",
    "<?",
    "</g>",
  ]) {
    const began = processorMs();
    isDrawable(part.repeat(200_000));
    assert.ok(processorMs() - began < 3000, part);
  }
});

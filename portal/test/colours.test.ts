import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { COLOURS, dashOf, seriesLook } from "../src/plot/colours.ts";

/** Colours of a token in the light and the dark theme. */
function themed(token: string): readonly string[] {
  const tokens = readFileSync("src/style/tokens.css", "utf8");
  const found = new RegExp(`${token}: light-dark\\((#\\w+), (#\\w+)\\)`).exec(tokens);
  assert.ok(found, token);
  return found.slice(1);
}

function luminance(colour: string): number {
  const digits = colour.length === 4 ? colour.replace(/[^#]/g, "$&$&").slice(1).match(/../g) : colour.slice(1).match(/../g);
  const [red = 0, green = 0, blue = 0] = (digits ?? []).map((pair) => {
    const part = Number.parseInt(pair, 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one: string, other: string): number {
  const [low = 0, high = 0] = [luminance(one), luminance(other)].sort((first, second) => first - second);
  return (high + 0.05) / (low + 0.05);
}

test("32 lines have different looks, by their dashes where the colours repeat", () => {
  const looks = Array.from({ length: 33 }, (_, at) => seriesLook(at));
  assert.equal(new Set(looks.map((look) => `${look.colour} ${dashOf(look).join(" ")}`)).size, 32);
  assert.deepEqual(dashOf(seriesLook(COLOURS - 1)), []);
  assert.deepEqual(seriesLook(32), seriesLook(0));
});

test("lines are seen on the surface of both themes", () => {
  const surfaces = themed("--surface");
  for (let at = 1; at <= COLOURS; at += 1) {
    const colours = themed(`--series-${at}`);
    for (const theme of [0, 1]) assert.ok(contrast(colours[theme] ?? "", surfaces[theme] ?? "") >= 4.5, `series ${at}`);
  }
});

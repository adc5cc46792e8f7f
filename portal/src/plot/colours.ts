// Looks of lines in plots: colours as CSS, and dashes where there are more lines than colours.

/** As many as `tokens.css` has. */
export const COLOURS = 8;

/** Lengths of dashes and gaps in pixels: solid, dashed, dotted, and both. */
const DASHES: readonly (readonly number[])[] = [[], [8, 4], [2, 3], [9, 3, 2, 3]];

export interface Look {
  readonly colour: string;
  /** How often all colours were used before: lines have other dashes then, and points another shape. */
  readonly round: number;
}

const seriesColour = (at: number) => `var(--series-${(at % COLOURS) + 1})`;

/** The look of one of several lines: 32 of them differ. */
export function seriesLook(at: number): Look {
  return { colour: seriesColour(at), round: Math.floor(at / COLOURS) % DASHES.length };
}

export function dashOf({ round }: Pick<Look, "round">): readonly number[] {
  return DASHES[round] ?? [];
}

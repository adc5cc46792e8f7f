// Colours of lines in plots, as CSS.

/** As many as `tokens.css` has. */
export const COLOURS = 8;

export const seriesColour = (at: number) => `var(--series-${(at % COLOURS) + 1})`;

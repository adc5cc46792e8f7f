// Settings of the plots of a job, as they are in the address: words such as `log smooth0.9 from10`.

export type Best = "lowest" | "highest" | "none";

export interface PlotSettings {
  readonly isTime: boolean;
  readonly isLogX: boolean;
  readonly isLogY: boolean;
  readonly isFromZero: boolean;
  /** Weight of the earlier values in the moving average; 0: no smoothing. */
  readonly smoothing: number;
  readonly best: Best;
  /** Part of the horizontal axis that is shown; NaN: to its end. */
  readonly from: number;
  readonly to: number;
  /** Whether the metrics of a group are in one plot. */
  readonly isTogether: boolean;
}

export type SomeSettings = Partial<PlotSettings>;

/** In the address: those of all plots, and what differs in the plot of a metric, or of a group. */
export const ALL_PLOTS = "plots";
export const plotKey = (name: string) => `plot.${name}`;

export const MAX_SMOOTHING = 0.99;

const DEFAULTS: PlotSettings = {
  isTime: false,
  isLogX: false,
  isLogY: false,
  isFromZero: false,
  smoothing: 0,
  best: "none",
  from: NaN,
  to: NaN,
  isTogether: false,
};

const WORDS: Readonly<Record<string, SomeSettings>> = {
  step: { isTime: false },
  time: { isTime: true },
  logx: { isLogX: true },
  linearx: { isLogX: false },
  log: { isLogY: true },
  linear: { isLogY: false },
  zero: { isFromZero: true },
  fit: { isFromZero: false },
  lowest: { best: "lowest" },
  highest: { best: "highest" },
  unmarked: { best: "none" },
  together: { isTogether: true },
  apart: { isTogether: false },
};

/** What a text of the address says; unknown words say nothing. */
export function parseSettings(text: string): SomeSettings {
  let settings: SomeSettings = {};
  for (const word of text.split(" ")) {
    const [, name = "", digits = ""] = /^(smooth|from|to)(-?\d.*)$/.exec(word) ?? [];
    const number = digits ? Number(digits) : NaN;
    if (Number.isFinite(number)) {
      if (name === "smooth") settings = { ...settings, smoothing: Math.min(MAX_SMOOTHING, Math.max(0, number)) };
      else settings = { ...settings, [name]: number };
    } else settings = { ...settings, ...(Object.hasOwn(WORDS, word) ? WORDS[word] : {}) };
  }
  return settings;
}

export function formatSettings(settings: SomeSettings): string {
  const words = Object.entries(WORDS)
    .filter(([, meaning]) => Object.entries(meaning).every(([key, value]) => settings[key as keyof PlotSettings] === value))
    .map(([word]) => word);
  const { smoothing, from, to } = settings;
  if (smoothing !== undefined) words.push(`smooth${smoothing}`);
  if (from !== undefined && !Number.isNaN(from)) words.push(`from${from}`);
  if (to !== undefined && !Number.isNaN(to)) words.push(`to${to}`);
  return words.join(" ");
}

/** Of a plot: what its metric is for, then what all plots have, then its own. */
export function settingsOf(name: string, ...given: readonly SomeSettings[]): PlotSettings {
  return Object.assign({ ...DEFAULTS, best: bestOf(name) }, ...given);
}

/** What of the wanted settings is not so already. */
export function differing(base: PlotSettings, wanted: SomeSettings): SomeSettings {
  const keys = Object.keys(wanted) as (keyof PlotSettings)[];
  return Object.fromEntries(keys.filter((key) => !Object.is(wanted[key], base[key])).map((key) => [key, wanted[key]]));
}

const LOW = /loss|err(or)?s?\b|perplexity|\b(mse|mae|rmse|wer|cer|eer|fid|ppl|nll|bpb|bpc)\b/;
const HIGH = /acc(uracy)?\d*\b|score|reward|\b(returns?|precision|recall|f1|auc|auroc|bleu|rouge|m?iou|m?ap|psnr|ssim|dice|r2|top\d)\b/;

/** Which value of a metric with this name is the best one. */
export function bestOf(name: string): Best {
  const words = name.toLowerCase().replace(/[_\-.]/g, " ");
  if (LOW.test(words)) return "lowest";
  return HIGH.test(words) ? "highest" : "none";
}

import assert from "node:assert/strict";
import { test } from "node:test";
import { bestOf, differing, formatSettings, parseSettings, settingsOf, type SomeSettings } from "../src/plot/plot_settings.ts";

test("settings that are written to the address are read from it", () => {
  const all: SomeSettings[] = [
    {},
    { isTime: true, isLogX: false, isLogY: true, isFromZero: true, smoothing: 0.6, best: "highest", from: -10, to: 1.5e21 },
    { isTime: false, isLogX: true, isLogY: false, isFromZero: false, smoothing: 0, best: "none", isTogether: true },
    { best: "lowest", isTogether: false, to: 0 },
  ];
  for (const settings of all) assert.deepEqual(parseSettings(formatSettings(settings)), settings);
  assert.equal(formatSettings({ isLogY: true, smoothing: 0.9, from: 10, to: NaN }), "log smooth0.9 from10");
});

test("unknown words and numbers out of bounds do no harm", () => {
  assert.deepEqual(parseSettings("smooth7 from to- toString log x smooth from1x"), { smoothing: 0.99, isLogY: true });
});

test("a plot has the settings of all plots, and its own before them", () => {
  const settings = settingsOf("loss", { isLogY: true, smoothing: 0.5 }, { smoothing: 0 });
  assert.deepEqual([settings.isLogY, settings.smoothing, settings.best], [true, 0, "lowest"]);
  assert.deepEqual(differing(settings, { isLogY: false, smoothing: 0, from: NaN }), { isLogY: false });
});

test("the name of a metric says which value is the best", () => {
  const names: [string, string][] = [
    ["loss", "lowest"],
    ["train/total_loss", "lowest"],
    ["val_loss", "lowest"],
    ["eval-WER", "lowest"],
    ["error", "lowest"],
    ["rmse", "lowest"],
    ["accuracy", "highest"],
    ["val/acc1", "highest"],
    ["mAP", "highest"],
    ["episode_reward", "highest"],
    ["f1", "highest"],
    ["lr", "none"],
    ["terrain", "none"],
    ["gradient_norm", "none"],
    ["mapped", "none"],
  ];
  assert.deepEqual(
    names.map(([name]) => [name, bestOf(name)]),
    names,
  );
});

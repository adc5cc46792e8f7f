// Runs the unit tests: bundles `test/*.test.ts` for Node.js, with packages as the browser gets them.
// `test.mjs browser FOLDER` bundles `test/browser/*.test.ts*`, which need a page, as scripts into a folder.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

const here = path.dirname(new URL(import.meta.url).pathname);
const [kind, target] = process.argv.slice(2);
if (kind === "browser") {
  const inPage = readdirSync(path.join(here, "test/browser")).filter((name) => /\.test\.tsx?$/.test(name));
  await build({
    entryPoints: inPage.map((name) => path.join(here, "test/browser", name)),
    outdir: target,
    bundle: true,
    format: "iife",
    target: "es2022",
    jsx: "automatic",
    jsxImportSource: "preact",
    logLevel: "warning",
  });
  process.exit();
}
const tests = readdirSync(path.join(here, "test")).filter((name) => name.endsWith(".test.ts"));
const folder = mkdtempSync(path.join(tmpdir(), "portal-tests-"));
try {
  await build({
    entryPoints: tests.map((name) => path.join(here, "test", name)),
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "browser",
    external: ["node:*"],
    format: "esm",
    target: "node24",
    logLevel: "warning",
  });
  const built = readdirSync(folder).map((name) => path.join(folder, name));
  const run = spawnSync(process.execPath, ["--test", "--test-reporter=tap", ...built], { stdio: "inherit", cwd: here });
  process.exitCode = run.status ?? 1;
} finally {
  rmSync(folder, { recursive: true });
}

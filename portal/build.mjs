// Bundles the portal: `node build.mjs FOLDER`. Names contain a hash of the content, except that of the page.
import { build } from "esbuild";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const folder = path.resolve(process.argv[2] ?? path.join(here, "dist"));

// What is loaded when needed shares modules with the first load, each part with others: the bundler would make a file
// of each such set. With an import of the entry in every part, all that the first load needs lies in one file.
const entry = path.join(here, "src/main.tsx");
const oneFirstLoad = {
  name: "one-first-load",
  setup({ onLoad, onResolve, resolve }) {
    const parts = new Set();
    onResolve({ filter: /^\./ }, async ({ kind, path: name, resolveDir }) => {
      if (kind !== "dynamic-import") return undefined;
      const found = await resolve(name, { kind: "import-statement", resolveDir });
      parts.add(found.path);
      return found;
    });
    onLoad({ filter: /\.tsx?$/ }, async ({ path: name }) => {
      if (!parts.has(name)) return undefined;
      const contents = `import ${JSON.stringify(entry)};\n${await readFile(name, "utf8")}`;
      return { contents, loader: path.extname(name).slice(1) };
    });
  },
};

const result = await build({
  entryPoints: { portal: entry, style: path.join(here, "src/style/style.css") },
  outdir: folder,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  minify: true,
  metafile: true,
  write: false,
  logLevel: "warning",
  plugins: [oneFirstLoad],
});

const files = new Map(result.outputFiles.map((file) => [path.basename(file.path), Buffer.from(file.contents)]));
const named = (prefix, suffix) => [...files.keys()].find((name) => name.startsWith(prefix) && name.endsWith(suffix));
const page = (await readFile(path.join(here, "src/index.html"), "utf8"))
  .replace("{{style}}", named("style-", ".css"))
  .replace("{{script}}", named("portal-", ".js"));
// `<script>` in the page, then what it imports at once: loaded in parallel instead of one after the other.
const output = Object.entries(result.metafile.outputs).find(([name]) => path.basename(name) === named("portal-", ".js"))[1];
const imports = output.imports.filter((one) => one.kind === "import-statement").map((one) => path.basename(one.path));
const preload = imports.map((name) => `<link rel="modulepreload" href="portal/${name}">`).join("");
files.set("index.html", Buffer.from(page.replace("{{preload}}", preload)));
files.set("icon.svg", await readFile(path.join(here, "src/icon.svg")));

await mkdir(folder, { recursive: true });
const written = new Set();
// The page last: a server that reads the folder meanwhile finds everything the page names.
const order = [...files.keys()].sort((a, b) => Number(a === "index.html") - Number(b === "index.html"));
for (const name of order) {
  const content = files.get(name);
  const brotli = brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } });
  await writeFile(path.join(folder, `${name}.br`), brotli);
  await writeFile(path.join(folder, `${name}.gz`), gzipSync(content, { level: 9 }));
  written.add(`${name}.br`).add(`${name}.gz`);
}
for (const name of await readdir(folder)) if (!written.has(name)) await rm(path.join(folder, name));

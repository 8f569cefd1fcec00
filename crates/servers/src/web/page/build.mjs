// Makes the files in built/, which are part of the program: the same bytes on each machine.
// node build.mjs [FOLDER] writes them into another folder.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { gzipSync } from "fflate";

const here = dirname(fileURLToPath(import.meta.url));
const folder = process.argv[2] ?? join(here, "built");
// The packages may be installed elsewhere; their paths must not be in the files.
const source = join(here, "source");

/** Leaves out style sheets that packages ask for by themselves: those of the page name what they need. */
const ownStyles = {
  name: "own styles",
  setup(build) {
    build.onResolve({ filter: /\.css$/ }, ({ importer, kind }) => {
      const isOwn = importer.startsWith(source) || kind === "import-rule";
      return isOwn ? undefined : { path: "none", namespace: "none" };
    });
    build.onLoad({ filter: /.*/, namespace: "none" }, () => ({ contents: "" }));
  },
};

/** Makes a style sheet of the rules that plotly would add to the page by itself, which the content security policy forbids. */
const plotlyStyles = {
  name: "styles of plotly",
  setup(build) {
    build.onResolve({ filter: /^plotly-styles$/ }, () => ({ path: "plotly", namespace: "plotly-styles" }));
    build.onLoad({ filter: /.*/, namespace: "plotly-styles" }, async () => {
      const { path } = await build.resolve("plotly.js-strict-dist-min", { kind: "import-statement", resolveDir: here });
      const text = await readFile(path, "utf8");
      const start = text.indexOf('{"X,X div":');
      const rules = text.slice(start, text.indexOf("};", start));
      const found = [...rules.matchAll(/"([XY][^"]*)":(?:"([^"]*)"|'([^']*)')/g)];
      if (found.length < 50) throw new Error("plotly has its rules elsewhere");
      const names = (text) => text.replaceAll("X", ".js-plotly-plot .plotly").replaceAll("Y", ".plotly-notifier");
      const contents = found.map(([, name, double, single]) => `${names(name)}{${double ?? single}}`).join("\n");
      return { contents, loader: "css" };
    });
  },
};

await mkdir(folder, { recursive: true });
const { outputFiles } = await build({
  absWorkingDir: here,
  // The page loads the others when an output needs them.
  entryPoints: ["page", "math", "plotly", "vega", "widgets"].map((name) => join(source, `${name}.js`)),
  external: ["/math.js", "/plotly.js", "/vega.js", "/widgets.js"],
  outdir: folder,
  write: false,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome115", "firefox115", "safari16.4"],
  charset: "ascii",
  legalComments: "none",
  loader: { ".svg": "dataurl" },
  define: { "process.env.NODE_ENV": '"production"', "process.env": "{}", global: "globalThis" },
  nodePaths: process.env.NODE_PATH ? [process.env.NODE_PATH] : [],
  alias: {
    path: "path-browserify",
    // Widgets of ipywidgets 7 are shown by the classes of 8.
    "@jupyter-widgets/base7": "@jupyter-widgets/base",
    "@jupyter-widgets/controls7": "@jupyter-widgets/controls",
  },
  plugins: [ownStyles, plotlyStyles],
  logLevel: "warning",
});
for (const { path, contents } of outputFiles) {
  // Node's own gzip gives other bytes on other machines.
  await writeFile(join(folder, `${basename(path)}.gz`), gzipSync(contents, { level: 9, mtime: 0 }));
}
// The policy lets the page load no image from an address.
const icon = `data:image/svg+xml;base64,${await readFile(join(source, "icon.svg"), "base64")}`;
const index = await readFile(join(source, "index.html"), "utf8");
await writeFile(join(folder, "index.html"), index.replace("/icon.svg", icon));

// Makes the files in built/, which are part of the program: the same bytes on each machine.
// node build.mjs [FOLDER] writes them into another folder.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const folder = process.argv[2] ?? join(here, "built");
// The packages may be installed elsewhere; their paths must not be in the files.
const source = join(here, "source");

await mkdir(folder, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { page: join(source, "page.js") },
  outdir: folder,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome115", "firefox115", "safari16.4"],
  charset: "ascii",
  legalComments: "none",
  loader: { ".svg": "dataurl" },
  define: { "process.env.NODE_ENV": '"production"', "process.env": "{}", global: "globalThis" },
  nodePaths: process.env.NODE_PATH ? [process.env.NODE_PATH] : [],
  alias: { path: "path-browserify" },
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg"]) {
  await writeFile(join(folder, name), await readFile(join(source, name)));
}

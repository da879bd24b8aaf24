// Builds the site: index.json from the Markdown files, the page's script with all its imports, and the page.
//
//     node build.mjs [FOLDER]

import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

import MiniSearch from "minisearch";

import { readSections } from "./sections.mjs";

const HERE = new URL(".", import.meta.url).pathname;
// The tools come from the client's package; this folder pins only MiniSearch.
export const requireOfClient = createRequire(new URL("../../clients/browser/package.json", import.meta.url));

/** MiniSearch in the usual setup. */
export const MINISEARCH = {
  fields: ["title", "parents", "text"],
  searchOptions: { boost: { title: 2 }, prefix: true, fuzzy: 0.2 },
};

/** Build the site in a folder; return its sections. */
export async function buildSite(folder) {
  mkdirSync(folder, { recursive: true });
  const sections = readSections();
  const index = new MiniSearch(MINISEARCH);
  index.addAll(sections);
  writeFileSync(join(folder, "index.json"), JSON.stringify({ options: MINISEARCH, sections, index }));
  for (const name of ["index.html", "features.json"]) copyFileSync(join(HERE, name), join(folder, name));
  await bundle(join(HERE, "page.ts"), join(folder, "page.js"), "browser");
  return sections;
}

/** Bundle a script with all its imports, for a page or for Node.js. */
export async function bundle(script, outfile, platform) {
  const forPage = { target: "es2022", minify: true, define: { global: "globalThis" } };
  const imports = `import { createRequire } from "node:module"; const require = createRequire(import.meta.url);`;
  const forNode = { banner: { js: imports } };
  const options = platform === "browser" ? forPage : forNode;
  const { build } = requireOfClient("esbuild");
  await build({ entryPoints: [script], outfile, platform, bundle: true, format: "esm", logLevel: "error", ...options });
}

if (process.argv[1] === import.meta.filename) {
  const folder = process.argv[2] ?? join(HERE, "dist");
  console.log(`${(await buildSite(folder)).length} sections in ${folder}`);
}

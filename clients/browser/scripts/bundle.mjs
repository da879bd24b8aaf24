// Make the files of the package in dist/package from what tsc has compiled: a module for each entry, the parts that they
// load later, and the types that a caller can reach.
import { build } from "esbuild";
import { cpSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";

const FROM = "dist/src";
const TO = "dist/package";
const ENTRIES = ["index", "schema"];

rmSync(TO, { recursive: true, force: true });
await build({
  entryPoints: ENTRIES.map((name) => `${FROM}/${name}.js`),
  outdir: TO,
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  packages: "external",
  logLevel: "error",
});

const copied = new Set();
function copyTypes(path) {
  if (copied.has(path)) return;
  copied.add(path);
  mkdirSync(dirname(join(TO, path)), { recursive: true });
  cpSync(join(FROM, path), join(TO, path));
  for (const [, module] of readFileSync(join(FROM, path), "utf8").matchAll(/ from "(\.[^"]+)\.js"/g))
    copyTypes(join(dirname(path), `${module}.d.ts`));
}
for (const name of ENTRIES) copyTypes(`${name}.d.ts`);

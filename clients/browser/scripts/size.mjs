// Print what a page loads of an application's bundle, minified and gzipped: the client with its schema and gate, and
// MQTT.js. Fail if the README states something else.
import { build } from "esbuild";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const PAGE = `export * from "./dist/package/index.js"; export * from "./dist/package/schema.js";`;
const README = readFileSync("README.md", "utf8").replace(/\s+/g, " ");

/** Return the gzipped bytes of the modules that are loaded by default: all but the report's and Ed25519's. */
async function sizeOf(external) {
  const { outputFiles } = await build({
    stdin: { contents: PAGE, resolveDir: "." },
    outdir: "size",
    bundle: true,
    splitting: true,
    minify: true,
    format: "esm",
    target: "es2022",
    external,
    write: false,
    logLevel: "error",
  });
  const later = outputFiles.filter(({ path }) => /(report|ed25519)-[\w-]+\.js$/.test(path));
  if (later.length !== 2) throw new Error("the report and Ed25519 are no longer in separate files");
  const loaded = outputFiles.filter((file) => !later.includes(file));
  return loaded.reduce((sum, { contents }) => sum + gzipSync(contents, { level: 9 }).length, 0);
}

const [own, all] = [await sizeOf(["mqtt"]), await sizeOf([])];
const stated = `${Math.round(all / 1000)} KB gzipped, ${Math.round(own / 1000)} KB of them this client`;
console.log(stated);
if (!README.includes(stated)) {
  console.error(`README.md must say: ${stated}`);
  process.exitCode = 1;
}

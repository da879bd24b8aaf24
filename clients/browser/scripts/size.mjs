// Print the size of a page's modules beside MQTT.js, minified and gzipped; fail above the promised size.
import { build } from "esbuild";
import { basename } from "node:path";
import { gzipSync } from "node:zlib";

const LIMIT = 29_000;
const MODULES = ["./src/index.ts", "./src/schema.ts"];

/** Return the gzipped bytes of each file in an application's bundle of the modules, by name. */
async function sizes() {
  const { outputFiles } = await build({
    stdin: { contents: MODULES.map((path) => `export * from "${path}";`).join("\n"), resolveDir: ".", loader: "ts" },
    outdir: "size",
    bundle: true,
    splitting: true,
    minify: true,
    format: "esm",
    external: ["mqtt"],
    write: false,
    logLevel: "error",
  });
  return outputFiles.map(({ path, contents }) => [basename(path), gzipSync(contents, { level: 9 }).length]);
}

const files = await sizes();
const bytesOf = (isMeant) => files.reduce((sum, [name, size]) => sum + (isMeant(name) ? size : 0), 0);
const ed25519 = bytesOf((name) => name.startsWith("ed25519-"));
const gate = bytesOf((name) => name.startsWith("gate-"));
const byDefault = bytesOf(() => true) - ed25519; // client, schema and gate: all but the Ed25519 module
console.log(`gzipped: ${byDefault} bytes, ${gate} of them the gate; ${ed25519} more where WebCrypto has no Ed25519`);
if (byDefault > LIMIT || gate === 0 || ed25519 === 0) {
  console.error(`more than ${LIMIT}, or gate and Ed25519 are no longer in separate files`);
  process.exitCode = 1;
}

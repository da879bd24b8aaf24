// Say how large the client is, minified and gzipped, beside MQTT.js; fail above what is promised.
import { build } from "esbuild";
import { basename } from "node:path";
import { gzipSync } from "node:zlib";

const LIMIT = 25_000;

/** Return the gzipped bytes of what a page loads at once, and by name of the modules that are loaded where needed. */
async function sizesOf(...modules) {
  const { outputFiles } = await build({
    stdin: { contents: modules.map((path) => `export * from "${path}";`).join("\n"), resolveDir: ".", loader: "ts" },
    outdir: "size",
    bundle: true,
    splitting: true,
    minify: true,
    format: "esm",
    external: ["mqtt"],
    write: false,
    logLevel: "error",
  });
  const sizes = outputFiles.map(({ path, contents }) => [basename(path), gzipSync(contents, { level: 9 }).length]);
  const total = (is) => sizes.reduce((sum, [name, size]) => sum + (is(name) ? size : 0), 0);
  const isLater = (name) => /^(gate|ed25519)-/.test(name); // what they would share with the rest is loaded at once
  return [
    total((name) => !isLater(name)),
    total((name) => /^gate-/.test(name)),
    total((name) => /^ed25519-/.test(name)),
  ];
}

const [client, gate, ed25519] = await sizesOf("./src/index.ts");
const [withSchema] = await sizesOf("./src/index.ts", "./src/schema.ts");
console.log(
  `gzipped: ${client} bytes, with a feature schema ${withSchema}; ${gate} more for the gate, ` +
    `and ${ed25519} where WebCrypto has no Ed25519`,
);
if (client > LIMIT) {
  console.error(`that is above ${LIMIT}`);
  process.exitCode = 1;
}

// Say how large the client is, minified and gzipped, beside MQTT.js; fail above what is promised.
import { build } from "esbuild";
import { gzipSync } from "node:zlib";

const LIMIT = 25_000;

/** Return the gzipped bytes of what a page loads at once, and of what it loads only where it is needed. */
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
  const sizes = outputFiles.map(({ path, contents }) => [path.endsWith("stdin.js"), gzipSync(contents, { level: 9 })]);
  const total = (isFirst) => sizes.reduce((sum, [is, { length }]) => sum + (is === isFirst ? length : 0), 0);
  return [total(true), total(false)];
}

const [client, later] = await sizesOf("./src/index.ts");
const [withSchema] = await sizesOf("./src/index.ts", "./src/schema.ts");
console.log(
  `gzipped: ${client} bytes, with a feature schema ${withSchema}, where WebCrypto has no Ed25519 ${later} more`,
);
if (client > LIMIT) {
  console.error(`that is above ${LIMIT}`);
  process.exitCode = 1;
}

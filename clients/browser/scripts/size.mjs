// Say how large the client is, minified and gzipped, beside MQTT.js; fail above what is promised.
import { build } from "esbuild";
import { gzipSync } from "node:zlib";

const LIMIT = 25_000;

const { outputFiles } = await build({
  entryPoints: ["src/index.ts"],
  outdir: "size",
  bundle: true,
  splitting: true,
  minify: true,
  format: "esm",
  external: ["mqtt"],
  write: false,
  logLevel: "error",
});
for (const { path, contents } of outputFiles) {
  const size = gzipSync(contents, { level: 9 }).length;
  const isClient = path.endsWith("index.js");
  console.log(`${isClient ? "the client" : "loaded where WebCrypto has no Ed25519"}: ${size} bytes gzipped`);
  if (isClient && size > LIMIT) {
    console.error(`more than ${LIMIT} bytes`);
    process.exitCode = 1;
  }
}

// What npm packs is small, and an application compiles and runs with it, by either way of finding modules.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

const CLIENT = new URL("../../", import.meta.url).pathname;
const APPLICATION = `
import { EdgeClient, SettingsError, type DeviceState, type EdgeClientOptions, type Report, type Serp } from "foltr-browser";
import { FeatureSchema } from "foltr-browser/schema";

export async function use(options: EdgeClientOptions, schemaText: string): Promise<Report> {
  const client = await EdgeClient.open({ ...options, schema: await FeatureSchema.of(schemaText) });
  const serp: Serp = client.rank([[0, 1]]);
  await client.recordClicks(serp.serpId, [0]);
  const state: DeviceState = client.state;
  // @ts-expect-error: without its types anything would do
  const wrong: boolean = state.nWaiting;
  return client.report();
}
const refused = EdgeClient.open({ credentials: {}, broker: "mqtt://localhost" });
console.log(await refused.catch((error: unknown) => error instanceof SettingsError));
`;
const RESOLUTIONS = [
  { module: "node16", moduleResolution: "node16" },
  { module: "esnext", moduleResolution: "bundler" },
];

test("at most thirty files are packed, with their license, and no source map or test", (context) => {
  const folder = mkdtempSync(join(tmpdir(), "foltr-package-"));
  context.after(() => rmSync(folder, { recursive: true }));
  const npm = ["pack", "--silent", "--ignore-scripts", "--pack-destination", folder];
  execFileSync("npm", npm, { cwd: CLIENT, stdio: "pipe" });
  const [archive] = readdirSync(folder);
  const names = execFileSync("tar", ["-tf", join(folder, archive)], { encoding: "utf8" })
    .trim()
    .split("\n");
  assert.ok(names.length <= 30, `${names.length} files`);
  for (const name of ["LICENSE", "README.md", "package.json"]) assert.ok(names.includes(`package/${name}`), name);
  const rest = names.filter((name) => !/^package\/(LICENSE|README\.md|package\.json|.*\.js|.*\.d\.ts)$/.test(name));
  assert.deepEqual(rest, []);

  const modules = join(folder, "node_modules");
  mkdirSync(join(modules, "foltr-browser"), { recursive: true });
  const into = ["-C", join(modules, "foltr-browser"), "--strip-components=1"];
  execFileSync("tar", ["-xf", join(folder, archive), ...into]);
  for (const name of ["mqtt", "@noble"]) symlinkSync(join(CLIENT, "node_modules", name), join(modules, name));
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  writeFileSync(join(folder, "application.ts"), APPLICATION);
  for (const resolution of RESOLUTIONS) {
    const settings = { strict: true, target: "es2022", lib: ["es2022", "dom"], types: [], skipLibCheck: false };
    const config = { compilerOptions: { ...settings, ...resolution }, files: ["application.ts"] };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
    try {
      execFileSync(join(CLIENT, "node_modules", ".bin", "tsc"), ["--project", folder], { encoding: "utf8" });
    } catch (error) {
      assert.fail(`${resolution.moduleResolution}: ${(error as { stdout: string }).stdout}`);
    }
    const said = execFileSync("node", [join(folder, "application.js")], { encoding: "utf8" });
    assert.equal(said.trim(), "true");
  }
});

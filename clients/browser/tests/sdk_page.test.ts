// The page recipe of docs/sdk.md compiles in an application that has installed this client, and works.

import "fake-indexeddb/auto";

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

import type { EdgeClient } from "../src/index.js";
import { fromHex } from "../src/protocol/fields.js";
import { startBroker } from "./harness/broker.js";
import { eventually, PlayedFederation } from "./harness/federation.js";

const CLIENT = new URL("../../", import.meta.url).pathname;
const PAGE = readFileSync(new URL("../../../../docs/sdk.md", import.meta.url), "utf8");
const SETTINGS = {
  compilerOptions: {
    ...{ strict: true, target: "es2022", module: "nodenext", lib: ["es2022", "dom", "dom.iterable"], types: [] },
    ...{ noUncheckedIndexedAccess: false, skipLibCheck: true },
  },
  files: ["page_search.ts"],
};

/** Return the recipe's functions, compiled in a folder that has the client as a package. */
async function compiled(folder: string): Promise<any> {
  const [code, ...more] = [...PAGE.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code);
  assert.deepEqual(more, []);
  writeFileSync(join(folder, "page_search.ts"), code);
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(SETTINGS));
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(CLIENT, join(folder, "node_modules", "foltr-browser"));
  try {
    execFileSync(join(CLIENT, "node_modules", ".bin", "tsc"), ["--project", folder], { encoding: "utf8" });
  } catch (error) {
    assert.fail((error as { stdout: string }).stdout);
  }
  return import(join(folder, "page_search.js"));
}

test("a page shows its own order, takes part once it is enrolled, and records what was opened", async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "foltr-recipe-"));
  const broker = await startBroker();
  const federation = await PlayedFederation.begin(broker.mqtt);
  let client: EdgeClient | null = null;
  context.after(async () => {
    await client?.close();
    await federation.end();
    await broker.close();
    rmSync(folder, { recursive: true });
  });
  const { takePart, search, opened } = await compiled(folder);

  const alone = search("tea");
  assert.deepEqual([alone.results, alone.serpId], [["tea", "green tea", "teapot"], null]);
  await opened(alone, [1]);

  context.mock.method(globalThis, "fetch", async () => new Response(null, { status: 404 }));
  assert.equal(await takePart(), null);
  context.mock.method(globalThis, "fetch", async (_address: string, { body }: { body: string }) =>
    Response.json({ credentials: await federation.enrol("visitor", fromHex(body)), broker: broker.webSocket }),
  );
  await federation.announceModel();
  client = (await takePart()) as EdgeClient;
  await eventually(() => client!.modelVersion === 1);
  const shown = search("tea");
  assert.deepEqual([...shown.results].sort(), ["green tea", "tea", "teapot"]);
  await opened(shown, [0]);
  await eventually(() => client!.state.nWaiting === 1);
  assert.deepEqual(search("wine").results, []);
});

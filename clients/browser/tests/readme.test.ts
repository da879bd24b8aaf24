// The snippets of this client's README compile in an application that has installed it.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

const CLIENT = new URL("../../", import.meta.url).pathname;
const README = readFileSync(new URL("../../README.md", import.meta.url), "utf8");
// The snippets use these from the page around them.
const PAGE = `
declare const yourServer: { enrol(publicKey: string): Promise<unknown> };
declare const features: number[][];
declare const scores: number[];
declare function show(ranking: readonly number[]): void;
`;
const LATER = `
import { EdgeClient } from "foltr-browser";
declare const credentials: unknown;
declare const broker: string;
`;
const COMPILER = { strict: true, noEmit: true, target: "es2022", module: "nodenext", types: [], skipLibCheck: true };

test("the snippets compile, with no more than a page has", (context) => {
  const folder = mkdtempSync(join(tmpdir(), "foltr-readme-"));
  context.after(() => rmSync(folder, { recursive: true }));
  const snippets = [...README.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code);
  assert.equal(snippets.length, 2);
  writeFileSync(join(folder, "first.ts"), PAGE + snippets[0]);
  writeFileSync(join(folder, "later.ts"), LATER + snippets[1]);
  const compilerOptions = { ...COMPILER, lib: ["es2022", "dom", "dom.iterable"] };
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["first.ts", "later.ts"] }));
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(CLIENT, join(folder, "node_modules", "foltr-browser"));
  try {
    execFileSync(join(CLIENT, "node_modules", ".bin", "tsc"), ["--project", folder], { encoding: "utf8" });
  } catch (error) {
    assert.fail((error as { stdout: string }).stdout);
  }
});

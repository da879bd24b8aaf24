// Ten visitors search the documentation in ten pages of Chromium, open what they meant, and learn together.
//
//     node visit.mjs [--rounds 40] [--visitors 10] [--searches 5] [--seed 1] [--json FILE] [--sent FILE] [--png FILE]
//
// Broker, federator, pages and network are real; the visitors' queries and clicks are simulated (queries.mjs).

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

import { buildSite } from "./build.mjs";
import { Chromium } from "./chromium.mjs";
import { judge, searchInRounds, waitForModel } from "./in_page.mjs";
import { makeQueries, randomOf, shuffled } from "./queries.mjs";
import { serveSite } from "./site.mjs";

const HERE = new URL(".", import.meta.url).pathname;
const PER_SECTION = 3;
const SLIP = 0.05; // share of read results that are opened by mistake
const BLOCK = 10; // rounds
const PATIENCE_MS = 90_000;
const EXAMPLE = "what leaves a device";
const NUMBERS = { rounds: "40", visitors: "10", searches: "5", seed: "1" };
const numbers = Object.fromEntries(Object.entries(NUMBERS).map(([key, value]) => [key, textOption(value)]));
const files = { json: textOption(), sent: textOption(), png: textOption() };
const { values: given } = parseArgs({ options: { ...numbers, ...files, python: textOption("python") } });
const [rounds, visitors, searches, seed] = Object.keys(NUMBERS).map((key) => Number(given[key]));

const folder = mkdtempSync(join(tmpdir(), "docs-search-site-"));
const ends = [() => rmSync(folder, { recursive: true, force: true })];
const interrupted = new Promise((_, reject) => {
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => reject(new Error(`ended by ${signal}`)));
});
try {
  await Promise.race([visit(), interrupted]);
} finally {
  for (const end of ends.reverse()) await end();
}

async function visit() {
  const site = join(folder, "site");
  const sections = await buildSite(site);
  const queries = makeQueries(sections, seed, PER_SECTION);
  const settings = Object.entries({ visitors, rounds, searches });
  const flags = settings.flatMap(([key, value]) => [`--${key}`, String(value)]);
  const federation = started(given.python, [join(HERE, "serve.py"), ...flags]);
  const { address, close } = await serveSite(site, federation);
  ends.push(close);
  const chromium = await Chromium.start();
  ends.push(() => chromium.close());

  const pages = [];
  for (let i = 0; i < visitors; i++) pages.push(await chromium.open(address));
  await Promise.all(pages.map((page) => page.call(waitForModel, PATIENCE_MS)));
  const before = await pages[0].call(judge, queries.judge);
  const plans = pages.map((_, i) => planOf(queries.learn, i));
  const began = Date.now();
  const visits = await Promise.all(pages.map((page, i) => page.call(searchInRounds, plans[i], rounds, searches)));
  const seconds = (Date.now() - began) / 1000;
  const after = await pages[0].call(judge, queries.judge);

  report({ n_sections: sections.length, queries, before, after, visits, pages, seconds });
  if (given.sent !== undefined) writeFileSync(given.sent, JSON.stringify(sentBy(pages, plans, sections)));
  if (given.png === undefined) return;
  // Prefer a visitor who sees the learned order.
  const page = pages[visits.findIndex(({ isGateOpen }) => isGateOpen)] ?? pages[0];
  await page.call((query) => globalThis.docs.ask(query), EXAMPLE);
  writeFileSync(given.png, await page.screenshot());
}

function textOption(value) {
  return value === undefined ? { type: "string" } : { type: "string", default: value };
}

/** Return a visitor's queries in order, with the results opened by mistake: each `{ query, meant, slips }`. */
function planOf(learn, visitor) {
  const random = randomOf(1000 * seed + visitor);
  const asked = [];
  while (asked.length < rounds * searches) asked.push(...shuffled(learn, random));
  const slips = () => Array.from({ length: 10 }, () => random() < SLIP);
  return asked.slice(0, rounds * searches).map((one) => ({ ...one, slips: slips() }));
}

/** Start a process that ends with this one. Returns functions to write and read lines. */
function started(command, flags) {
  const child = spawn(command, flags, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("close", resolve).once("error", resolve));
  ends.push(() => (child.kill(), ended));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const line = async () => {
    const { value, done } = await lines.next();
    if (done) throw new Error(`${command} ended`);
    return value;
  };
  return { line, tell: (text) => child.stdin.write(`${text}\n`) };
}

function report({ n_sections, queries, before, after, visits, pages, seconds }) {
  const frames = pages.flatMap((page) => Object.values(page.frames).flat());
  const n_bytes = frames.reduce((sum, frame) => sum + Buffer.from(frame, "base64").length, 0);
  const results = {
    ...{ visitors, rounds, searches: visitors * rounds * searches, seed, sections: n_sections },
    ...{ queries_to_learn_from: queries.learn.length, queries_to_judge_by: queries.judge.length },
    ...{ minisearch_mrr_at_10: before.minisearch, first_model_mrr_at_10: before.model },
    ...{ learned_mrr_at_10: after.model, shown_minus_minisearch: shownInBlocks(visits) },
    gates_open: visits.filter(({ isGateOpen }) => isGateOpen).length,
    ...{ bytes_sent_by_a_visitor: Math.round(n_bytes / visitors), seconds },
  };
  const [base, learned] = [before.minisearch, after.model].map((mrr) => mrr.toFixed(3));
  console.log(
    `${n_sections} sections, ${results.searches} searches of ${visitors} visitors in ${seconds.toFixed(1)} s`,
  );
  console.log(`MRR@10 of ${queries.judge.length} other queries: MiniSearch ${base}, learned ${learned}`);
  if (given.json !== undefined) writeFileSync(given.json, `${JSON.stringify(results, null, 2)}\n`);
}

/** Return how much better the visitors' lists were than MiniSearch's, in blocks of ten rounds. */
function shownInBlocks(visits) {
  const nBlocks = Math.ceil(rounds / BLOCK);
  return Array.from({ length: nBlocks }, (_, block) => {
    const range = [block, block + 1].map((edge) => edge * BLOCK * searches);
    const shown = visits.flatMap(({ advantages }) => advantages.slice(...range));
    return shown.reduce((sum, one) => sum + one, 0) / shown.length;
  });
}

/** Return what left each page, and what must not have left it: queries, headings and texts. */
function sentBy(pages, plans, sections) {
  const sent = pages.map(({ frames, requests }) => ({ connections: Object.values(frames), requests }));
  const queries = plans.flat().map(({ query }) => query);
  return { sent, queries, texts: sections.flatMap(({ title, lead, text }) => [title, lead, text]) };
}

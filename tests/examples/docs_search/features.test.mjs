// What the ranker is told of a section says what its name says.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

import { bundle } from "../../../examples/docs_search/build.mjs";
import { makeQueries } from "../../../examples/docs_search/queries.mjs";

const EXAMPLE = new URL("../../../examples/docs_search/", import.meta.url).pathname;
const NAMES = JSON.parse(readFileSync(join(EXAMPLE, "features.json"), "utf8")).features.map(({ name }) => name);
const SECTION = {
  ...{ id: 0, path: "docs/history.md", anchor: "old-books", depth: 2, title: "Old books", parents: "Shelves" },
  ...{ text: "They are sold. Whoever buys them reads.", lead: "They are sold." },
};

const folder = mkdtempSync(join(tmpdir(), "features-"));
test.after(() => rmSync(folder, { recursive: true }));
await bundle(join(EXAMPLE, "features.ts"), join(folder, "features.mjs"), "node");
const { featuresOf } = await import(join(folder, "features.mjs"));

const told = (query) => Object.fromEntries(featuresOf(query, SECTION, 7.5).map((value, i) => [NAMES[i], value]));

test("each number is the share, the place or the length that features.json names", () => {
  assert.deepEqual(told("Sold books shelves reader"), {
    minisearch: 7.5,
    "words of the query in the title": 1 / 4,
    "words of the title in the query": 1 / 2,
    "words of the query in the headings above": 1 / 4,
    "words of the query in the first sentence": 1 / 4,
    "words of the query in the text": 1 / 4,
    "words of the query in title or first sentence": 1 / 2,
    "neighbours in the query are neighbours here": 0,
    "beginnings of the query's words in title or first sentence": 1 / 2,
    "words before the first of the query": 2,
    "words of the section": 7,
    "depth of the heading": 2,
    "is in the history or the decisions": 1,
  });
  assert.equal(told("old books")["neighbours in the query are neighbours here"], 1);
  assert.equal(told("booksellers")["beginnings of the query's words in title or first sentence"], 1);
  assert.equal(told("?")["words of the query in the title"], 0);
  assert.equal(told("nothing")["words before the first of the query"], 7);
});

test("queries to judge by are for other sections than those to learn from, and the seed decides", () => {
  const sections = Array.from({ length: 40 }, (_, id) => ({ ...SECTION, id, title: `Old books ${id}` }));
  const { learn, judge } = makeQueries(sections, 3, 2);
  const meant = (queries) => new Set(queries.map((one) => one.meant));
  assert.ok(meant(learn).size > 5 && meant(judge).size > 5);
  assert.ok([...meant(learn)].every((id) => !meant(judge).has(id)));
  assert.deepEqual(makeQueries(sections, 3, 2), { learn, judge });
  assert.notDeepEqual(makeQueries(sections, 4, 2), { learn, judge });
});

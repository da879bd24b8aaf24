// A gate decides like Python's on the same lists, and a page shows the application's order until it opens.

import "fake-indexeddb/auto";

import assert from "node:assert/strict";
import test from "node:test";

import * as gating from "../src/learning/gate.js";
import { interleavingCredits, NEW_GATE, sourceOfNext, withList } from "../src/learning/gate.js";
import { makeSerp, type RankingState } from "../src/serps.js";
import { DeviceStore } from "../src/store/store.js";
import { statedGate, toldGate } from "./harness/gates.js";
import { listOf } from "./harness/lists.js";
import { vectorsOf } from "./vectors.js";

test("after each list the gate is what Python's is", () => {
  let gate = NEW_GATE;
  vectorsOf("gate").forEach((list: any, i: number) => {
    const credits = list.by_model && interleavingCredits(list.by_model, list.base, list.model);
    assert.deepEqual(credits, list.to_credit, `credits of list ${i}`);
    gate = withList(gate, { source: list.source, toCredit: credits }, list.clicks);
    const [mine, python] = [toldGate(gate), statedGate(list.gate)];
    assert.equal(mine.length, python.length);
    python.forEach((number, n) => assert.ok(Math.abs(mine[n] - number) <= 1e-6, `list ${i}: ${mine} is not ${python}`));
  });
});

test("with what the lists of all users say the gate is what Python's is", () => {
  for (const { shared, lists } of vectorsOf("shared_gates")) {
    let gate = NEW_GATE;
    lists.forEach((list: any, i: number) => {
      gate = withList(gate, { source: list.source, toCredit: list.to_credit ?? undefined }, list.clicks, shared);
      const said = [gate.isOpen, gating.shareInterleaved(gate, shared)];
      assert.deepEqual(said, [list.is_open, list.share_interleaved], `${JSON.stringify(shared)}, list ${i}`);
    });
  }
});

const OPEN = { ...NEW_GATE, isOpen: true };

test("the next list is interleaved as often as the gate says, and never where the best one is asked for", () => {
  const promising = { ...NEW_GATE, credits: { weight: 4, weightSquares: 4, total: 0, squares: 4 } };
  assert.deepEqual(
    [NEW_GATE, promising, OPEN, { ...promising, isOpen: true }].map((gate) => [
      sourceOfNext(gate, true, () => 0.04),
      sourceOfNext(gate, true, () => 0.4),
      sourceOfNext(gate, false, () => 0),
    ]),
    [
      ["interleaved", "base", "base"],
      ["interleaved", "interleaved", "base"],
      ["interleaved", "model", "model"],
      ["interleaved", "model", "model"],
    ],
  );
});

const STATE: RankingState = {
  ...{ serpLength: 10, exploration: { kind: "none" }, isForgotten: false, hasOtherFeatures: false, modelVersion: 3 },
  weights: new Float64Array([1]),
  gate: null,
};
const ROWS = [[1], [2], [3]];

test("a closed gate shows the application's order, an open one the model's, and a model of zeros says nothing", () => {
  const best = (state: Partial<RankingState>) =>
    makeSerp(ROWS, 3, null, { ...STATE, ...state }, null, gating, () => 0.9);
  const [closed, open, zero] = [best({}), best({ gate: OPEN }), best({ gate: OPEN, weights: new Float64Array(1) })];
  assert.deepEqual([closed.source, closed.ranking, closed.modelVersion], ["base", [0, 1, 2], 3]);
  assert.deepEqual([open.source, open.ranking, open.toCredit], ["model", [2, 1, 0], undefined]);
  assert.deepEqual([zero.source, zero.ranking], ["base", [0, 1, 2]]);
});

test("an interleaved list says whose credit a click is, also where all lists of the model are interleaved", () => {
  const wary = makeSerp(ROWS, 3, null, STATE, null, gating, () => 0.01);
  assert.deepEqual([wary.source, wary.ranking, wary.toCredit], ["interleaved", [2, 0, 1], [1, -1, 1]]);
  const interleaving = { kind: "interleaving" as const };
  const open = makeSerp(ROWS, 3, null, { ...STATE, gate: OPEN }, interleaving, gating, () => 0.9);
  assert.deepEqual([open.source, open.ranking, open.toCredit], ["interleaved", [0, 2, 1], [-1, 1, -1]]);
  const closed = makeSerp(ROWS, 3, null, STATE, interleaving, gating, () => 0.9);
  assert.deepEqual([closed.source, closed.ranking], ["base", [0, 1, 2]]);
  const plain = makeSerp(ROWS, 3, null, STATE, { kind: "none" }, gating, () => 0);
  assert.deepEqual([plain.source, plain.toCredit], ["base", undefined]);
});

test("a gate is stored with the list that it judged by, once, whichever tab recorded it", async () => {
  const limits = { maxInteractions: 10, maxKept: 10, maxRecent: 10 };
  const tabs = await Promise.all([0, 1].map(() => DeviceStore.open("mail", "gated", limits, indexedDB)));
  assert.equal(await tabs[0].gate(), null);
  const lists = ["a", "b", "c", "d"].map((serpId) => listOf(serpId));
  for (const list of lists) tabs[0].recent.remember(list);
  await tabs[0].recent.saved();
  const record = (serpId: string, i: number) => tabs[i % 2].record(serpId, [1], gating.judgedBy);
  await Promise.all(["a", "b", "c", "a"].map(record));
  assert.deepEqual((await tabs[1].gate())!.counts.base, { lists: 3, clicked: 3, reciprocalRanks: 1.5 });
  const broken = () => {
    throw new Error("no judgement");
  };
  await assert.rejects(tabs[0].record("d", [1], broken), /Nothing was changed/);
  assert.equal(await tabs[0].nWaiting(), 3);
  await tabs[0].forget();
  assert.equal(await tabs[1].gate(), null);
});

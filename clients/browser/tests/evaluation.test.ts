// What a device reports of its lists: means and credits over an update's interactions, if the federator that runs asks.

import "fake-indexeddb/auto";

import assert from "node:assert/strict";
import test from "node:test";

import { Evaluator } from "../src/evaluator.js";
import { Participation } from "../src/participation.js";
import { encode, openEnvelope } from "../src/protocol/codec.js";
import { EvaluationRequest } from "../src/protocol/messages.js";
import { DeviceStore } from "../src/store/store.js";
import { listOf } from "./harness/lists.js";

const EPOCH = 7n;
let nStores = 0;

async function opened(): Promise<DeviceStore> {
  const limits = { maxInteractions: 10, maxKept: 10, maxRecent: 10 };
  return DeviceStore.open("mail", `evaluated-${++nStores}`, limits, indexedDB);
}

/** Return an evaluator of a device in this epoch's rounds, which a federation asks in this epoch. */
async function asked(store: DeviceStore, isEnabled = true, federation = "mail"): Promise<Evaluator> {
  const participation = new Participation(null, false);
  participation.hearEpoch(EPOCH, 0);
  const evaluator = new Evaluator("mail", store, participation, isEnabled);
  const request = { federation, credits_since: 2, credit_total: 25, credit_squares: 40 };
  evaluator.takeRequest(openEnvelope(await encode(EvaluationRequest, request, "", EPOCH << 30n)));
  return evaluator;
}

/** Record lists of four: interleaved ones of two models, one that nobody clicked, and one without a base order. */
async function recordAll(store: DeviceStore): Promise<void> {
  const [ranking, basePositions] = [
    [3, 2, 1, 0],
    [3, 0, 1, 2],
  ];
  const mixed = { ranking, basePositions, source: "interleaved" as const, toCredit: [1, -1, 1, -1] };
  store.recent.remember(listOf("new", { ...mixed, modelVersion: 2 }));
  store.recent.remember(listOf("old", { ...mixed, modelVersion: 1 }));
  store.recent.remember(listOf("base", { ranking, basePositions, modelVersion: 2 }));
  store.recent.remember(listOf("unknown", { ranking, modelVersion: 2 }));
  await store.record("new", [1, 2]);
  await store.record("old", [0]);
  await store.record("base", []);
  await store.record("unknown", [0]);
}

test("an evaluation has the means over lists with a base order, and credits since the model that is asked for", async () => {
  const store = await opened();
  await recordAll(store);
  const evaluator = await asked(store);
  assert.deepEqual(await evaluator.evaluationOf([1, 2, 3, 4]), {
    clicked: 2 / 3,
    reward: (1 / 2 + 1) / 3,
    base_reward: (1 + 1 / 4) / 3,
    credit_total: 1 / 2,
    credit_squares: 1 / 4,
  });
  assert.equal(await evaluator.evaluationOf([4]), null);
  assert.deepEqual(evaluator.shared, { total: 25, squares: 40 });
});

test("a device says nothing to a federator that does not ask, or if its application says no", async () => {
  const store = await opened();
  await recordAll(store);
  const participation = new Participation(null, false);
  participation.hearEpoch(EPOCH, 0);
  const never = new Evaluator("mail", store, participation, true);
  for (const evaluator of [never, await asked(store, false), await asked(store, true, "another")]) {
    assert.equal(await evaluator.evaluationOf([1]), null);
    assert.equal(evaluator.shared, null);
  }
});

test("an application that says no keeps no base order, and a credit that the gate has counted stays", async () => {
  const store = await opened();
  await recordAll(store);
  await store.record("new", [3]);
  const [clickedAgain] = await store.interactions([5]);
  assert.deepEqual([clickedAgain.credit, clickedAgain.baseReward], [1 / 2, 1]);
  store.keepsRewards = false;
  await store.record("new", [0]);
  const [silent] = await store.interactions([6]);
  assert.deepEqual(["credit" in silent, "baseReward" in silent], [false, false]);
});

// A device in unlearning jobs: the limits of its answers, counted in its store, independent of its clock.

import "fake-indexeddb/auto";

import assert from "node:assert/strict";
import test from "node:test";

import { packVector } from "../src/protocol/fields.js";
import type { UnlearningRound } from "../src/protocol/messages.js";
import { DeviceStore } from "../src/store/store.js";
import { Relearning } from "../src/training/relearning.js";
import { USUAL_LIMITS, type UnlearningLimits } from "../src/training/unlearning_limits.js";
import { clickedFirst, listOf } from "./harness/lists.js";

let nStores = 0;
let causes: unknown[] = [];

async function storeOf(nKept: number): Promise<DeviceStore> {
  const limits = { maxInteractions: 100, maxKept: 50, maxRecent: 10 };
  const store = await DeviceStore.open("mail", `d-${++nStores}`, limits, indexedDB);
  for (let i = 0; i < nKept; i++) await clickedFirst(store, listOf(`${i}`));
  await store.settle(0);
  const update = { updateId: "a".repeat(32), round: 1, after: 0, through: nKept, payload: new Uint8Array(1) };
  await store.putUpdate(update, await store.waitingIds(100));
  await store.settle(nKept, update.updateId);
  return store;
}

function relearning(store: DeviceStore, limits: Partial<UnlearningLimits> = {}): Relearning {
  causes = [];
  const log = (_level: string, _event: string, details?: any) => void causes.push(details.cause);
  return new Relearning(store, log, Math.random, { ...USUAL_LIMITS, ...limits });
}

function step(number: number, localInteractions = 3, job = 1, named = [1]): UnlearningRound {
  return {
    ...{ federation: "mail", job, step: number, open: true, n_auxiliary: 0, closes_at: 1, schema_hash: null },
    ranker: { kind: "linear", n_features: 2 },
    weights: packVector([0, 0]),
    local_interactions: localInteractions,
    erasures: named.map((audit_seq) => ({ audit_seq, audit_hash: new Uint8Array(32) })),
    training: { kind: "pdgd", serp_length: 5, min_interactions: 2, max_interactions: 4, learning_rate: 0.1 },
  } as unknown as UnlearningRound;
}

test("so many steps a day are answered, also after a restart and by a clock that was set back", async () => {
  const store = await storeOf(5);
  const first = relearning(store, { stepsADay: 2 });
  for (const number of [1, 2, 2]) {
    await first.takeStep(step(number));
    assert.equal(first.due?.step, number);
  }
  const again = relearning(store, { stepsADay: 2 });
  for (const number of [3, 4]) await again.takeStep(step(number));
  assert.equal(again.due, null);
  assert.deepEqual(causes, ["2 steps were answered today"]);
  const today = Math.floor(Date.now() / 86_400_000);
  assert.deepEqual([await store.answeredOn(today - 1), await store.answeredOn(today + 1)], [2, 0]);
});

test("a click is learned in so many steps of its life, and the others go on without it", async () => {
  const store = await storeOf(4);
  const limited = relearning(store, { stepsAClick: 2 });
  const counts = [];
  for (const number of [1, 2, 3, 4]) {
    await limited.takeStep(step(number));
    counts.push(limited.due?.n_interactions ?? 0);
  }
  const used = (await store.interactions(await store.keptIds())).map(({ relearned }) => relearned ?? 0);
  assert.ok(Math.max(...used) <= 2);
  assert.equal(counts[0], 3);
  assert.equal(counts.at(-1), 0);
  assert.deepEqual(causes, ["fewer than 3 interactions are left to learn from"]);
});

test("a step that asks for too few is not answered, nor one from too few; it is said once a job", async () => {
  const limited = relearning(await storeOf(2));
  for (const number of [1, 2]) await limited.takeStep(step(number, 2));
  await limited.takeStep(step(3));
  assert.equal(limited.due, null);
  await limited.takeStep(step(1, 2, 2));
  assert.deepEqual(causes, [
    "it asks for fewer than 3 interactions",
    "fewer than 3 interactions are left to learn from",
    "it asks for fewer than 3 interactions",
  ]);
});

test("an erasure stands for two jobs, also after a restart, and a job for the sake of nobody is not answered", async () => {
  const store = await storeOf(9);
  for (const job of [1, 2, 1]) {
    const limited = relearning(store);
    await limited.takeStep(step(job, 3, job, [7, 8]));
    assert.equal(limited.due?.job, job);
  }
  const again = relearning(store);
  for (const named of [[7, 8], [8], []]) {
    await again.takeStep(step(1, 3, 3, named));
    assert.equal(again.due, null);
  }
  assert.deepEqual(causes, ["the erasures that it names were used for 2 other jobs"]);
  await again.takeStep(step(1, 3, 3, [8, 9]));
  assert.equal(again.due?.job, 3);
});

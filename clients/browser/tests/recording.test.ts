// Clicks on a list are recorded by its id and add up until an update contains them, as on a Python device.

import "fake-indexeddb/auto";

import assert from "node:assert/strict";
import test from "node:test";

import { DataError } from "../src/errors.js";
import { earnedBy } from "../src/evaluator.js";
import { judgedBy, NEW_GATE } from "../src/learning/gate.js";
import { DeviceStore, type Limits } from "../src/store/store.js";
import { toldGate, statedGate } from "./harness/gates.js";
import { clickedFirst, listOf } from "./harness/lists.js";
import { vectorsOf } from "./vectors.js";

const CREDITS_SINCE = 1; // as in the vectors
let nStores = 0;

function opened(limits: Partial<Limits> = {}, name = `recording-${++nStores}`, schemaHash = ""): Promise<DeviceStore> {
  const all = { maxInteractions: 100, maxKept: 100, maxRecent: 100, ...limits };
  return DeviceStore.open("mail", name, all, indexedDB, schemaHash);
}

async function waitingIn(store: DeviceStore): Promise<{ id: number; clicks: readonly boolean[] }[]> {
  const waiting = await store.interactions(await store.waitingIds(100));
  return waiting.map(({ id, clicks }) => ({ id, clicks }));
}

/** Return false if clicks are lost. */
async function take(store: DeviceStore, step: any): Promise<boolean> {
  if (step.show) {
    const { serp_id, source, to_credit, n_features: nFeatures, model_version: modelVersion } = step.show;
    const features = { nDocuments: 4, nFeatures, values: new Float32Array(4 * nFeatures) };
    const drawn = { ranking: [0, 1, 2, 3], source, toCredit: to_credit ?? undefined, features, modelVersion };
    store.recent.remember(listOf(serp_id, { ...drawn, basePositions: step.show.base_positions ?? undefined }));
  } else if (step.record) {
    return (await store.record(step.record, step.clicked, judgedBy)) !== "lost";
  } else if (step.update) {
    const [ids, { watermark }] = [await store.waitingIds(100), await store.bounds()];
    const update = { updateId: "u".repeat(32), round: 1, after: watermark!, through: ids.at(-1)! };
    await store.putUpdate({ ...update, payload: new Uint8Array(1) }, ids);
  } else {
    const { pending } = await store.bounds();
    await store.settle(step.watermark === "through" ? pending!.through : step.watermark);
  }
  return true;
}

test("the device keeps what a Python device keeps, in any order of lists and clicks", async () => {
  const store = await opened();
  store.recent.nFeatures = 2;
  for (const [i, step] of vectorsOf("recordings").entries()) {
    if (step.refused) await assert.rejects(take(store, step), DataError, `step ${i}`);
    else assert.equal(await take(store, step), !step.lost, `step ${i}`);
    assert.deepEqual(await waitingIn(store), step.waiting, `step ${i}`);
    const waiting = await store.interactions(await store.waitingIds(100));
    const earned = waiting.flatMap((each) => earnedBy(each, CREDITS_SINCE));
    const told = earned.map(({ reward, baseReward, credit }) => ({ reward, base_reward: baseReward, credit }));
    assert.deepEqual(told, step.earned, `step ${i}`);
    const [mine, python] = [toldGate((await store.gate()) ?? NEW_GATE), statedGate(step.gate)];
    python.forEach((number, n) => assert.ok(Math.abs(mine[n] - number) <= 1e-6, `step ${i}: ${mine} is not ${python}`));
  }
});

test("an id is enough, also after a reload and in another tab", async () => {
  const store = await opened({}, "reloaded");
  store.recent.remember(listOf("a"));
  store.recent.remember(listOf("b"));
  await store.recent.saved();
  const tab = await opened({}, "reloaded");
  await tab.record("a", [1]);
  store.close();
  await tab.record("b", [0]);
  await tab.record("a", [0]);
  const clicks = (await waitingIn(tab)).map((each) => each.clicks);
  assert.deepEqual(clicks, [
    [true, false],
    [true, true],
  ]);
  assert.deepEqual(await tab.waitingIds(10), [2, 3]);
});

test("tabs that click on one list lose no click", async () => {
  const tabs = [await opened({}, "crowded"), await opened({}, "crowded")];
  const list = listOf("a", { ranking: [0, 1, 2, 3] });
  await clickedFirst(tabs[0], list);
  await Promise.all([1, 2, 3].map((position) => tabs[position % 2].record("a", [position])));
  assert.deepEqual(
    (await waitingIn(tabs[0])).map(({ clicks }) => clicks),
    [[true, true, true, true]],
  );
});

test("a list that the application holds is kept for it until it is recorded, others for a day", async (context) => {
  const store = await opened({ maxRecent: 2 });
  const [held, ...others] = ["held", "x", "y", "z"].map((serpId) => listOf(serpId));
  for (const list of [held, ...others]) {
    store.recent.remember(list);
    await store.recent.saved();
  }
  await assert.rejects(store.record("held", [0]), /more than a day or 2 lists ago/);
  await assert.rejects(store.record(structuredClone(held), [0]), /no list held is known/);
  assert.equal(await store.record(held, [0]), 1);
  assert.equal(await store.record(held, [0]), null);
  assert.equal(await store.record("held", [1]), 2);
  context.mock.method(Date, "now", () => new Date().getTime() + 25 * 3600 * 1000);
  store.recent.remember(listOf("new"));
  await store.recent.saved();
  await assert.rejects(store.record("z", [0]), /no list z is known/);
  assert.equal(await store.record("new", []), 3);
});

test("a list of another client, of another schema or width, or no list at all is refused", async () => {
  const store = await opened({}, "refusing");
  await assert.rejects(store.record(listOf("another's"), [0]), /another client made it/);
  for (const nothing of [null, undefined, 7, {}]) {
    await assert.rejects(store.record(nothing as never, [0]), /expected what `rank` returned, or its serpId/);
  }
  store.recent.remember(listOf("a"));
  await store.recent.saved();
  store.recent.nFeatures = 5;
  await assert.rejects(store.record("a", [0]), /2 features, but this application set nFeatures=5/);
  await assert.rejects((await opened({}, "refusing", "bb")).record("a", [0]), /features of another schema/);
  assert.equal(await store.nWaiting(), 0);
});

test("a click while its list goes into an update is in it or refused", async () => {
  const store = await opened();
  await store.settle(0);
  await clickedFirst(store, listOf("a"));
  const ids = await store.waitingIds(10);
  await store.record("a", [1]);
  const update = { updateId: "a".repeat(32), round: 1, after: 0, through: 1, payload: new Uint8Array(1) };
  await assert.rejects(store.putUpdate(update, ids), DataError);
  await store.putUpdate({ ...update, through: 2 }, [2]);
  assert.equal(await store.record("a", [0, 1]), null);
  store.recent.remember(listOf("b", { ranking: [0, 1, 2] }));
  await store.record("b", [2]);
  assert.equal(await store.record("b", [1]), 4);
  assert.deepEqual(await store.waitingIds(10), [4]);
});

test("a list waits for more clicks before an update takes it, at most as long as it may", async (context) => {
  const clock = { ms: 1_000_000_000 };
  context.mock.method(Date, "now", () => clock.ms);
  const store = await opened();
  store.clickWindowS = 60;
  await clickedFirst(store, listOf("a"));
  await clickedFirst(store, listOf("b"));
  assert.deepEqual([await store.waitingIds(10), await store.nWaiting(), await store.nextWindowEndsInS()], [[], 2, 60]);
  clock.ms += 30_000;
  await store.record("a", [1]);
  clock.ms += 30_000;
  assert.deepEqual([await store.waitingIds(10), await store.nextWindowEndsInS()], [[2], 30]);
  clock.ms -= 3_600_000; // set back
  assert.deepEqual([await store.waitingIds(10), await store.nextWindowEndsInS()], [[2, 3], Infinity]);
  store.clickWindowS = 0;
  await clickedFirst(store, listOf("c"));
  assert.deepEqual(await store.waitingIds(10), [2, 3, 4]);
});

test("who was forgotten keeps no list", async () => {
  const store = await opened({}, "leaving");
  store.recent.remember(listOf("saved"));
  await store.recent.saved();
  await store.forget();
  store.recent.remember(listOf("shown by a tab that did not know yet"));
  await store.recent.saved();
  assert.equal(await store.record("saved", [0]), "lost");
  store.close();
  const names = await new Promise<number>((resolve, reject) => {
    const request = indexedDB.open("foltr:mail/leaving");
    request.onerror = () => reject(request.error);
    request.onsuccess = () => {
      const count = request.result.transaction("lists").objectStore("lists").count();
      count.onsuccess = () => resolve(count.result);
    };
  });
  assert.equal(names, 0);
});

test("a store from before lists were kept gets them, and a tab with a newer client does not wait", async () => {
  await new Promise<void>((resolve) => {
    const request = indexedDB.open("foltr:mail/older", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("meta");
      const interactions = request.result.createObjectStore("interactions", { keyPath: "id" });
      interactions.createIndex("serpId", "serpId", { unique: true });
      interactions.createIndex("schema", ["schemaHash", "id"]);
    };
    request.onsuccess = () => resolve(request.result.close());
  });
  const store = await opened({}, "older");
  assert.equal(await clickedFirst(store, listOf("a")), 1);
  await new Promise((resolve) => (indexedDB.open("foltr:mail/older", 4).onsuccess = resolve));
  await assert.rejects(store.record("a", [1]), DataError);
});

test("lists that wait for more clicks are counted among those that wait", async () => {
  const store = await opened();
  store.clickWindowS = 60;
  for (const serpId of ["first", "second"]) {
    store.recent.remember(listOf(serpId));
    await store.record(serpId, [0]);
  }
  assert.deepEqual([await store.nWaiting(), await store.nOpen()], [2, 2]);
  store.clickWindowS = 0;
  assert.deepEqual([await store.nWaiting(), await store.nOpen()], [2, 0]);
});

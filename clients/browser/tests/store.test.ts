// A device's store: each interaction counts, waits, is in an update or is spent, by its number, in every case.

import "fake-indexeddb/auto";

import assert from "node:assert/strict";
import test from "node:test";

import { DataError } from "../src/errors.js";
import { keptKey, deviceKey } from "../src/keys.js";
import type { PendingUpdate } from "../src/store/bounds.js";
import { DeviceStore, type Limits } from "../src/store/store.js";
import { clickedFirst, listOf } from "./harness/lists.js";

let nStores = 0;

function opened(limits: Partial<Limits> = {}, name = `device-${++nStores}`, schemaHash = ""): Promise<DeviceStore> {
  const all = { maxInteractions: 100, maxKept: 10, maxRecent: 10, ...limits };
  return DeviceStore.open("mail", name, all, indexedDB, schemaHash);
}

async function recorded(store: DeviceStore, n: number, from = 1): Promise<void> {
  for (let i = from; i < from + n; i++) await clickedFirst(store, listOf(`serp-${i}`));
}

function updateOf(after: number, through: number, updateId = "a".repeat(32)): PendingUpdate {
  return { updateId, round: 1, after, through, payload: Uint8Array.from([1, 2, 3]) };
}

test("an interaction comes back as it was, and the same list is stored once", async () => {
  const store = await opened();
  assert.equal(await clickedFirst(store, listOf("a")), 1);
  assert.equal(await clickedFirst(store, listOf("a")), null);
  assert.equal(await clickedFirst(store, listOf("b")), 2);
  const { serpId, ranking, reversals, logProbability, features, source } = listOf("a");
  const list = { serpId, ranking, reversals, logProbability, features: features.values, nFeatures: 2, source };
  const [found] = await store.interactions([1]);
  const recorded = { clicks: [true, false], baseVersion: null, id: 1, schemaHash: "", recordedAt: found.recordedAt };
  assert.deepEqual(found, { ...list, ...recorded });
  assert.deepEqual(await store.waitingIds(10), [1, 2]);
});

test("tabs that record at once never give a number twice", async () => {
  const tabs = [await opened({}, "shared"), await opened({}, "shared")];
  const lists = Array.from({ length: 20 }, (_, i) => listOf(`serp-${i}`));
  const ids = await Promise.all(lists.map((list, i) => clickedFirst(tabs[i % 2], list)));
  assert.deepEqual(
    ids.map(Number).sort((a, b) => a - b),
    lists.map((_, i) => i + 1),
  );
});

test("what counts is kept, what is above the watermark waits", async () => {
  const store = await opened();
  await recorded(store, 5);
  await store.settle(0);
  await store.putUpdate(updateOf(0, 3), [1, 2, 3]);
  assert.deepEqual(await store.waitingIds(10), [4, 5]);
  const settlement = await store.settle(3);
  assert.deepEqual([settlement.counted, settlement.givenUp, settlement.lost], [true, false, false]);
  assert.deepEqual(await store.keptIds(), [1, 2, 3]);
  assert.deepEqual(await store.waitingIds(10), [4, 5]);
  assert.equal((await store.bounds()).pending, null);
});

test("an update that is answered and does not count gives its interactions back", async () => {
  const store = await opened();
  await recorded(store, 3);
  await store.settle(0);
  await store.putUpdate(updateOf(0, 3), [1, 2, 3]);
  assert.equal((await store.settle(0)).givenUp, false);
  const settlement = await store.settle(0, "a".repeat(32));
  assert.deepEqual([settlement.counted, settlement.givenUp], [false, true]);
  assert.deepEqual(await store.waitingIds(10), [1, 2, 3]);
});

for (const { watermark, waiting, lost } of [
  { watermark: 3, waiting: [4, 5, 6], lost: false }, // its round was abandoned
  { watermark: 0, waiting: [1, 2, 3, 4, 5, 6], lost: true }, // the federation's database was restored
]) {
  test(`a watermark that goes back to ${watermark} gives back what was kept; is the federation at a loss: ${lost}`, async () => {
    const store = await opened();
    await recorded(store, 6);
    await store.settle(0);
    await store.putUpdate(updateOf(0, 3), [1, 2, 3]);
    await store.settle(3);
    await store.putUpdate(updateOf(3, 6, "b".repeat(32)), [4, 5, 6]);
    await store.settle(6);
    const settlement = await store.settle(watermark);
    assert.deepEqual([settlement.lost, settlement.watermarkBefore], [lost, 6]);
    assert.deepEqual(await store.waitingIds(10), waiting);
  });
}

test("what a new store has recorded is numbered above the watermark that the federation tells", async () => {
  const store = await opened();
  await recorded(store, 2);
  await store.settle(40);
  assert.deepEqual(await store.waitingIds(10), [41, 42]);
  assert.equal(await clickedFirst(store, listOf("another")), 43);
  const [first] = await store.interactions([41]);
  assert.equal(first.serpId, "serp-1");
});

test("a watermark that no device can have reached is not believed, and what was reached is", async () => {
  const store = await opened();
  await assert.rejects(store.settle(2 ** 47 + 1), DataError);
  assert.equal((await store.bounds()).watermark, null);
  await store.settle(2 ** 47);
  const id = (await clickedFirst(store, listOf("one"))) as number;
  await store.settle(id);
  await assert.rejects(store.settle(2 ** 48), DataError);
  assert.equal((await store.bounds()).watermark, id);
});

test("a store that is behind the watermark goes on above it", async () => {
  const store = await opened();
  await store.settle(0);
  await recorded(store, 2);
  await store.settle(9);
  assert.equal(await clickedFirst(store, listOf("another")), 10);
});

test("an update that is not of what waits from the watermark on is not stored", async () => {
  const store = await opened();
  await recorded(store, 3);
  await store.settle(0);
  for (const [update, ids] of [
    [updateOf(1, 3), [2, 3]],
    [updateOf(0, 3), [1, 3]],
    [updateOf(0, 2), [1, 2, 3]],
  ] as const) {
    await assert.rejects(store.putUpdate(update, ids), DataError);
  }
  await store.putUpdate(updateOf(0, 3), [1, 2, 3]);
  await assert.rejects(store.putUpdate(updateOf(0, 3), []), DataError);
});

test("the oldest make room, of those that wait and of those that are kept", async () => {
  const store = await opened({ maxInteractions: 3, maxKept: 2 });
  await recorded(store, 5);
  assert.deepEqual(await store.waitingIds(10), [3, 4, 5]);
  await store.settle(0);
  await store.putUpdate(updateOf(0, 5), [3, 4, 5]);
  await recorded(store, 3, 6);
  await store.settle(5);
  assert.deepEqual(await store.keptIds(), [4, 5]);
  assert.equal(await store.nWaiting(), 3);
});

test("under a policy all that was sent is spent, nothing is sent raw, and clicks are kept", async () => {
  const store = await opened();
  await recorded(store, 4);
  await store.settle(0);
  await store.putUpdate(updateOf(0, 2), [1, 2]);
  await store.putPolicy(Uint8Array.from([9]));
  assert.deepEqual(await store.waitingIds(10), [3, 4]);
  assert.equal((await store.bounds()).pending, null);
  await assert.rejects(store.putUpdate({ ...updateOf(0, 4) }, [3, 4]), DataError);
});

test("what was recorded under another schema is kept and not learned, and goes when an update passes it", async () => {
  const before = await opened({}, "schemas", "aa");
  await recorded(before, 2);
  before.close();
  const store = await opened({}, "schemas", "bb");
  await recorded(store, 2, 3);
  assert.deepEqual([await store.waitingIds(10), await store.nWaiting()], [[3, 4], 2]);
  await store.settle(0);
  await store.putUpdate(updateOf(0, 3), [3]);
  await store.settle(3);
  assert.deepEqual([await store.keptIds(), await store.waitingIds(10)], [[3], [4]]);
  assert.deepEqual(await store.interactions([1, 2]), []);
});

test("who was forgotten leaves a watermark and nothing else, and records nothing", async () => {
  const store = await opened({}, "forgettable");
  await recorded(store, 2);
  await store.putSession(5n);
  await store.forget();
  assert.ok(await store.isForgotten());
  assert.equal(await store.newestSession(), 0n);
  assert.equal(await clickedFirst(store, listOf("new")), "lost");
  assert.equal(await store.nWaiting(), 0);
  store.close();
  assert.ok(await (await opened({}, "forgettable")).isForgotten());
});

test("what was heard is there after the page was closed", async () => {
  const store = await opened({}, "hearing");
  await store.putSession(1n << 60n);
  await store.noteBelieved("topic", 1n << 61n);
  await store.putHeard("model", Uint8Array.from([1, 2]));
  store.close();
  const again = await opened({}, "hearing");
  assert.equal(await again.newestSession(), 1n << 60n);
  assert.equal(await again.newestBelieved("topic"), 1n << 61n);
  assert.deepEqual(await again.heard("model"), Uint8Array.from([1, 2]));
  await again.putWithdrawal(3, true);
  assert.equal(await again.withdrawnBelow(), 3);
  assert.equal(await again.heard("model"), null);
});

test("a browser has one key of a label, however many tabs ask at once, and shows its public half", async () => {
  const [first, second] = await Promise.all([deviceKey(), deviceKey()]);
  assert.deepEqual(first, second);
  assert.match(first.publicKey, /^[0-9a-f]{64}$/);
  assert.equal(first.isExtractable, false);
  assert.notEqual((await deviceKey("another")).publicKey, first.publicKey);
  const key = await keptKey("device", indexedDB);
  assert.ok(key.kind === "webcrypto" && !key.privateKey.extractable);
});

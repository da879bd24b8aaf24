// One device over all tabs of a page: one session, clicks from all tabs, and another leader when the first is closed.

import "fake-indexeddb/auto";

import assert from "node:assert/strict";
import test, { after, afterEach, before } from "node:test";

import { EdgeClient, deviceKey } from "../src/index.js";
import { fromHex } from "../src/protocol/fields.js";
import { startBroker, type Broker } from "./harness/broker.js";
import { eventually, PlayedFederation } from "./harness/federation.js";
import { PlayedLocks } from "./harness/locks.js";

const ROWS = [
  [0, 1],
  [1, 0],
];
let broker: Broker;
let federation: PlayedFederation;
let tabs: EdgeClient[] = [];

before(async () => {
  broker = await startBroker();
  Object.defineProperty(globalThis, "navigator", { value: { locks: new PlayedLocks() }, configurable: true });
});
after(() => broker.close());
afterEach(async () => {
  await Promise.all(tabs.map((tab) => tab.close()));
  await federation.end();
  tabs = [];
});

async function openTwo(name: string): Promise<[EdgeClient, EdgeClient]> {
  federation = await PlayedFederation.begin(broker.mqtt);
  await federation.announceModel();
  await federation.announceRound(1);
  const credentials = await federation.enrol(name, fromHex((await deviceKey()).publicKey));
  const options = { credentials, broker: broker.webSocket, clickWindowS: 0, log: () => undefined };
  const first = await EdgeClient.open(options);
  tabs.push(first);
  await federation.answerMembership(await federation.hear("join"), "joined", 0);
  await eventually(() => first.modelVersion === 1);
  const second = await EdgeClient.open(options);
  tabs.push(second);
  await eventually(() => second.modelVersion === 1);
  return [first, second];
}

test("one tab is connected, all of them record, and a click in any of them counts once", async () => {
  const [first, second] = await openTwo("shared");
  await second.recordClicks(second.rank(ROWS), [1]);
  await first.recordClicks(first.rank(ROWS), [1]);
  const update = await federation.hear("update");
  assert.deepEqual([update.fields.after, update.fields.through, update.fields.n_interactions], [0, 2, 2]);
  assert.equal(federation.all("join").length, 1);
  await federation.answerUpdate(update, "accepted", 2);
  await eventually(() => second.state.countedThrough === 2);
});

test("the id of a list is enough in another tab and after a reload, and its clicks add up in one update", async () => {
  const [first, second] = await openTwo("reloading");
  const { serpId } = first.rank(ROWS);
  await first.recordClicks(serpId, []);
  await second.recordClicks(serpId, [1]);
  await second.recordClicks(second.rank(ROWS).serpId, [0]);
  const update = await federation.hear("update");
  assert.deepEqual([update.fields.through, update.fields.n_interactions], [3, 2]);
  assert.equal(await first.recordClicks(serpId, [0]), false);
  const later = second.rank(ROWS).serpId;
  await Promise.all([first.close(), second.close()]);
  const credentials = await federation.enrol("reloading", fromHex((await deviceKey()).publicKey));
  const options = { credentials, broker: broker.webSocket, log: () => undefined };
  const reloaded = await EdgeClient.open({ ...options, nFeatures: 2 });
  tabs.push(reloaded);
  await reloaded.recordClicks(later, [1]);
  await assert.rejects(reloaded.recordClicks("unknown", [1]), /no list unknown is known/);
  assert.throws(() => reloaded.rank([[1], [2]]), /1 columns, but this application set nFeatures=2/);
  await eventually(() => reloaded.state.nWaiting === 1);
});

test("when the tab that leads is closed another one leads, with what all of them have recorded", async () => {
  const [first, second] = await openTwo("inherited");
  await second.recordClicks(second.rank(ROWS), [1]);
  await first.close();
  await federation.answerMembership(await federation.hear("join", 2), "joined", 0);
  await second.recordClicks(second.rank(ROWS), [0]);
  const { fields } = await federation.hear("update");
  assert.deepEqual([fields.through, fields.n_interactions], [2, 2]);
});

test("a tab that does not lead asks the one that does to be forgotten", async () => {
  const [first, second] = await openTwo("forgotten");
  const asked = second.forgetMe(5);
  await federation.hear("forget");
  await federation.notify("forgotten", "forgotten", "receipt");
  assert.deepEqual(await asked, { state: "forgotten", receipt: "receipt" });
  await eventually(() => first.isForgotten && second.isForgotten);
});

test("a wish is kept although the tab that leads is asleep, which says nothing else once it is awake", async () => {
  const [first, second] = await openTwo("asleep");
  const channel = (first as unknown as { tabs: { channel: BroadcastChannel } }).tabs.channel;
  const listen = channel.onmessage;
  channel.onmessage = null; // asleep: it receives nothing
  // The leading tab may find the request in the database before the answer.
  assert.match((await second.forgetMe(-4.9)).state, /^(asked|sent)$/);
  await federation.announceRound(2); // this wakes it up
  await federation.hear("forget");
  await first.recordClicks(first.rank(ROWS), [1]);
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.deepEqual(federation.all("update"), []);
  channel.onmessage = listen;
  await federation.notify("asleep", "forgotten", "receipt");
  await eventually(() => first.forgetState === "forgotten" && second.forgetState === "forgotten");
});

test("a tab that is closed while it waits leads never", async () => {
  const [first, second] = await openTwo("waiting");
  await second.close();
  await first.close();
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(federation.all("join").length, 1);
});

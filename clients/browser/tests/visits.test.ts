// Visits of a page in a federation with a pace: their times and actions, also over a real broker.

import "fake-indexeddb/auto";

import assert from "node:assert/strict";
import test, { after, afterEach, before, beforeEach } from "node:test";

import { deviceKey, EdgeClient } from "../src/index.js";
import { Participation } from "../src/participation.js";
import type { RoundAnnouncement } from "../src/protocol/messages.js";
import { fromHex } from "../src/protocol/fields.js";
import { Visits, type KeptPace } from "../src/visits.js";
import { startBroker, type Broker } from "./harness/broker.js";
import { eventually, PlayedFederation, type Heard } from "./harness/federation.js";

const PERIOD_S = 1000;
const NOW = 5_000_000;

/** Visits whose draws are all in the middle, with a manual clock. */
function visitsAt(clock: { at: number }, kept: KeptPace | null = null) {
  const stored: (KeptPace | null)[] = [];
  const participation = new Participation(null, false);
  const keep = (pace: KeptPace | null) => void stored.push(pace);
  const visits = new Visits(
    kept,
    participation,
    keep,
    () => undefined,
    () => 0.5,
    () => clock.at,
  );
  return { visits, participation, stored };
}

/** Make visits that have received a pace, and a round in the same epoch. */
function told(clock: { at: number }) {
  const made = visitsAt(clock);
  made.visits.beginVisit(0);
  made.visits.beginSession();
  made.visits.noteReached(1);
  made.visits.take(PERIOD_S, 1n);
  made.participation.takeRound({ round: 1 } as RoundAnnouncement, true, 1);
  made.participation.hearEpoch(1n, 1);
  made.visits.look();
  return made;
}

test("the first visit ends with a draw from the whole period, each later one from half of it to one and a half", () => {
  const clock = { at: NOW };
  const { visits, stored } = told(clock);
  assert.equal(visits.periodS, PERIOD_S);
  assert.deepEqual([visits.overAt(true), visits.overAt(false)], [1.25, 21]);
  visits.endVisit();
  assert.equal(visits.restS(), 500);
  visits.beginVisit(0);
  visits.noteReached(0);
  visits.endVisit();
  assert.equal(visits.restS(), 1000);
  visits.beginVisit(0);
  visits.endVisit(); // it reached nobody
  assert.equal(visits.restS(), 125);
  assert.deepEqual(stored.at(-1), { periodS: PERIOD_S, nextAt: NOW + 125 });
});

test("who stays for an answer does not go, and who was forgotten comes no more", () => {
  const { visits } = told({ at: NOW });
  visits.stay();
  assert.equal(visits.overAt(true), Infinity);
  visits.letGo();
  visits.forget();
  visits.endVisit();
  assert.deepEqual([visits.restS(), visits.restingUntil], [Infinity, null]);
});

test("a page that is opened anew rests on, one that is late comes soon, and a clock that was set back keeps none", () => {
  const kept = { periodS: PERIOD_S, nextAt: NOW + 300 };
  const early = visitsAt({ at: NOW }, kept);
  assert.deepEqual([early.visits.isResting, early.participation.rests, early.visits.restS()], [true, true, 300]);
  assert.equal(visitsAt({ at: NOW + 310 }, kept).visits.restS(), 5);
  assert.equal(visitsAt({ at: NOW + 9000 }, kept).visits.restS(), 30);
  const clock = { at: NOW - 8000 };
  assert.equal(visitsAt(clock, kept).visits.restS(), PERIOD_S);
});

// --- over a broker --------------------------------------------------------------------------------------------------

const ROWS = [
  [0, 1],
  [1, 0],
  [0.5, 0.5],
];
let broker: Broker;
let federation: PlayedFederation;
let opened: EdgeClient[] = [];
let name = "";
let nDevices = 0;

before(async () => {
  broker = await startBroker();
});
after(() => broker.close());
beforeEach(async () => {
  [opened, name] = [[], `visitor-${++nDevices}`];
  federation = await PlayedFederation.begin(broker.mqtt);
  for (const topic of ["model", "round", "pace"] as const) {
    await federation.publish(federation.topics[topic], new Uint8Array(), true); // of the previous test
  }
});
afterEach(async () => {
  await Promise.all(opened.map((client) => client.close()));
  await federation.end();
});

async function open(): Promise<EdgeClient> {
  const credentials = await federation.enrol(name, fromHex((await deviceKey(name)).publicKey));
  const log = () => undefined;
  const client = await EdgeClient.open({ broker: broker.webSocket, keyLabel: name, log, credentials, clickWindowS: 0 });
  opened.push(client);
  return client;
}

/** Open a page that has visited once, at this pace. */
async function visited(periodS: number): Promise<{ client: EdgeClient; join: Heard }> {
  await federation.announcePace(periodS);
  await federation.announceModel();
  await federation.announceRound(1);
  const client = await open();
  const join = await federation.hear("join");
  await federation.answerMembership(join, "joined", 0);
  await eventually(() => client.nextVisitAt !== null, "the end of the visit");
  return { client, join };
}

test("it comes by, says nothing of being there, and has one update counted in a visit", async () => {
  const { client } = await visited(1);
  assert.equal(client.state.connected, false);
  // The status from before it knew the pace is cleared.
  assert.deepEqual(
    federation.heard.filter(({ topic }) => topic.endsWith("/status")).map(({ kind }) => kind),
    ["status", "cleared"],
  );
  for (let i = 0; i < 9; i++) await client.recordClicks(client.rank(ROWS), [0]);
  await federation.announceRound(2);
  for (const visit of [2, 3]) {
    await federation.answerMembership(await federation.hear("join", visit), "joined", 4 * (visit - 2));
    const update = await federation.hear("update", visit - 1);
    await federation.announceRound(visit + 1);
    await federation.answerUpdate(update, "accepted", update.fields.through);
    await eventually(() => client.state.nUpdatesCounted === visit - 1 && client.nextVisitAt !== null);
    assert.equal(federation.all("update").length, visit - 1);
  }
  assert.equal(federation.all("status").length, 1);
});

test("a page that is closed in its first visit, having heard of the pace, leaves nothing said of being there", async () => {
  await federation.announceModel();
  await federation.announceRound(1);
  const client = await open();
  await federation.hear("status");
  await federation.hear("join"); // unanswered, so the visit continues
  await federation.announcePace(3600);
  await federation.announceRound(2);
  await eventually(() => client.state.round === 2, "the round after the pace");
  await client.close();
  await federation.hear("cleared");
  assert.equal(federation.all("status").length, 1);
});

test("a page that is opened between two visits rests, and comes where somebody wants to be forgotten", async () => {
  const { client } = await visited(3600);
  const nextAt = client.nextVisitAt!.getTime();
  await client.close();
  const nJoins = federation.all("join").length; // a busy machine may have heard it twice
  const again = await open();
  await eventually(() => again.nextVisitAt !== null, "the state");
  assert.equal(again.nextVisitAt!.getTime(), nextAt);
  assert.equal(federation.all("join").length, nJoins);
  const asked = again.forgetMe(20);
  await federation.hear("forget");
  await federation.notify(name, "forgotten", "a receipt");
  assert.deepEqual(await asked, { state: "forgotten", receipt: "a receipt" });
});

test("where a federator comes that has no pace it stays, with a last will", async () => {
  const { client } = await visited(1);
  federation.beginEpoch();
  await federation.announceRound(2);
  await federation.answerMembership(await federation.hear("join", 2), "joined", 0);
  await federation.answerMembership(await federation.hear("join", 3), "joined", 0);
  await federation.hear("status", 2);
  await eventually(() => client.state.connected && client.nextVisitAt === null);
  broker.breakConnections();
  const { fields } = await federation.hear("status", 3);
  assert.equal(fields.online, false);
});

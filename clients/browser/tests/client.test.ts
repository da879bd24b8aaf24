// A page's client over a real broker: what it sends, what it accepts, and what happens when tabs close.

import "fake-indexeddb/auto";

import assert from "node:assert/strict";
import test, { after, afterEach, before, beforeEach } from "node:test";

import { DataError, EdgeClient, FoltrError, SettingsError, deviceKey, type EdgeClientOptions } from "../src/index.js";
import { FeatureSchema } from "../src/schema.js";
import { fromHex, toHex, unpackVector, type Bytes } from "../src/protocol/fields.js";
import { openEnvelope } from "../src/protocol/codec.js";
import { generateKey } from "../src/protocol/signing.js";
import { startBroker, type Broker } from "./harness/broker.js";
import { eventually, PlayedFederation } from "./harness/federation.js";

const ROWS = [
  [0, 1],
  [1, 0],
  [0.5, 0.5],
];
let broker: Broker;
let federation: PlayedFederation;
let opened: EdgeClient[] = [];
let said: string[] = [];
let name = "";
let nDevices = 0;

before(async () => {
  broker = await startBroker();
});
after(() => broker.close());
beforeEach(async () => {
  [opened, said, name] = [[], [], `device-${++nDevices}`];
  federation = await PlayedFederation.begin(broker.mqtt);
  for (const topic of ["model", "round", "federatorKey", "policy", "pace", "evaluation"] as const) {
    await federation.publish(federation.topics[topic], new Uint8Array(), true); // of the previous test
  }
});
afterEach(async () => {
  await Promise.all(opened.map((client) => client.close()));
  await federation.end();
});

async function open(options: Partial<EdgeClientOptions> = {}): Promise<EdgeClient> {
  const { publicKey } = await deviceKey(name);
  const credentials = options.credentials ?? (await federation.enrol(name, fromHex(publicKey)));
  const log = (_level: string, event: string) => void said.push(event);
  const usual = { broker: broker.webSocket, keyLabel: name, log, clickWindowS: 0 };
  const client = await EdgeClient.open({ ...usual, ...options, credentials });
  opened.push(client);
  return client;
}

/** Open a client that has joined, with a model and an open round. */
async function joined(watermark: number | null = 0, options: Partial<EdgeClientOptions> = {}): Promise<EdgeClient> {
  await federation.announceModel();
  await federation.announceRound(1);
  const client = await open(options);
  await federation.answerMembership(await federation.hear("join"), "joined", watermark);
  await eventually(
    () => client.state.connected && client.modelVersion === 1 && client.state.countedThrough === watermark,
  );
  return client;
}

/** Click on the second document, wherever it is shown. */
async function click(client: EdgeClient, times: number): Promise<void> {
  for (let i = 0; i < times; i++) {
    const serp = client.rank(ROWS);
    await client.recordClicks(serp, [serp.ranking.indexOf(1)]);
  }
}

test("without a model the application's order is shown, with or without a network", async () => {
  const client = await open({ broker: "ws://127.0.0.1:9/mqtt" });
  const none = { exploration: { kind: "none" as const } };
  assert.deepEqual(client.rank(ROWS, none).ranking, [0, 1, 2]);
  assert.deepEqual(client.rank(ROWS, { ...none, base: [1, 2, 3] }).ranking, [2, 1, 0]);
  assert.equal(client.rank(ROWS, none).source, "base");
  await click(client, 1);
  await eventually(() => client.state.nWaiting === 1);
  await eventually(() => said.includes("broker_unreachable"));
});

test("a broker that is there is found at the first try", async () => {
  const client = await joined();
  assert.equal(client.state.connected, true);
  assert.ok(!said.includes("broker_unreachable"));
});

test("an empty list is a list, and a wrong one an error with a name", async () => {
  const client = await open();
  const empty = client.rank([]);
  assert.deepEqual(empty.ranking, []);
  await client.recordClicks(empty, []);
  assert.throws(() => client.rank([[1, 2], [1]]), DataError);
  assert.throws(() => client.rank([[1, NaN]]), DataError);
  assert.throws(() => client.rank(ROWS, { base: [1] }), DataError);
  const serp = client.rank(ROWS);
  for (const wrong of [[3], [-1], 1, [true, false, true], [0.5], ["0"], ["length"], [undefined], undefined, null]) {
    await assert.rejects(client.recordClicks(serp, wrong as number[]), DataError);
  }
  assert.equal(client.state.nWaiting, 0);
});

test("a model ranks, and features of another width are shown in the application's order", async () => {
  const client = await joined(0, { gate: false });
  const none = { exploration: { kind: "none" as const } };
  const byModel = client.rank(ROWS, none);
  assert.match((await client.report()).cause, /^without a gate nothing is compared$/);
  assert.equal(`${client}`, "<EdgeClient: connected, model 1: lists are in the model's order>");
  assert.deepEqual([byModel.ranking, byModel.source, byModel.modelVersion], [[1, 2, 0], "model", 1]);
  const narrow = client.rank([[1], [2]], none);
  assert.deepEqual([narrow.ranking, narrow.source], [[0, 1], "base"]);
});

test("a model's lists wait for the gate, which has judged by the same lists when the page is opened anew", async () => {
  const none = { exploration: { kind: "none" as const } };
  const client = await joined();
  const serp = client.rank(ROWS, none);
  assert.deepEqual([serp.ranking, serp.source, serp.modelVersion], [[0, 1, 2], "base", 1]);
  await client.recordClicks(serp, [1]);
  await client.recordClicks(serp, [1]);
  const brought = { lists: 1, clicked: 1, reciprocalRanks: 0.5 };
  await eventually(() => client.gate !== null);
  assert.deepEqual([client.gate!.isOpen, client.gate!.counts.base], [false, brought]);
  await client.close();
  const again = await open();
  await eventually(() => again.gate !== null && again.modelVersion === 1);
  assert.match(String(await again.report()), /^Lists are in the application's order.*\. 1 list was recorded, 1 with/);
  assert.match(`${again}`, /^<EdgeClient: .*, model 1: lists are in the application's order>$/);
  assert.deepEqual(again.gate!.counts.base, brought);
});

test("lists are drawn as the federation asks, or the call", async () => {
  await federation.announceModel();
  const training = { serp_length: 3, min_interactions: 2, max_interactions: 4, kind: "pdgd", learning_rate: 0.1 };
  await federation.announceRound(1, { training: { ...training, exploration: { kind: "interleaving" } } as any });
  const client = await open({ gate: false });
  await eventually(() => client.state.round === 1 && client.modelVersion === 1);
  assert.equal(client.rank(ROWS).source, "interleaved");
  assert.equal(client.rank(ROWS, { exploration: { kind: "sampling", temperature: 1 } }).source, "model");
  assert.deepEqual([...client.rank(ROWS, { exploration: { kind: "none" } }).reversals], [0, 0, 0]);
});

test("with other features than the federation's the application's order is shown, and clicks are kept", async () => {
  const features = [
    { name: "first", scaling: "min_max", low: 0, high: 2 },
    { name: "second", scaling: "ratio" },
  ];
  const schema = await FeatureSchema.of({ name: "shop", version: 1, features });
  await federation.announceModel();
  await federation.announceRound(1);
  const client = await open({ schema });
  await federation.answerMembership(await federation.hear("join"), "joined", 0);
  await eventually(() => client.state.hasOtherFeatures && client.state.countedThrough === 0);
  assert.deepEqual([client.rank(ROWS).source, client.rank(ROWS).ranking], ["base", [0, 1, 2]]);
  await click(client, 3);
  await eventually(() => client.state.nWaiting === 3 && said.includes("schema_mismatch"));
  assert.deepEqual(federation.all("update"), []);
  federation.schemaHash = fromHex(schema.hash);
  await federation.announceModel([1, 0], 2);
  await federation.announceRound(2);
  const { fields } = await federation.hear("update");
  assert.deepEqual([fields.through, fields.base_version], [3, 2]);
  assert.deepEqual([...client.rank(ROWS).features.values], [0, 1, 0.5, 0, 0.25, 0.5]);
});

test("clicks on features of another width wait until the application has the federation's", async () => {
  const client = await joined();
  for (let i = 0; i < 3; i++) await client.recordClicks(client.rank([[1], [2]]), [1]);
  await eventually(() => client.state.nWaiting === 3 && said.includes("feature_count_mismatch"));
  await click(client, 2);
  const { fields } = await federation.hear("update");
  assert.deepEqual([fields.after, fields.through, fields.n_interactions], [0, 5, 2]);
});

test("enough clicks become an update of the model's weights, which counts by its watermark", async () => {
  const client = await joined();
  await click(client, 2);
  const update = await federation.hear("update");
  const { fields } = update;
  assert.deepEqual([fields.after, fields.through, fields.n_interactions, fields.round], [0, 2, 2, 1]);
  assert.equal(fields.evaluation, null, "nobody asks");
  const delta = unpackVector(fields.body.values);
  assert.ok(delta[0] > 0 && delta[1] < 0, `the clicked document's feature gains: ${delta}`);
  await federation.answerUpdate(update, "accepted", 2);
  await eventually(() => client.state.countedThrough === 2 && client.state.nUpdatesCounted === 1);
  await federation.announceModel([0.6, 0.2], 2);
  await federation.announceRound(2);
  await click(client, 3);
  const next = await federation.hear("update", 2);
  assert.deepEqual([next.fields.after, next.fields.base_version], [2, 2]);
});

test("the same bytes are sent over every connection until there is a receipt", async () => {
  const client = await joined();
  await click(client, 2);
  const first = await federation.hear("update");
  for (let n = 2; n <= 3; n++) {
    broker.breakConnections();
    await federation.answerMembership(await federation.hear("join", n), "joined", 0);
    const again = await federation.hear("update", n);
    assert.equal(toHex(again.payload), toHex(first.payload));
  }
  await federation.answerUpdate(first, "duplicate", 2);
  await eventually(() => !client.state.isUpdatePending && client.state.countedThrough === 2);
});

test("the same bytes are sent by the next page, and what was recorded waits there", async () => {
  const client = await joined();
  await click(client, 3);
  const first = await federation.hear("update");
  await client.close();
  const next = await open();
  await federation.answerMembership(await federation.hear("join", 2), "joined", 0);
  assert.equal(toHex((await federation.hear("update", 2)).payload), toHex(first.payload));
  assert.equal(next.modelVersion, 1);
});

test("a round that is abandoned gives its clicks back, and the next update has them again", async () => {
  const client = await joined();
  await click(client, 2);
  const update = await federation.hear("update");
  await federation.answerUpdate(update, "accepted", 2);
  await eventually(() => client.state.countedThrough === 2);
  await federation.answerUpdate(update, "round_abandoned", 0);
  await federation.announceRound(2);
  const again = await federation.hear("update", 2);
  assert.deepEqual([again.fields.after, again.fields.through, again.fields.round], [0, 2, 2]);
});

test("a refused update is given up, its clicks go into one for the next round", async () => {
  const client = await joined();
  await click(client, 2);
  await federation.answerUpdate(await federation.hear("update"), "late", 0);
  await eventually(() => !client.state.isUpdatePending);
  await federation.announceRound(2);
  const next = await federation.hear("update", 2);
  assert.deepEqual([next.fields.after, next.fields.through], [0, 2]);
  assert.notEqual(next.fields.update_id, (await federation.hear("update")).fields.update_id);
});

test("a round gets one update, also after a reload; one that begins again has counted nothing", async () => {
  const client = await joined();
  await click(client, 2);
  await federation.answerUpdate(await federation.hear("update"), "accepted", 2);
  await eventually(() => client.state.nUpdatesCounted === 1);
  await client.close();
  const again = await open();
  await federation.answerMembership(await federation.hear("join", 2), "joined", 2);
  await click(again, 2);
  await eventually(() => again.modelVersion === 1 && again.state.nWaiting === 2);
  await federation.announceModel([1, 1], 2);
  await federation.announceRound(1, { opened_at: 2000.5 });
  const { fields } = await federation.hear("update", 2);
  assert.deepEqual([fields.after, fields.through, fields.base_version], [2, 4, 2]);
});

test("a store that is new goes on above the watermark that the federation tells", async () => {
  const client = await joined(70);
  await click(client, 2);
  const { fields } = await federation.hear("update");
  assert.deepEqual([fields.after, fields.through], [70, 72]);
});

test("nobody but the federator is believed, nor what it said before", async () => {
  const client = await joined();
  const forger = await generateKey(false);
  const own = federation.key;
  federation.key = forger;
  await federation.announceModel([9, 9], 2);
  await eventually(() => said.includes("message_refused"));
  federation.key = own;
  assert.equal(client.modelVersion, 1);
  await federation.announceModel([0.5, 0.25], 3);
  await eventually(() => client.modelVersion === 3);
});

test("the federator's next key is believed on the operator's word, and the old one no more", async () => {
  const client = await joined();
  const old = federation.key;
  await federation.rotateKey();
  await federation.announceModel([1, 1], 2);
  await eventually(() => client.modelVersion === 2);
  federation.key = old;
  await federation.announceModel([2, 2], 3);
  await eventually(() => said.includes("message_refused"));
  assert.equal(client.modelVersion, 2);
});

test("a withdrawn model is not used, and another method is said once", async () => {
  const client = await joined();
  await federation.announceRound(2, { withdraws_below: 2, training: { kind: "foltr-es", noise_scale: 0.1 } as any });
  await eventually(() => client.modelVersion === null);
  assert.equal(client.rank(ROWS, { exploration: { kind: "none" } }).source, "base");
  await federation.announceModel([1, 2], 2);
  await eventually(() => client.modelVersion === 2);
  assert.equal(said.filter((event) => event === "method_unsupported").length, 1);
});

test("a withdrawn model that comes late is not used, nor after a restart", async () => {
  const client = await joined();
  await federation.announceRound(2, { withdraws_below: 3 });
  await eventually(() => client.modelVersion === null);
  await federation.announceModel([9, 9], 2);
  await eventually(() => said.filter((event) => event === "model_withdrawn").length === 2);
  assert.equal(client.modelVersion, null);
  await client.close();
  const again = await open();
  await eventually(() => said.filter((event) => event === "model_withdrawn").length === 3);
  assert.equal(again.modelVersion, null);
  await federation.announceRound(3, { withdraws_below: 2 }); // of a restored database
  await eventually(() => again.modelVersion === 2);
});

test("a log of erasures that was cut is said once, and known after a restart", async () => {
  const cuts = () => said.filter((event) => event === "audit_log_cut").length;
  const client = await joined();
  await federation.announceHead(7);
  await eventually(() => client.state.newestAuditEntry === 7);
  await federation.announceHead(7);
  const { key } = federation;
  federation.key = await generateKey(false);
  await federation.announceHead(3);
  federation.key = key;
  await federation.announceHead(9);
  await eventually(() => client.state.newestAuditEntry === 9);
  assert.deepEqual([client.state.auditLogCut, cuts()], [null, 0]);
  await client.close();
  const again = await open();
  await federation.announceHead(5);
  await eventually(() => again.state.auditLogCut !== null);
  assert.deepEqual([again.state.auditLogCut, cuts()], [{ before: 9, after: 5 }, 1]);
  await federation.announceHead(12); // it grows again, but was cut
  await eventually(() => again.state.newestAuditEntry === 12);
  await again.close();
  const third = await open();
  await eventually(() => third.state.auditLogCut !== null);
  assert.deepEqual([third.state.auditLogCut, third.state.newestAuditEntry, cuts()], [{ before: 9, after: 5 }, 12, 1]);
});

test("under a policy of the operator nothing is sent raw any more", async () => {
  const client = await joined();
  const { topics, operator } = federation;
  const { seal } = await import("../src/protocol/codec.js");
  await federation.publish(
    topics.policy,
    await seal("policy", new Uint8Array([0x80]), topics.policy, 1n, operator),
    true,
  );
  await federation.announceRound(2);
  await eventually(() => said.includes("round_declined"));
  await click(client, 4);
  await eventually(() => client.state.nWaiting === 4);
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.deepEqual(federation.all("update"), []);
});

test("a browser that was enrolled for secure sums sends nothing, also where the policy is withheld", async () => {
  const before = await joined(); // with data of an older foltr
  await click(before, 2);
  await federation.hear("update");
  await before.close();
  const nSent = federation.all("update").length;
  const { publicKey } = await deviceKey(name);
  const client = await open({ credentials: await federation.enrol(name, fromHex(publicKey), true) });
  await federation.announceRound(2);
  await eventually(() => said.includes("round_declined"));
  assert.equal(client.state.isUpdatePending, false);
  await click(client, 4);
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.equal(federation.all("update").length, nSent);
});

test("who asks to be forgotten sends nothing else, deletes all it has, and gets the receipt", async () => {
  const client = await joined();
  await click(client, 1);
  const asked = client.forgetMe(10);
  await federation.hear("forget");
  await federation.notify(name, "forgetting", null);
  await eventually(() => client.isForgotten);
  await federation.notify(name, "forgotten", "header.payload.signature");
  assert.deepEqual(await asked, { state: "forgotten", receipt: "header.payload.signature" });
  await eventually(() => federation.all("cleared").length >= 2, "cleared status and request");
  await click(client, 2);
  assert.equal(client.state.nWaiting, 0);
  assert.deepEqual(client.rank(ROWS).ranking, [0, 1, 2]);
  const again = await open();
  await eventually(() => again.isForgotten);
});

test("a wish outlives the page: the next one asks again, and says nothing else, until there is a receipt", async () => {
  const client = await joined();
  await click(client, 1);
  assert.deepEqual(await client.forgetMe(0.05), { state: "sent", receipt: null });
  await client.close();
  const joins = federation.all("join").length;
  const again = await open();
  const asked = await federation.hear("forget", 2);
  assert.ok(asked !== undefined);
  await eventually(() => again.forgetState === "sent");
  await federation.announceRound(2);
  await click(again, 4);
  assert.equal(await again.leave(0.1), false);
  await new Promise((resolve) => setTimeout(resolve, 200));
  const said = [federation.all("join").length, federation.all("update").length, federation.all("leave").length];
  assert.deepEqual(said, [joins, 0, 0]);
  await federation.notify(name, "erasing", null);
  await eventually(() => again.isForgotten && again.forgetState === "erasing");
  await again.close();
  const last = await open();
  await federation.hear("forget", 3);
  await eventually(() => last.forgetState === "erasing");
  await federation.notify(name, "forgotten", "header.payload.signature");
  await eventually(() => last.forgetState === "forgotten");
});

test("a refusal to forget is an error, and the client goes on", async () => {
  const client = await joined();
  const asked = client.forgetMe(10);
  await federation.hear("forget");
  await federation.notify(name, "unknown_client", null);
  await assert.rejects(asked, FoltrError);
  await click(client, 2);
  await federation.hear("update");
});

test("who leaves is confirmed, sends no more, and clears its status", async () => {
  const client = await joined();
  const left = client.leave();
  await federation.answerMembership(await federation.hear("leave"), "left", 0);
  assert.ok(await left);
  await click(client, 3);
  await federation.announceRound(2);
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.deepEqual(federation.all("update"), []);
  assert.equal(federation.all("cleared").length, 1);
});

test("a step of an unlearning job is answered from clicks that were kept", async () => {
  const client = await joined();
  await click(client, 4);
  await federation.answerUpdate(await federation.hear("update"), "accepted", 4);
  await eventually(() => client.state.countedThrough === 4);
  const { UnlearningRound } = await import("../src/protocol/messages.js");
  const { packVector } = await import("../src/protocol/fields.js");
  const training = {
    serp_length: 5,
    min_interactions: 2,
    max_interactions: 4,
    kind: "pdgd" as const,
    learning_rate: 0.1,
  };
  const step = { federation: "mail", job: 1, step: 2, open: true, ranker: { kind: "linear" as const, n_features: 2 } };
  const asks = {
    n_auxiliary: 0,
    weights: packVector([0, 0]),
    local_interactions: 3,
    closes_at: 1600.5,
    training,
    erasures: [{ audit_seq: 1, audit_hash: new Uint8Array(32) }],
  };
  const ask = (more: object) =>
    federation.say(UnlearningRound, { ...step, ...asks, ...more } as any, federation.topics.unlearningRound);
  await ask({});
  const { fields } = await federation.hear("unlearning_update");
  assert.deepEqual([fields.job, fields.step, fields.n_interactions], [1, 2, 3]);
  await ask({ step: 3, local_interactions: 2 }); // too few: the answer would reveal nearly everything
  await eventually(() => said.filter((event) => event === "unlearning_step_skipped").length === 1);
  await ask({ step: 4 });
  assert.equal((await federation.hear("unlearning_update", 2)).fields.step, 4);
});

test("credentials of another key, or of nobody, are refused in words", async () => {
  await assert.rejects(open({ credentials: "nonsense" }), SettingsError);
  await assert.rejects(open({ credentials: { role: "federator", version: 1 } }), SettingsError);
  const other: Bytes = (await generateKey(false)).publicKey;
  await assert.rejects(
    open({ credentials: await federation.enrol(name, other) }),
    /foltr device enrol --replace --public-key/,
  );
  await assert.rejects(open({ broker: "mqtt://127.0.0.1" }), SettingsError);
  const { publicKey } = await deviceKey(name);
  const forged = await federation.enrol(name, fromHex(publicKey));
  const credentials = { ...forged, enrolment_key: Buffer.from(other).toString("base64") };
  await assert.rejects(open({ credentials }), /not signed by the operator/);
});

test("what is on the broker says that a page is gone, also when nothing said goodbye", async () => {
  await joined();
  broker.breakConnections();
  const isGone = ({ fields }: { fields: any }) => fields.client_id === name && !fields.online;
  const gone = await eventually(() => federation.all("status").find(isGone));
  assert.ok(openEnvelope(gone.payload).sequence % 65536n === 65535n);
});

for (const evaluation of [true, false]) {
  test(`an update says how its lists did if the federator that runs asks, and the application: ${evaluation}`, async () => {
    await federation.announceCredits(0, 0);
    const client = await joined(0, { evaluation });
    await click(client, 2);
    const update = await federation.hear("update");
    const told = update.fields.evaluation;
    // The second document, wherever it is shown.
    assert.deepEqual(told && [told.clicked, told.base_reward], evaluation ? [1, 0.5] : null);
    await federation.answerUpdate(update, "accepted", 2);
    await eventually(() => client.state.countedThrough === 2);
    federation.beginEpoch();
    await federation.announceModel([0.6, 0.2], 2);
    await federation.announceRound(2);
    await federation.answerMembership(await federation.hear("join", 2), "joined", 2);
    await click(client, 2);
    assert.equal((await federation.hear("update", 2)).fields.evaluation, null, "the next federator does not ask");
  });
}

test("a gate opens by what the lists of all users say, while their federator runs", async () => {
  await federation.announceCredits(25, 40);
  const client = await joined();
  await eventually(() => client.state.shared?.total === 25);
  assert.deepEqual([client.state.nMissing, client.state.nOpen], [2, 0]);
  for (let i = 0; i < 60; i++) {
    const serp = client.rank(ROWS, { exploration: { kind: "none" } });
    assert.equal(serp.source, client.gate?.isOpen ? "model" : "base");
    await client.recordClicks(serp, [0]);
    await eventually(() => (client.gate?.counts.base.lists ?? 0) + (client.gate?.counts.model.lists ?? 0) === i + 1);
  }
  assert.equal(client.gate?.isOpen, true);
  assert.equal(client.gate?.credits.weight, 0);
  federation.beginEpoch();
  await federation.announceRound(2);
  await eventually(() => client.state.shared === null);
});

test("lists from before a page was off for rounds are in the first update after it is back, once, with their credits", async () => {
  await federation.announceCredits(25, 40);
  const client = await joined();
  await eventually(() => client.state.shared?.total === 25);
  const record = async (page: EdgeClient, position: number) => {
    let serp = page.rank(ROWS);
    while (serp.source !== "interleaved" || serp.toCredit![position] !== 1) serp = page.rank(ROWS);
    await page.recordClicks(serp, [position]);
    return serp.basePositions![position];
  };
  const places = [await record(client, 0)];
  await eventually(() => client.state.nWaiting === 1);
  await client.close();
  federation.beginEpoch();
  await federation.announceCredits(26, 41);
  for (let round = 2; round <= 5; round++) {
    await federation.announceModel([0.5, round / 100], round);
    await federation.announceRound(round);
  }
  const again = await open();
  await federation.answerMembership(await federation.hear("join", 2), "joined", 0);
  await eventually(() => again.modelVersion === 5 && again.state.shared?.total === 26);
  places.push(await record(again, 0));
  const update = await federation.hear("update");
  const told = update.fields.evaluation;
  const baseReward = (1 / (1 + places[0]) + 1 / (1 + places[1])) / 2;
  assert.deepEqual([update.fields.through, told.clicked, told.reward, told.base_reward], [2, 1, 1, baseReward]);
  assert.deepEqual([told.credit_total, told.credit_squares], [2, 2]);
  await federation.answerUpdate(update, "accepted", 2);
  await eventually(() => again.state.countedThrough === 2);
  await federation.announceRound(6);
  for (let i = 0; i < 2; i++) await again.recordClicks(again.rank(ROWS, { exploration: { kind: "none" } }), []);
  const next = (await federation.hear("update", 2)).fields;
  assert.deepEqual([next.after, next.evaluation.clicked, next.evaluation.credit_squares], [2, 0, 0]);
});

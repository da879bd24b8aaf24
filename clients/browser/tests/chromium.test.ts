// The client in a real browser: a key that nobody can export, clicks that survive a crash, one device over two tabs.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

import { fromHex, toHex } from "../src/protocol/fields.js";
import { startBroker } from "./harness/broker.js";
import { Chromium, chromiumPath, PageServer, type Said } from "./harness/chromium.js";
import { eventually, PlayedFederation } from "./harness/federation.js";

const PATIENCE_S = 40;
const PAGE = new URL("../../tests/pages/searching.ts", import.meta.url).pathname;
const path = chromiumPath();
const skip = path === undefined && "no Chromium here: the client was not tested in a browser";

test("what a browser has recorded outlives it, its key too, and two tabs are one device", { skip }, async (context) => {
  const profile = mkdtempSync(join(tmpdir(), "foltr-chromium-"));
  const broker = await startBroker();
  const federation = await PlayedFederation.begin(broker.mqtt);
  const answer = async ({ event, publicKey }: Said) => {
    if (event !== "key") return {};
    return { broker: broker.webSocket, credentials: await federation.enrol("visitor", fromHex(publicKey)) };
  };
  const server = await PageServer.serving(PAGE, answer);
  const chromium = new Chromium(path!, profile);
  context.after(async () => {
    await chromium.kill();
    server.close();
    await federation.end();
    await broker.close();
    rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  });
  await federation.announceModel();
  await federation.announceRound(1);

  chromium.start(`${server.address}/?searches=3#first`);
  const join1 = await eventually(() => federation.all("join")[0], "a join", PATIENCE_S);
  await federation.answerMembership(join1, "joined", 0);
  const update = await eventually(() => federation.all("update")[0], "an update", PATIENCE_S);
  await eventually(() => server.all("recorded").length === 3, "three lists", PATIENCE_S);
  await chromium.kill();

  // Unanswered messages are sent again when a round arrives, so the first browser may have sent each one twice.
  const [joins, updates] = [federation.all("join").length, federation.all("update").length];
  chromium.start(`${server.address}/two?searches=1`);
  const join2 = await eventually(() => federation.all("join")[joins], "another join", PATIENCE_S);
  await federation.answerMembership(join2, "joined", 0);
  const again = await eventually(() => federation.all("update")[updates], "the update again", PATIENCE_S);
  assert.equal(toHex(again.payload), toHex(update.payload));
  assert.deepEqual([...new Set(server.all("key").map(({ publicKey }) => publicKey))].length, 1);
  assert.ok(server.all("key").every(({ isExtractable }) => isExtractable === false));

  await eventually(() => server.all("recorded").length === 5, "a list of each tab", PATIENCE_S);
  await federation.answerUpdate(again, "accepted", again.fields.through);
  await federation.announceRound(2);
  const isNew = ({ payload }: { payload: Uint8Array }) => toHex(payload) !== toHex(update.payload);
  const rest = await eventually(() => federation.all("update").find(isNew), "an update of the rest", PATIENCE_S);
  assert.deepEqual([rest.fields.after, rest.fields.through], [again.fields.through, 5]);
  assert.equal(new Set(federation.all("update").map(({ payload }) => toHex(payload))).size, 2);
});

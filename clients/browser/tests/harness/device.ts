// A device in a separate process, for tests of whole federations: it searches and clicks until it is told to stop.
//
// node device.js '{"store": FILE, "seed": HEX, "public_key": HEX, "credentials": {...}, "broker": "ws://...", ...}'
//
// It prints a line of JSON for each list on disk. After a line on standard input, once all lists count, it prints its
// state and its lists.

import { keep, keyOf } from "./keys.js";
import { persistIn } from "./persistent.js";

import { fromHex } from "../../src/protocol/fields.js";
import { EdgeClient } from "../../src/index.js";
import { done } from "../../src/store/rows.js";
import type { Interaction } from "../../src/store/interactions.js";

const { store, seed, public_key, credentials, broker, n_features, pause_ms, searches } = JSON.parse(process.argv[2]);

function say(event: string, details: object): void {
  process.stdout.write(`${JSON.stringify({ event, ...details })}\n`);
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

await keep(await keyOf(fromHex(seed), fromHex(public_key)));
const database = await persistIn(store, `foltr:${credentials.federation}/${credentials.name}`);
const client = await EdgeClient.open({
  credentials,
  broker,
  clickWindowS: 0, // these users do not come back to a list
  log: (level, event, details) => void (level === "debug" || say("log", { level, name: event, details })),
});
let isEnding = false;
process.stdin.once("data", () => (isEnding = true));
for (let i = 0; i < searches && !isEnding; i++) {
  const features = Array.from({ length: 8 }, () => Float32Array.from({ length: n_features }, Math.random));
  const serp = client.rank(features);
  // The user wants documents with the first feature, and reads the list from the top.
  const clicked = serp.ranking.flatMap((document, position) => (features[document][0] > 0.6 ? [position] : []));
  await client.recordClicks(serp, clicked);
  say("recorded", { serp: serp.serpId });
  await pause(pause_ms);
}
say("searched", {});
while (!isEnding || client.state.nWaiting > 0 || client.state.isUpdatePending) await pause(20);
await client.close();
const interactions = await database.read((rows) => done<Interaction[]>(rows.interactions.getAll()));
const { weights: _weights, ...state } = client.state;
const asJson = (each: Interaction) => ({ ...each, features: [...each.features], reversals: [...each.reversals] });
say("ended", { state, interactions: interactions.map(asJson) });
process.exit(0);

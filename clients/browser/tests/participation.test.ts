// A device's next action follows from what it has received, without a clock or a network.

import assert from "node:assert/strict";
import test from "node:test";

import { Participation, type Model, type Sent } from "../src/participation.js";
import type { RoundAnnouncement, UpdateReceipt } from "../src/protocol/messages.js";
import type { ReceiptCode } from "../src/protocol/receipts.js";

const HASH = new Uint8Array(16).fill(7);
const DIGEST = new Uint8Array(16).fill(1);
const WHO = { federation: "mail", client_id: "device-7" };

function pendingUpdate(): Sent {
  return { updateId: "a".repeat(32), round: 3, after: 0, through: 5, payload: new Uint8Array(3), digest: DIGEST };
}

function round(fields: Partial<RoundAnnouncement> = {}): RoundAnnouncement {
  const training = {
    kind: "pdgd" as const,
    serp_length: 10,
    min_interactions: 1,
    max_interactions: 5,
    learning_rate: 0.1,
  };
  const times = { opened_at: 0, closes_at: 1, withdraws_below: 0 };
  const base = { federation: "mail", round: 4, open: true, last: false, base_version: 2, base_hash: HASH };
  return { ...base, ...times, training, selection: null, secure: null, ...fields } as RoundAnnouncement;
}

function receipt(code: ReceiptCode, fields: Partial<UpdateReceipt> = {}): UpdateReceipt {
  const nothing = { payload_digest: null, detail: "", counted_through: null, retry_after_s: null, missing: null };
  return { ...WHO, update_id: "a".repeat(32), code, ...nothing, ...fields };
}

function joined(pending: Sent | null = null): Participation {
  const participation = new Participation(pending, false, "", () => 0.5);
  participation.beginConnection(0);
  assert.deepEqual(participation.due(0), ["join"]);
  const answer = { ...WHO, code: "joined" as const, payload_digest: null, newest_sequence: null, detail: "" };
  participation.takeMembershipReceipt({ ...answer, counted_through: 0 }, 0);
  return participation;
}

function withModel(participation = joined()): Participation {
  const announcement = { federation: "mail", version: 2, n_auxiliary: 0, weights: new Uint8Array(8) };
  participation.takeModel({
    announcement: { ...announcement, ranker: { kind: "linear", n_features: 2 } },
    hash: HASH,
  } as Model);
  return participation;
}

test("a join is sent again with growing pauses until it is answered, and an update only after it", () => {
  const participation = new Participation(pendingUpdate(), false, "", () => 0.5);
  participation.beginConnection(0);
  assert.deepEqual(participation.due(0), ["join"]);
  assert.deepEqual(participation.due(4.9), []);
  assert.deepEqual(participation.due(5), ["join"]);
  assert.equal(participation.nextDueAt(), 15);
});

test("an update is sent until it has its receipt, and at once over a new connection", () => {
  const participation = joined(pendingUpdate());
  assert.deepEqual(participation.due(0), ["update"]);
  assert.deepEqual(participation.due(1), []);
  assert.deepEqual(participation.due(5), ["update"]);
  participation.beginConnection(6);
  assert.deepEqual(participation.due(6), ["join"]);
});

test("a receipt answers by the update's id or by its bytes, and another's answers nothing", () => {
  const takes = (code: ReceiptCode, fields: Partial<UpdateReceipt> = {}) =>
    joined(pendingUpdate()).takeUpdateReceipt(receipt(code, fields), 1);
  assert.ok(takes("accepted"));
  assert.ok(takes("accepted", { payload_digest: DIGEST }));
  assert.ok(!takes("accepted", { payload_digest: HASH })); // of bytes signed with another key
  assert.ok(!takes("accepted", { update_id: "b".repeat(32) }));
  assert.ok(takes("malformed", { update_id: null, payload_digest: DIGEST }));
  assert.ok(!takes("malformed", { update_id: null, payload_digest: HASH }));
  assert.ok(!takes("malformed", { update_id: null }));
  for (const code of ["busy", "unknown_client", "incomplete", "unsupported_version"] as const) assert.ok(!takes(code));
});

test("a busy federator is asked again when it says so, an unknown client joins first", () => {
  const busy = joined(pendingUpdate());
  busy.due(0);
  busy.takeUpdateReceipt(receipt("busy", { update_id: null, retry_after_s: 8 }), 1);
  busy.takeRound(round(), true, 2); // it answered, but asked to wait
  assert.deepEqual(busy.due(10.9), []);
  assert.deepEqual(busy.due(11), ["update"]);
  const unknown = joined(pendingUpdate());
  unknown.due(0);
  unknown.takeUpdateReceipt(receipt("unknown_client"), 1);
  assert.deepEqual(unknown.due(1), ["join"]);
});

test("it contributes to an open round on the very model it has, once", () => {
  const may = (fields: Partial<RoundAnnouncement>, isAsked = true, now = 0) => {
    const participation = withModel();
    participation.takeRound(round(fields), isAsked, now);
    return participation.mayContribute();
  };
  assert.ok(may({}));
  assert.ok(!may({}, false));
  assert.ok(!may({ open: false }));
  assert.ok(!may({ base_version: 3 }));
  assert.ok(!may({ base_hash: DIGEST }));
  assert.ok(!may({ secure: { policy_hash: new Uint8Array(32), clip_norm: 1 } }));
  const once = withModel();
  once.takeRound(round(), true, 0);
  once.contribute({ ...pendingUpdate(), round: 4 }, 0);
  assert.ok(!once.mayContribute());
  once.endPending(false);
  assert.ok(!once.mayContribute());
  once.beginRoundsAnew();
  assert.ok(once.mayContribute());
});

test("under a policy, or once it has left, it contributes nothing", () => {
  const left = withModel();
  left.takeRound(round(), true, 0);
  left.left = true;
  assert.ok(!left.mayContribute());
  assert.deepEqual(left.due(100), []);
  const underPolicy = withModel(joined(pendingUpdate()));
  underPolicy.takeRound(round(), true, 0);
  underPolicy.takePolicy();
  assert.equal(underPolicy.pending, null);
  assert.ok(!underPolicy.mayContribute());
});

test("it joins again, after a moment, when another federator announces", () => {
  const participation = joined();
  participation.hearEpoch(5n, 1);
  assert.deepEqual(participation.due(1), []);
  participation.hearEpoch(6n, 2);
  assert.deepEqual(participation.due(2), []);
  assert.deepEqual(participation.due(2.5), ["join"]);
});

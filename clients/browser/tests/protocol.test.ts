// The wire format equals Python's byte by byte: envelopes, bodies, signatures and refusals.

import assert from "node:assert/strict";
import test from "node:test";

import { MessageError } from "../src/errors.js";
import { isSelected, roundSeed, ticket } from "../src/protocol/client_selection.js";
import { encode, isSignedBy, openEnvelope, readEnvelope, SCHEMA_VERSION, seal } from "../src/protocol/codec.js";
import { fromHex, isMap, shortHash, toHex, type Bytes } from "../src/protocol/fields.js";
import { MESSAGE_TYPES } from "../src/protocol/messages.js";
import { pack } from "../src/protocol/msgpack.js";
import { joinsFirst, reactionTo, RECEIPT_CODES } from "../src/protocol/receipts.js";
import * as signing from "../src/protocol/signing.js";
import { valueOf, vectorsOf } from "./vectors.js";

const vectors = vectorsOf("messages");
const publicKey = fromHex(vectors.public_key);
const portable: signing.KeptKey = { kind: "portable", seed: fromHex(vectors.seed), publicKey };
// This client never sends these; it has other variants of the same message.
const OTHER_BODIES = ["update-part", "update-evolution", "update-masked", "update-masked-proven", "update-vote"];
const SENT = ["join", "leave", "status", "forget", "update", "unlearning_update"];

test("the schema version is that of the vectors", () => {
  assert.equal(SCHEMA_VERSION, vectors.schema_version);
});

for (const vector of vectors.messages) {
  const payload: Bytes = fromHex(vector.payload);

  test(`${vector.name}: the envelope is read and made again to the byte`, async () => {
    const envelope = openEnvelope(payload);
    assert.equal(envelope.kind, vector.kind);
    assert.equal(envelope.sequence, BigInt(vector.sequence));
    const { kind, sequence, body } = envelope;
    assert.equal(toHex(signing.signedBytes(vector.topic, kind, sequence, body)), vector.signed);
    assert.equal(toHex(await seal(kind, body, vector.topic, sequence, portable)), vector.payload);
    assert.equal(toHex(await shortHash(payload)), vector.digest);
    for (const verify of [signing.verifyNatively, signing.verifyPortably]) {
      assert.ok(await isSignedBy(envelope, publicKey, vector.topic, verify));
      assert.ok(!(await isSignedBy(envelope, publicKey, `${vector.topic}x`, verify)));
      assert.ok(!(await isSignedBy({ ...envelope, sequence: sequence + 1n }, publicKey, vector.topic, verify)));
    }
  });

  const type = MESSAGE_TYPES.get(vector.kind);
  if (type === undefined || OTHER_BODIES.includes(vector.name)) continue;

  test(`${vector.name}: the fields are read and encoded again to the byte`, async () => {
    const fields = readEnvelope(openEnvelope(payload), type);
    const expected = valueOf(vector.fields) as Record<string, unknown>;
    for (const [key, value] of Object.entries(fields)) {
      if (isMap(value) && value["kind"] === "unusable") assert.equal(value["of"], vector.fields[key].kind);
      else assert.deepEqual(normal(value), normal(expected[key]), key);
    }
    if (!SENT.includes(vector.kind)) return;
    assert.equal(toHex(await encode(type, fields, vector.topic, BigInt(vector.sequence), portable)), vector.payload);
  });
}

test("every kind that a device takes is among the vectors", () => {
  const kinds = new Set(vectors.messages.map((vector: { kind: string }) => vector.kind));
  assert.deepEqual(
    [...MESSAGE_TYPES.keys()].filter((kind) => !kinds.has(kind)),
    [],
  );
});

test("a field that is unknown, missing or wrong is refused, and named", () => {
  const type = MESSAGE_TYPES.get("status")!;
  const signature = new Uint8Array();
  const read = (fields: object) => readEnvelope({ kind: "status", sequence: 1n, body: pack(fields), signature }, type);
  const right = { federation: "mail", client_id: "device-7", online: true };
  assert.deepEqual({ ...read(right) }, right);
  assert.throws(() => read({ ...right, more: 1 }), /malformed: message: a field is unknown here: more/);
  assert.throws(() => read({ federation: "mail", client_id: "device-7" }), /message.online/);
  assert.throws(() => read({ ...right, client_id: "a/b" }), /message.client_id/);
  assert.throws(() => readEnvelope({ kind: "leave", sequence: 1n, body: pack(right), signature }, type), MessageError);
});

for (const { what, payload, code } of vectorsOf("refused")) {
  test(`refused as Python refuses it: ${what}`, () => {
    assert.throws(
      () => openEnvelope(fromHex(payload)),
      (error) => error instanceof MessageError && error.code === code,
    );
  });
}

test("an evaluation that earned more than there were clicks is refused", () => {
  const type = MESSAGE_TYPES.get("update")!;
  const { fields } = vectors.messages.find(({ name }: { name: string }) => name === "update-evaluation");
  const read = (evaluation: object) => {
    const body = pack({ ...(valueOf(fields) as object), evaluation });
    return readEnvelope({ kind: "update", sequence: 1n, body, signature: new Uint8Array() }, type)["evaluation"];
  };
  const right = { clicked: 0.5, reward: 0.5, base_reward: 0.25 };
  assert.deepEqual({ ...(read(right) as object) }, { ...right, credit_total: 0, credit_squares: 0 });
  assert.throws(() => read({ ...right, base_reward: 0.75 }), /more was earned/);
  assert.throws(() => read({ ...right, reward: 1.5 }), /message.evaluation.reward/);
});

test("what is larger than a message may be is refused before it is read", () => {
  assert.throws(() => openEnvelope(new Uint8Array(256 * 1024 + 1)), /too_large/);
});

test("a key that cannot be exported signs to the same bytes", async () => {
  const pkcs8 = Uint8Array.from([...fromHex("302e020100300506032b657004220420"), ...portable.seed]);
  const privateKey = await crypto.subtle.importKey("pkcs8", pkcs8, "Ed25519", false, ["sign"]);
  const native: signing.KeptKey = { kind: "webcrypto", privateKey, publicKey };
  for (const vector of vectors.messages.slice(0, 5)) {
    assert.equal(toHex(await signing.sign(native, fromHex(vector.signed))), vector.signature);
  }
});

test("a key that is made signs what both ways of verifying believe, and shows no secret", async () => {
  assert.ok(await signing.hasEd25519());
  for (const isNative of [true, false]) {
    const key = await signing.generateKey(isNative);
    const data = new Uint8Array([1, 2, 3]);
    const signature = await signing.sign(key, data);
    assert.ok(await signing.verifyNatively(key.publicKey, data, signature));
    assert.ok(await signing.verifyPortably(key.publicKey, data, signature));
    assert.ok(!(await signing.verifyPortably(key.publicKey, new Uint8Array([1, 2]), signature)));
    if (key.kind === "webcrypto") {
      assert.equal(key.privateKey.extractable, false);
      await assert.rejects(crypto.subtle.exportKey("pkcs8", key.privateKey));
    } else assert.equal(isNative, false);
  }
});

test("no key or signature of another length is believed", async () => {
  for (const verify of [signing.verifyNatively, signing.verifyPortably]) {
    assert.equal(await verify(new Uint8Array(31), new Uint8Array(3), new Uint8Array(64)), false);
    assert.equal(await verify(publicKey, new Uint8Array(3), new Uint8Array(63)), false);
    assert.equal(await verify(new Uint8Array(32).fill(255), new Uint8Array(3), new Uint8Array(64)), false);
  }
});

for (const { first_seed, round, client_id, ticket: mine, cutoff, selected } of vectorsOf("selections")) {
  test(`round ${round} asks ${client_id} up to ${cutoff}: ${selected}`, async () => {
    const seed = await roundSeed(fromHex(first_seed), round);
    assert.equal(toHex(await ticket(seed, client_id)), mine);
    assert.equal(await isSelected(seed, fromHex(cutoff), client_id), selected);
  });
}

test("sequence numbers are put together and taken apart alike", () => {
  const { newest_session, session, numbers, epochs } = vectorsOf("sequences");
  const sequence = new signing.SessionSequence(BigInt(newest_session));
  assert.equal(sequence.beginSession(), BigInt(session));
  assert.deepEqual([sequence.next(), sequence.next(), sequence.lastWill()], numbers.map(BigInt));
  for (const each of epochs) assert.deepEqual(signing.epochAndNumber(BigInt(each.sequence)), each.parts.map(BigInt));
});

test("a session begins above what the federator has seen, unless that leaves no room above it", () => {
  const sequence = new signing.SessionSequence();
  sequence.beginAbove((1n << 63n) - 1n);
  assert.ok(sequence.beginSession() <= BigInt(Date.now()));
  const seen = BigInt(Date.now() + 3_600_000) * signing.SESSION_STEPS;
  sequence.beginAbove(seen);
  assert.ok(sequence.beginSession() * signing.SESSION_STEPS > seen);
});

test("every code of an answer is known, with what a device does about it", () => {
  const codes = vectorsOf("receipt_codes");
  assert.deepEqual(RECEIPT_CODES.slice().sort(), Object.keys(codes).sort());
  for (const code of RECEIPT_CODES) {
    assert.deepEqual({ reaction: reactionTo(code), joins_first: joinsFirst(code) }, codes[code], code);
  }
});

function normal(value: unknown): unknown {
  if (value instanceof Uint8Array) return toHex(value);
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return value.map(normal);
  if (!isMap(value)) return typeof value === "number" && value > 2 ** 32 ? value.toString() : value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, normal(each)]));
}

// Encodes and decodes messages like core/protocol/codec.py: an envelope around a body that is signed as bytes.

import { MessageError } from "../errors.js";
import {
  bytes,
  isMap,
  map,
  MAX_MESSAGE_BYTES,
  sequenceNumber,
  shown,
  type Bytes,
  type Fields,
  type Shape,
} from "./fields.js";
import type { MessageType } from "./messages.js";
import { pack, unpack } from "./msgpack.js";
import { sign, SIGNATURE_BYTES, signedBytes, type KeptKey, type Verify } from "./signing.js";

export const SCHEMA_VERSION = 1;
const ENVELOPE_KEYS = ["v", "kind", "sequence", "body", "signature"];

/** A message with an undecoded body. */
export interface Envelope {
  readonly kind: string;
  readonly sequence: bigint;
  readonly body: Bytes;
  readonly signature: Bytes;
}

/** Return the envelope of a message as bytes, signed for `topic` if a key is given. */
export async function encode<S extends Shape>(
  type: MessageType<S>,
  fields: Fields<S>,
  topic = "",
  sequence = 0n,
  key: KeptKey | null = null,
): Promise<Bytes> {
  const checked = read(type, packBody(type, fields));
  return seal(type.kindName, packBody(type, checked), topic, sequence, key);
}

/** Return an envelope around an encoded body. */
export async function seal(
  kind: string,
  body: Bytes,
  topic: string,
  sequence: bigint,
  key: KeptKey | null,
): Promise<Bytes> {
  const signature = key === null ? new Uint8Array() : await sign(key, signedBytes(topic, kind, sequence, body));
  return pack({ v: SCHEMA_VERSION, kind, sequence, body, signature });
}

/** Return whether the owner of `publicKey` signed this for `topic`. */
export function isSignedBy(envelope: Envelope, publicKey: Bytes, topic: string, verify: Verify): Promise<boolean> {
  const { kind, sequence, body, signature } = envelope;
  return verify(publicKey, signedBytes(topic, kind, sequence, body), signature);
}

/** Return the envelope in `payload`; MessageError `too_large`, `unsupported_version` or `malformed`. */
export function openEnvelope(payload: Bytes): Envelope {
  if (payload.length > MAX_MESSAGE_BYTES) {
    throw new MessageError("too_large", `${payload.length} bytes; a message has at most ${MAX_MESSAGE_BYTES}`);
  }
  const envelope = mapIn(payload, "envelope");
  // The version is checked first, so that another version's envelope gets a clear answer.
  const version = envelope["v"];
  if (typeof version !== "number") throw new MessageError("malformed", "the envelope has no schema version");
  if (version !== SCHEMA_VERSION) {
    const older = version < SCHEMA_VERSION ? "the peer" : "this side";
    throw new MessageError(
      "unsupported_version",
      `schema version ${version}; this side has version ${SCHEMA_VERSION}: upgrade ${older}`,
    );
  }
  if (Object.keys(envelope).length !== ENVELOPE_KEYS.length || !ENVELOPE_KEYS.every((key) => key in envelope)) {
    throw new MessageError("malformed", "the envelope has other keys");
  }
  const { kind } = envelope;
  if (typeof kind !== "string") throw new MessageError("malformed", "the kind is not text");
  const signature = bytes(0, SIGNATURE_BYTES)(envelope["signature"], "signature");
  if (![0, SIGNATURE_BYTES].includes(signature.length)) {
    throw new MessageError("malformed", `the signature is not ${SIGNATURE_BYTES} bytes, nor empty`);
  }
  return {
    kind,
    sequence: sequenceNumber(envelope["sequence"], "sequence"),
    body: bytes(0, MAX_MESSAGE_BYTES)(envelope["body"], "body"),
    signature,
  };
}

/** Return the fields of an envelope's message. MessageError `malformed` for another kind or an invalid body. */
export function readEnvelope<S extends Shape>(envelope: Envelope, expected: MessageType<S>): Fields<S> {
  if (envelope.kind !== expected.kindName) {
    throw new MessageError("malformed", `kind ${shown(envelope.kind)} where '${expected.kindName}' belongs`);
  }
  return read(expected, envelope.body);
}

function mapIn(data: Bytes, what: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = unpack(data);
  } catch (error) {
    throw new MessageError("malformed", `the ${what} is not msgpack: ${(error as Error).message}`);
  }
  if (!isMap(value)) throw new MessageError("malformed", `the ${what} is not a map`);
  return value;
}

function read<S extends Shape>(type: MessageType<S>, body: Bytes): Fields<S> {
  const fields = map(type.shape)(mapIn(body, "body"), "message");
  const problem = type.problem(fields);
  if (problem !== null) throw new MessageError("malformed", problem);
  return fields;
}

function packBody<S extends Shape>(type: MessageType<S>, fields: Fields<S>): Bytes {
  return pack(Object.fromEntries(Object.keys(type.shape).map((key) => [key, fields[key]])));
}

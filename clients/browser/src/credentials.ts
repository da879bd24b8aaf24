// Reads the output of `foltr device enrol --public-key`: trusted keys, and the operator's statement on this key.

import { MessageError, SettingsError } from "./errors.js";
import { isSignedBy, openEnvelope, readEnvelope } from "./protocol/codec.js";
import { fromBase64, isMap, sameBytes, toHex, type Bytes } from "./protocol/fields.js";
import { Enrolment, FederatorKey } from "./protocol/messages.js";
import { KEY_BYTES, type KeptKey, type Verify } from "./protocol/signing.js";
import { Topics } from "./protocol/topics.js";

/** Validated credentials. */
export interface Credentials {
  readonly federation: string;
  readonly name: string;
  readonly username: string | null;
  readonly password: string | null;
  readonly enrolmentKey: Bytes;
  readonly federatorKey: Bytes;
  readonly federatorKeySequence: number;
  /** The operator's signed statement, which a join includes. */
  readonly enrolment: Bytes;
  /** Enrolled for a federation of secure sums: the device sends nothing without a policy. */
  readonly isPinned: boolean;
  /** The operator's signed policy of secure sums; null without one. */
  readonly policy: Bytes | null;
}

/** Read the operator's file. SettingsError for an invalid file, or one of another device's key. */
export async function readCredentials(file: unknown, key: KeptKey, verify: Verify): Promise<Credentials> {
  const parsed = typeof file === "string" ? parse(file) : file;
  if (!isMap(parsed) || parsed["role"] !== "device" || parsed["version"] !== 1) {
    throw new SettingsError("credentials: it is not what `foltr device enrol --public-key` writes for a device");
  }
  const broker = isMap(parsed["broker"]) ? parsed["broker"] : {};
  const credentials = {
    federation: textOf(parsed, "federation"),
    name: textOf(parsed, "name"),
    username: typeof broker["username"] === "string" ? broker["username"] : null,
    password: typeof broker["password"] === "string" ? broker["password"] : null,
    enrolmentKey: keyOf(parsed, "enrolment_key"),
    federatorKey: keyOf(parsed, "federator_key"),
    federatorKeySequence: Number(parsed["federator_key_sequence"] ?? 0),
    enrolment: bytesOf(parsed, "enrolment"),
    policy: parsed["policy"] == null ? null : bytesOf(parsed, "policy"),
  };
  const { secure } = await checkEnrolment(credentials, key, verify);
  return { ...credentials, isPinned: secure };
}

/**
 * Return credentials that trust the federator's key in the operator's statement. MessageError for an invalid or older
 * one.
 */
export async function withFederatorKey(
  credentials: Credentials,
  statement: Bytes,
  verify: Verify,
): Promise<Credentials> {
  const envelope = openEnvelope(statement);
  const { federatorKey } = new Topics(credentials.federation);
  if (!(await isSignedBy(envelope, credentials.enrolmentKey, federatorKey, verify))) {
    throw new MessageError("bad_signature", "the federator's key is not signed by the operator");
  }
  const stated = readEnvelope(envelope, FederatorKey);
  if (stated.federation !== credentials.federation) throw new MessageError("wrong_federation", stated.federation);
  if (stated.sequence < credentials.federatorKeySequence) {
    throw new MessageError("replayed", `key ${stated.sequence}; ${credentials.federatorKeySequence} is known`);
  }
  if (stated.sequence === credentials.federatorKeySequence) return credentials;
  return { ...credentials, federatorKey: stated.new_key, federatorKeySequence: stated.sequence };
}

/** Return whether this is a policy of the operator. A device without secure sums ignores its content. */
export async function isPolicyOf(credentials: Credentials, signed: Bytes, verify: Verify): Promise<boolean> {
  const envelope = openEnvelope(signed);
  const { policy } = new Topics(credentials.federation);
  return envelope.kind === "policy" && (await isSignedBy(envelope, credentials.enrolmentKey, policy, verify));
}

async function checkEnrolment(
  credentials: Omit<Credentials, "isPinned">,
  key: KeptKey,
  verify: Verify,
): Promise<Enrolment> {
  const { federation, name, enrolmentKey } = credentials;
  const envelope = openEnvelope(credentials.enrolment);
  if (!(await isSignedBy(envelope, enrolmentKey, new Topics(federation).enrolment(name), verify))) {
    throw new SettingsError("credentials: the enrolment is not signed by the operator that they name");
  }
  const enrolment = readEnvelope(envelope, Enrolment);
  if (!sameBytes(enrolment.public_key, key.publicKey)) {
    throw new SettingsError(
      `credentials: they are of the key ${toHex(enrolment.public_key)}; this browser has ${toHex(key.publicKey)}: ` +
        "enrol that one with `foltr device enrol --replace --public-key`",
    );
  }
  return enrolment;
}

function parse(file: string): unknown {
  try {
    return JSON.parse(file);
  } catch {
    return null;
  }
}

function textOf(file: Record<string, unknown>, field: string): string {
  const value = file[field];
  if (typeof value !== "string") throw new SettingsError(`credentials: ${field} is missing`);
  return value;
}

function bytesOf(file: Record<string, unknown>, field: string): Bytes {
  const value = fromBase64(textOf(file, field));
  if (value === null) throw new SettingsError(`credentials: ${field} is not base64`);
  return value;
}

function keyOf(file: Record<string, unknown>, field: string): Bytes {
  const key = bytesOf(file, field);
  if (key.length !== KEY_BYTES)
    throw new SettingsError(`credentials: ${field} is not the base64 text of ${KEY_BYTES} bytes`);
  return key;
}

// A federator that a test controls step by step, with an operator's key, over the tests' broker.

import mqtt, { type MqttClient } from "mqtt";

import { encode, openEnvelope, readEnvelope } from "../../src/protocol/codec.js";
import { packVector, shortHash, type Bytes, type Fields, type Shape } from "../../src/protocol/fields.js";
import {
  AuditHead,
  Enrolment,
  ErasureNotice,
  EvaluationRequest,
  FederatorKey,
  MembershipReceipt,
  MESSAGE_TYPES,
  ModelAnnouncement,
  Pace,
  RoundAnnouncement,
  UpdateReceipt,
  type MessageType,
} from "../../src/protocol/messages.js";
import type { ReceiptCode } from "../../src/protocol/receipts.js";
import { generateKey, type KeptKey } from "../../src/protocol/signing.js";
import { Topics } from "../../src/protocol/topics.js";

const FEDERATION = "mail";
const TRAINING = {
  serp_length: 5,
  min_interactions: 2,
  max_interactions: 4,
  kind: "pdgd" as const,
  learning_rate: 0.1,
};

/** A device's message: its kind, its bytes, and its fields. */
export interface Heard {
  readonly topic: string;
  readonly payload: Bytes;
  readonly kind: string;
  readonly fields: any;
}

export class PlayedFederation {
  readonly topics = new Topics(FEDERATION);
  readonly heard: Heard[] = [];
  weights = [0.5, 0.25];
  version = 1;
  schemaHash: Bytes | null = null;
  private sequence = 1n << 40n;
  private serial = 0;

  private constructor(
    readonly operator: KeptKey,
    public key: KeptKey,
    private readonly client: MqttClient,
  ) {}

  static async begin(broker: string): Promise<PlayedFederation> {
    const client = await mqtt.connectAsync(broker, { clientId: "federator" });
    const played = new PlayedFederation(await generateKey(false), await generateKey(false), client);
    client.on("message", (topic, payload) => played.take(topic, new Uint8Array(payload)));
    await client.subscribeAsync(`${played.topics.root}/clients/#`, { qos: 1 });
    return played;
  }

  /** Return what `foltr device enrol --public-key` writes for a key; `secure`: in a folder for secure sums. */
  async enrol(name: string, key: Bytes, secure = false): Promise<Record<string, unknown>> {
    const serial = ++this.serial;
    const fields = { federation: FEDERATION, client_id: name, public_key: key, serial, issued_at: 1000.5, secure };
    const enrolment = await encode(Enrolment, fields, this.topics.enrolment(name), BigInt(serial), this.operator);
    const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64");
    return {
      ...{ version: 1, role: "device", federation: FEDERATION, name, signing_key: null, federator_key_sequence: 0 },
      ...{ broker: { broker_url: "mqtt://elsewhere", username: null, password: null }, policy: null },
      ...{ enrolment_key: base64(this.operator.publicKey), federator_key: base64(this.key.publicKey) },
      enrolment: base64(enrolment),
    };
  }

  // --- what it says -----------------------------------------------------------------------------------------------

  async announceModel(weights = this.weights, version = this.version): Promise<void> {
    [this.weights, this.version] = [weights, version];
    const ranker = { kind: "linear" as const, n_features: weights.length };
    const model = { federation: FEDERATION, version, ranker, n_auxiliary: 0, weights: packVector(weights) } as any;
    model.schema_hash = this.schemaHash;
    await this.say(ModelAnnouncement, model, this.topics.model, true);
  }

  async announceRound(round: number, fields: Partial<RoundAnnouncement> = {}): Promise<void> {
    const announced = {
      ...{ federation: FEDERATION, round, open: true, last: false, base_version: this.version },
      ...{
        base_hash: await shortHash(packVector(this.weights)),
        withdraws_below: 0,
        opened_at: 1000.5,
        closes_at: 1600.5,
      },
      ...{ training: TRAINING, selection: null, secure: null, schema_hash: this.schemaHash },
      ...fields,
    };
    await this.say(RoundAnnouncement, announced as any, this.topics.round, true);
  }

  /** Announce a pace of one visit per period. */
  async announcePace(periodS: number): Promise<void> {
    await this.say(Pace, { federation: FEDERATION, period_s: periodS }, this.topics.pace, true);
  }

  /** Announce what the lists of all users say of the model. */
  async announceCredits(total: number, squares: number): Promise<void> {
    const said = { federation: FEDERATION, credits_since: 0, credit_total: total, credit_squares: squares };
    await this.say(EvaluationRequest, said, this.topics.evaluation, true);
  }

  /** Begin another epoch, like a restarted federator. */
  beginEpoch(): void {
    this.sequence = ((this.sequence >> 40n) + 1n) << 40n;
  }

  /** Announce that the audit log ends with this entry. */
  async announceHead(seq: number): Promise<void> {
    const head = { federation: FEDERATION, seq, hash: new Uint8Array(32).fill(seq), at: 1000.5 };
    await this.say(AuditHead, head, this.topics.auditHead, true);
  }

  /** Answer a join or a leave by its bytes. */
  async answerMembership(said: Heard, code: ReceiptCode, watermark: number | null): Promise<void> {
    const { federation, client_id } = said.fields;
    const answer = {
      federation,
      client_id,
      code,
      payload_digest: await shortHash(said.payload),
      newest_sequence: null,
    };
    await this.say(MembershipReceipt, { ...answer, counted_through: watermark, detail: "" }, this.inboxOf(client_id));
  }

  async answerUpdate(said: Heard, code: ReceiptCode, watermark: number | null): Promise<void> {
    const { federation, client_id, update_id } = said.fields;
    const digest = await shortHash(said.payload);
    const answer = {
      federation,
      client_id,
      update_id,
      payload_digest: digest,
      code,
      counted_through: watermark,
      detail: "",
    };
    await this.say(UpdateReceipt, { ...answer, retry_after_s: null, missing: null }, this.inboxOf(client_id));
  }

  async notify(name: string, code: ReceiptCode, receipt: string | null): Promise<void> {
    const bytes = receipt === null ? null : new TextEncoder().encode(receipt);
    const notice = { federation: FEDERATION, client_id: name, code, receipt: bytes, detail: "" };
    await this.say(ErasureNotice, notice, this.inboxOf(name));
  }

  /** Replace the federator's key by the operator's statement. */
  async rotateKey(): Promise<void> {
    const key = await generateKey(false);
    const statement = { federation: FEDERATION, sequence: 1, old_key: this.key.publicKey, new_key: key.publicKey };
    const { federatorKey } = this.topics;
    await this.publish(federatorKey, await encode(FederatorKey, statement, federatorKey, 1n, this.operator), true);
    this.key = key;
  }

  async say<S extends Shape>(type: MessageType<S>, fields: Fields<S>, topic: string, retain = false): Promise<void> {
    await this.publish(topic, await encode(type, fields, topic, ++this.sequence, this.key), retain);
  }

  async publish(topic: string, payload: Bytes, retain = false): Promise<void> {
    await this.client.publishAsync(topic, Buffer.from(payload), { qos: 1, retain });
  }

  async end(): Promise<void> {
    await this.client.endAsync(true);
  }

  // --- what it hears ----------------------------------------------------------------------------------------------

  /** Return the n-th message of a kind, from 1, once it has arrived. */
  async hear(kind: string, n = 1): Promise<Heard> {
    return eventually(() => this.all(kind)[n - 1], `${kind} number ${n}`);
  }

  all(kind: string): Heard[] {
    return this.heard.filter((heard) => heard.kind === kind);
  }

  private inboxOf(name: string): string {
    return this.topics.client(name, "inbox");
  }

  private take(topic: string, payload: Bytes): void {
    if (topic.endsWith("/inbox")) return;
    if (payload.length === 0) return void this.heard.push({ topic, payload, kind: "cleared", fields: {} });
    const envelope = openEnvelope(payload);
    const fields = readEnvelope(envelope, MESSAGE_TYPES.get(envelope.kind)!);
    this.heard.push({ topic, payload, kind: envelope.kind, fields });
  }
}

/** Poll until something is found, and return it. */
export async function eventually<T>(look: () => T | undefined | false, what = "it", patienceS = 30): Promise<T> {
  for (const giveUpAt = Date.now() + patienceS * 1000; Date.now() < giveUpAt;) {
    const found = look();
    if (found !== undefined && found !== false) return found;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`${what} did not come within ${patienceS} s`);
}

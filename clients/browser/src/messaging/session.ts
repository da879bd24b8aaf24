// A device signs what it sends and checks what it receives: sessions, signatures, and the order of announcements.
//
// A session begins with every connection. Its messages are numbered above those of the session before; its last will,
// signed before it begins, is above everything else in it.

import { withFederatorKey, type Credentials } from "../credentials.js";
import { MessageError } from "../errors.js";
import { causeOf, type Log } from "../log.js";
import { encode, isSignedBy, openEnvelope, readEnvelope, type Envelope } from "../protocol/codec.js";
import { sameBytes, shortHash, type Bytes, type Fields, type Shape } from "../protocol/fields.js";
import { ModelUpdate, Status, type MembershipReceipt, type MessageType } from "../protocol/messages.js";
import { SessionSequence, type KeptKey, type Verify } from "../protocol/signing.js";
import { Topics, type ClientTopic } from "../protocol/topics.js";
import type { PendingUpdate } from "../store/bounds.js";
import type { DeviceStore } from "../store/store.js";

// A claim is sent again with growing pauses: whoever is heard late has an answer to one of the newest.
const N_CLAIMS = 16;

export interface InboundMessage {
  readonly topic: string;
  readonly payload: Bytes;
}

/** Published, retained, by the broker when the connection ends without a goodbye. */
export interface LastWill {
  readonly topic: string;
  readonly payload: Bytes;
}

/** One device's session with its federator; `begin` begins the next one. It sends and receives nothing itself. */
export class Session {
  readonly topics: Topics;
  private readonly newest = new Map<string, bigint>();
  /** The joins and leaves of this session, by the digest of their bytes. */
  private claims: Bytes[] = [];

  private constructor(
    private credentials: Credentials,
    private readonly key: KeptKey,
    private readonly verify: Verify,
    private readonly store: DeviceStore,
    private readonly sequence: SessionSequence,
    private readonly log: Log,
  ) {
    this.topics = new Topics(credentials.federation);
  }

  /** Make the session of a device, with what its store knows. */
  static async of(
    credentials: Credentials,
    key: KeptKey,
    verify: Verify,
    store: DeviceStore,
    log: Log,
  ): Promise<Session> {
    const stated = await store.heard("federator_key");
    let believed = credentials;
    try {
      if (stated !== null) believed = await withFederatorKey(credentials, stated, verify);
    } catch {
      // The credentials were written since, or by another operator.
    }
    const sequence = new SessionSequence(await store.newestSession());
    sequence.beginSession();
    return new Session(believed, key, verify, store, sequence, log);
  }

  get federation(): string {
    return this.credentials.federation;
  }

  get clientId(): string {
    return this.credentials.name;
  }

  get enrolment(): Bytes {
    return this.credentials.enrolment;
  }

  // --- what is sent -----------------------------------------------------------------------------------------------

  topic(topic: ClientTopic): string {
    return this.topics.client(this.clientId, topic);
  }

  /** Return a message as bytes for this device's `topic`; whose it is, is filled in. */
  async sign<S extends Shape>(
    type: MessageType<S>,
    fields: Omit<Fields<S>, "federation" | "client_id">,
    topic: ClientTopic,
    sequence = this.sequence.next(),
  ): Promise<Bytes> {
    const whole = { federation: this.federation, client_id: this.clientId, ...fields } as unknown as Fields<S>;
    const payload = await encode(type, whole, this.topic(topic), sequence, this.key);
    if (topic === "join" || topic === "leave")
      this.claims = [...this.claims, await shortHash(payload)].slice(-N_CLAIMS);
    return payload;
  }

  /** Begin a session, before every connection: above the one before, with a last will above all of this one. */
  async begin(isForgotten: boolean): Promise<LastWill> {
    this.newest.clear();
    await this.beginNext(isForgotten);
    // The will of a client that was forgotten clears its status: nothing of it is to stay with the broker.
    const topic = this.topic("status");
    if (isForgotten) return { topic, payload: new Uint8Array() };
    return { topic, payload: await this.sign(Status, { online: false }, "status", this.sequence.lastWill()) };
  }

  /** Begin a session above what the federator has seen: the store was lost, and the clock is behind what it was. */
  async beginAbove(newestSequence: bigint): Promise<void> {
    this.sequence.beginAbove(newestSequence);
    await this.beginNext(false);
  }

  /** Return the pending update signed with the key of today: the device may be enrolled anew. Null: it is given up. */
  async signedPendingUpdate(): Promise<PendingUpdate | null> {
    const { pending, watermark } = await this.store.bounds();
    if (pending === null) return null;
    try {
      const envelope = openEnvelope(pending.payload);
      if (await isSignedBy(envelope, this.key.publicKey, this.topic("updates"), this.verify)) return pending;
      const payload = await this.sign(ModelUpdate, readEnvelope(envelope, ModelUpdate), "updates");
      await this.store.replacePayload(payload);
      return { ...pending, payload };
    } catch (error) {
      if (!(error instanceof MessageError)) throw error;
      // Its interactions go into a new one, which counts only if this one has not.
      this.log("warning", "pending_update_not_understood", { cause: causeOf(error) });
      await this.store.settle(watermark ?? 0, pending.updateId);
      return null;
    }
  }

  private async beginNext(isForgotten: boolean): Promise<void> {
    const session = this.sequence.beginSession();
    this.claims = [];
    if (!isForgotten) await this.store.putSession(session); // of who was forgotten it would say when it was there
  }

  // --- what arrives -----------------------------------------------------------------------------------------------

  /** Open an envelope that the federator sent and that is not older than what was believed on its topic. */
  async open(message: InboundMessage): Promise<Envelope> {
    const envelope = openEnvelope(message.payload);
    if (!(await isSignedBy(envelope, this.credentials.federatorKey, message.topic, this.verify))) {
      throw new MessageError("bad_signature", "not signed by the federator these credentials name");
    }
    const newest = this.newest.get(message.topic) ?? (await this.store.newestBelieved(message.topic));
    if (envelope.sequence < newest) throw new MessageError("replayed", `${envelope.sequence}; ${newest} was heard`);
    this.newest.set(message.topic, envelope.sequence > newest ? envelope.sequence : newest);
    return envelope;
  }

  /** Remember what was believed on a topic, once it was obeyed: a device that dies before has not heard it. */
  async noteBelieved(topic: string, sequence: bigint): Promise<void> {
    if (sequence > (await this.store.newestBelieved(topic))) await this.store.noteBelieved(topic, sequence);
  }

  /** Believe the federator's newest key, which the operator states; what older ones sign counts for nothing more. */
  async takeFederatorKey(statement: Bytes): Promise<void> {
    const newer = await withFederatorKey(this.credentials, statement, this.verify);
    if (newer === this.credentials) return;
    await this.store.putHeard("federator_key", statement);
    this.credentials = newer;
    this.log("info", "federator_key_rotated", { sequence: newer.federatorKeySequence });
  }

  isForUs(answer: { federation: string; client_id: string }): boolean {
    return answer.federation === this.federation && answer.client_id === this.clientId;
  }

  /** Return whether a receipt answers a join or a leave of this session, by its bytes. */
  isOfThisSession(receipt: MembershipReceipt): boolean {
    const digest = receipt.payload_digest;
    return digest !== null && this.claims.some((claim) => sameBytes(claim, digest));
  }
}

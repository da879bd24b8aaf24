// Signs a device's messages and checks received ones: sessions, signatures, and the order of announcements.
//
// A session begins with every connection. Its messages are numbered above those of earlier sessions. Its last will,
// signed beforehand, is above all other messages in it.

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

// Claims are sent again with growing pauses, so a late answer is to one of the newest.
const N_CLAIMS = 16;

export interface InboundMessage {
  readonly topic: string;
  readonly payload: Bytes;
}

/** Published and retained by the broker when the connection ends without a clean disconnect. */
export interface LastWill {
  readonly topic: string;
  readonly payload: Bytes;
}

/** One device's session with its federator; `begin` begins the next one. It does no I/O with the network. */
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

  /** Make the session of a device from its store. */
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

  /** Return a message as bytes for this device's `topic`, with the device's names filled in. */
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

  /** Begin a session before a connection: above earlier sessions, with a last will above all its other messages. */
  async begin(isForgotten: boolean): Promise<LastWill> {
    this.newest.clear();
    await this.beginNext(isForgotten);
    // The last will of a forgotten client clears its status, so that the broker retains nothing of it.
    const topic = this.topic("status");
    if (isForgotten) return { topic, payload: new Uint8Array() };
    return { topic, payload: await this.sign(Status, { online: false }, "status", this.sequence.lastWill()) };
  }

  /** Begin a session above the federator's newest number: the store was lost, and the clock is behind. */
  async beginAbove(newestSequence: bigint): Promise<void> {
    this.sequence.beginAbove(newestSequence);
    await this.beginNext(false);
  }

  /** Return the pending update signed with the current key (the device may be re-enrolled); null: discarded. */
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
      // Its interactions go into a new update, which counts only if this one has not.
      this.log("warning", "pending_update_not_understood", { cause: causeOf(error) });
      await this.store.settle(watermark ?? 0, pending.updateId);
      return null;
    }
  }

  private async beginNext(isForgotten: boolean): Promise<void> {
    const session = this.sequence.beginSession();
    this.claims = [];
    if (!isForgotten) await this.store.putSession(session); // of a forgotten client it would reveal times of use
  }

  // --- what arrives -----------------------------------------------------------------------------------------------

  /** Open an envelope from the federator that is not older than the newest accepted on its topic. */
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

  /** Record an accepted message after acting on it. A device that stops earlier then receives it again. */
  async noteBelieved(topic: string, sequence: bigint): Promise<void> {
    if (sequence > (await this.store.newestBelieved(topic))) await this.store.noteBelieved(topic, sequence);
  }

  /** Trust the federator's newest key, stated by the operator. Messages signed by older keys are ignored. */
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

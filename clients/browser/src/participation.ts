// A device's part in its federation decides, without I/O, what the device does next.
//
// The agent says what arrived and when, and is told what to send. A join is sent until it is answered, and an update
// until it has its receipt, always the same bytes, with growing pauses. Hashes take I/O here, so callers bring them.

import { sameBytes, toHex, type Bytes } from "./protocol/fields.js";
import type { MembershipReceipt, ModelAnnouncement, RoundAnnouncement, UpdateReceipt } from "./protocol/messages.js";
import { joinsFirst, reactionTo } from "./protocol/receipts.js";
import type { PendingUpdate } from "./store/bounds.js";

export const FIRST_RESEND_S = 5;
export const RESEND_LIMIT_S = 120;
// An answer may be on its way for this long; sending again before is noise.
export const ANSWER_TIME_S = 2;
// A whole fleet hears at once of a federator that was started again.
export const JOIN_SPREAD_S = 1;

// No refusal, or one that the next join may not meet.
const PASSING: readonly string[] = ["joined", "left", "busy", "replayed"];

export type Outgoing = "join" | "update";

/** A pending update, with the digest of its bytes: a receipt may name it by that alone. */
export type Sent = PendingUpdate & { readonly digest: Bytes };

/** A model, with the hash of its weights: after a restore the same version may have others. */
export interface Model {
  readonly announcement: ModelAnnouncement;
  readonly hash: Bytes;
}

/** A timer of what is sent, and sent again, until it is answered. */
interface Resend {
  readonly dueAt: number;
  readonly nSent: number;
  readonly notBefore: number;
}

function resendAt(dueAt: number): Resend {
  return { dueAt, nSent: 0, notBefore: -Infinity };
}

function broughtForward(resend: Resend, now: number): Resend {
  return { ...resend, dueAt: Math.min(resend.dueAt, Math.max(now, resend.notBefore)) };
}

/** One device's view of its federation. `now` is monotonic seconds. */
export class Participation {
  model: Model | null = null;
  round: RoundAnnouncement | null = null;
  joined = false;
  left = false;
  /** The newest round was announced over this connection. */
  isFresh = false;
  /** The device is connected for visits only, and has one update counted in each at most. */
  comesBy = false;
  /** It makes none until its next visit: that would be for a round that is over by then, or one too many. */
  rests = false;
  /** Of the federator that announced the newest round; null before the first. */
  epoch: bigint | null = null;
  /** The federator does not take it in, and only its operator can change that. */
  isRefused = false;
  private isAsked = false;
  /** The round of the last update that is settled for good, and when it was opened: no second one is worth sending. */
  private settledRound = 0;
  private settledOpened = 0;
  private join: Resend = resendAt(0);
  private update: Resend = resendAt(0);

  /**
   * @param underPolicy the operator wants nothing to be seen but sums, which this kind of device cannot take part in:
   * there is a policy, or the device was enrolled for a federation that is under one.
   * @param schemaHash of the features of the device's application; empty where it has not declared them.
   */
  constructor(
    public pending: Sent | null,
    public underPolicy: boolean,
    private readonly schemaHash = "",
    private readonly random: () => number = Math.random,
  ) {}

  // --- what arrives -----------------------------------------------------------------------------------------------

  /** Begin a connection: join again, and do not wait to resend what is unanswered. */
  beginConnection(now: number): void {
    this.joinAgain(now);
    this.update = resendAt(now);
  }

  /** Take a model; false if it is the one we have. */
  takeModel(model: Model): boolean {
    const mine = this.model;
    if (mine?.announcement.version === model.announcement.version && sameBytes(mine.hash, model.hash)) return false;
    this.model = model;
    return true;
  }

  /** Come under a policy: what was made before it is not sent again. */
  takePolicy(): void {
    this.underPolicy = true;
    this.pending = null;
  }

  /**
   * Take a round. It also says that a federator is there, so what is unanswered may be sent again.
   *
   * @param isAsked whether the round's selection asks this client.
   */
  takeRound(round: RoundAnnouncement, isAsked: boolean, now: number): void {
    this.round = round;
    this.rests &&= this.isFresh;
    this.isFresh = true;
    this.isAsked = isAsked;
    if (!this.joined) this.join = broughtForward(this.join, now);
    this.update = broughtForward(this.update, now);
  }

  /**
   * Join again, after a random moment, where another federator announces than before: its database may be a restored
   * one.
   */
  hearEpoch(epoch: bigint, now: number): void {
    if (this.epoch !== null && epoch > this.epoch) this.joinAgain(now + this.random() * JOIN_SPREAD_S);
    this.epoch = epoch;
  }

  takeMembershipReceipt(receipt: MembershipReceipt, now: number): void {
    this.isRefused = !PASSING.includes(receipt.code);
    if (receipt.code !== "joined" || this.joined) return;
    this.joined = true;
    if (this.pending !== null) this.update = resendAt(now);
  }

  /** Do what a receipt asks for; return whether it answers the pending update for good. */
  takeUpdateReceipt(receipt: UpdateReceipt, now: number): boolean {
    if (this.pending === null || !isAbout(receipt, this.pending)) return false;
    if (joinsFirst(receipt.code)) this.joinAgain(now);
    else if (receipt.code === "busy") {
      const pause = (receipt.retry_after_s ?? FIRST_RESEND_S) * (1 + this.random() / 2);
      this.update = { ...this.update, dueAt: now + pause, notBefore: now + pause };
    }
    return reactionTo(receipt.code) === "settle";
  }

  /** Have no pending update any more; `mayTryAgain`: another update for the same round is worth sending. */
  endPending(mayTryAgain: boolean): void {
    if (this.pending !== null && !mayTryAgain) {
      this.settledRound = this.pending.round;
      this.settledOpened = this.round?.round === this.settledRound ? this.round.opened_at : Infinity;
    }
    this.pending = null;
  }

  /** Contribute to rounds of any number: those of a restored database have the numbers of others before them. */
  beginRoundsAnew(): void {
    this.settledRound = 0;
  }

  /** Ask for an answer again after a pause: the one that came could not be stored. */
  putOff(now: number): void {
    if (this.pending !== null) this.update = resendAt(now + FIRST_RESEND_S);
  }

  /** Take part in nothing and keep nothing: the client was forgotten. */
  forget(): void {
    this.left = true;
    this.joined = false;
    this.model = this.round = this.pending = null;
  }

  // --- what to do -------------------------------------------------------------------------------------------------

  /** Return whether an update made now could count: an open round, its base model at hand, none pending. */
  mayContribute(): boolean {
    const { round, model } = this;
    return (
      !this.left &&
      !this.rests &&
      this.pending === null &&
      !this.underPolicy &&
      round !== null &&
      round.open &&
      round.secure === null &&
      (round.round !== this.settledRound || round.opened_at > this.settledOpened) &&
      !this.hasOtherFeatures &&
      model !== null &&
      model.announcement.version === round.base_version &&
      sameBytes(model.hash, round.base_hash) &&
      this.isAsked
    );
  }

  /** Whether what was announced last is of other features than those of this device's application. */
  get hasOtherFeatures(): boolean {
    const announced = [this.round?.schema_hash, this.model?.announcement.schema_hash];
    return announced.some((hash) => hash !== undefined && !this.isOfMySchema(hash));
  }

  isOfMySchema(announced: Bytes | null): boolean {
    return (announced === null ? "" : toHex(announced)) === this.schemaHash;
  }

  contribute(update: Sent, now: number): void {
    this.pending = update;
    this.update = resendAt(now);
  }

  /** Return what to send now; each thing named counts as sent. */
  due(now: number): Outgoing[] {
    if (this.left) return [];
    const outgoing: Outgoing[] = [];
    if (!this.joined && this.join.dueAt <= now) {
      this.join = this.sent(this.join, now);
      outgoing.push("join");
    }
    // Before the join is answered an update would only be refused.
    if (this.joined && this.pending !== null && this.update.dueAt <= now) {
      this.update = this.sent(this.update, now);
      outgoing.push("update");
    }
    return outgoing;
  }

  /** Return when `due` will next have something, if nothing arrives before. */
  nextDueAt(): number {
    if (this.left) return Infinity;
    if (!this.joined) return this.join.dueAt;
    return this.pending === null ? Infinity : this.update.dueAt;
  }

  private joinAgain(when: number): void {
    this.joined = false;
    this.join = resendAt(when);
  }

  private sent(resend: Resend, now: number): Resend {
    const pause = Math.min(RESEND_LIMIT_S, FIRST_RESEND_S * 2 ** Math.min(resend.nSent, 16));
    // A fleet must not resend in step.
    const dueAt = now + pause * (0.75 + 0.5 * this.random());
    return { dueAt, nSent: resend.nSent + 1, notBefore: now + ANSWER_TIME_S };
  }
}

function isAbout(receipt: UpdateReceipt, pending: Sent): boolean {
  const namesBytes = receipt.payload_digest !== null && sameBytes(receipt.payload_digest, pending.digest);
  // Nobody read the update: its bytes say which it was. Who was busy looked at none.
  if (receipt.update_id === null) return receipt.code === "busy" || namesBytes;
  if (receipt.update_id !== pending.updateId) return false;
  // The bytes that are refused may be others: recorded, perhaps, before this update was signed anew.
  return reactionTo(receipt.code) !== "settle" || receipt.payload_digest === null || namesBytes;
}

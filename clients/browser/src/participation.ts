// A device's part in its federation: decides, without I/O, what the device does next.
//
// The agent reports what arrived and when, and gets what to send. Joins and updates are repeated until answered: always
// the same bytes, with growing pauses. Hashing is asynchronous, so callers pass hashes.

import { sameBytes, toHex, type Bytes } from "./protocol/fields.js";
import type { MembershipReceipt, ModelAnnouncement, RoundAnnouncement, UpdateReceipt } from "./protocol/messages.js";
import { joinsFirst, reactionTo } from "./protocol/receipts.js";
import type { PendingUpdate, SettledRound } from "./store/bounds.js";

export const FIRST_RESEND_S = 5;
export const RESEND_LIMIT_S = 120;
// An answer may take this long; sending again earlier is useless.
export const ANSWER_TIME_S = 2;
// A restarted federator is announced to a whole fleet at once.
export const JOIN_SPREAD_S = 1;

// Codes that are not refusals, or that the next join may avoid.
const PASSING: readonly string[] = ["joined", "left", "busy", "replayed"];

export type Outgoing = "join" | "update";

/** A pending update with the digest of its bytes, which may be a receipt's only reference. */
export type Sent = PendingUpdate & { readonly digest: Bytes };

/** A model with the hash of its weights: after a restore the same version may have others. */
export interface Model {
  readonly announcement: ModelAnnouncement;
  readonly hash: Bytes;
}

/** The timer of a message that is repeated until it is answered. */
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
  /** The device connects for visits only, with at most one counted update in each. */
  comesBy = false;
  /** It makes no update until its next visit: that round would be over, or it would be a second update. */
  rests = false;
  /** Of the federator that announced the newest round; null before the first. */
  epoch: bigint | null = null;
  /** The federator does not admit it, and only its operator can change that. */
  isRefused = false;
  private isAsked = false;
  settled: SettledRound | undefined;
  private join: Resend = resendAt(0);
  private update: Resend = resendAt(0);

  /**
   * @param underPolicy the operator permits only sums, which this kind of device does not support: a policy exists, or
   *   the device was enrolled for a federation with one.
   * @param schemaHash of the application's features; empty if it has declared none.
   */
  constructor(
    public pending: Sent | null,
    public underPolicy: boolean,
    private readonly schemaHash = "",
    private readonly random: () => number = Math.random,
  ) {}

  // --- what arrives -----------------------------------------------------------------------------------------------

  /** Begin a connection: join again, and resend unanswered messages at once. */
  beginConnection(now: number): void {
    this.joinAgain(now);
    this.update = resendAt(now);
  }

  /** Take a model. False if it is already known. */
  takeModel(model: Model): boolean {
    const mine = this.model;
    if (mine?.announcement.version === model.announcement.version && sameBytes(mine.hash, model.hash)) return false;
    this.model = model;
    return true;
  }

  /** Come under a policy: earlier updates are not sent again. */
  takePolicy(): void {
    this.underPolicy = true;
    this.pending = null;
  }

  /**
   * Take a round. It also shows that a federator runs, so unanswered messages may be sent again.
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

  /** Join again, after a random delay, in a new epoch: the database may have been restored. */
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

  /** React to a receipt. Returns whether it settles the pending update. */
  takeUpdateReceipt(receipt: UpdateReceipt, now: number): boolean {
    if (this.pending === null || !isAbout(receipt, this.pending)) return false;
    if (joinsFirst(receipt.code)) this.joinAgain(now);
    else if (receipt.code === "busy") {
      const pause = (receipt.retry_after_s ?? FIRST_RESEND_S) * (1 + this.random() / 2);
      this.update = { ...this.update, dueAt: now + pause, notBefore: now + pause };
    }
    return reactionTo(receipt.code) === "settle";
  }

  /** Drop the pending update. `mayTryAgain`: another update for the same round may count. */
  endPending(mayTryAgain: boolean): void {
    if (this.pending !== null && !mayTryAgain) {
      this.settled = this.settledWithPending() ?? { round: this.pending.round, openedAt: Infinity };
    }
    this.pending = null;
  }

  /** Return the pending update's round, if it is the newest. */
  settledWithPending(): SettledRound | undefined {
    const { round, pending } = this;
    return round !== null && round.round === pending?.round
      ? { round: round.round, openedAt: round.opened_at }
      : undefined;
  }

  /** Contribute to rounds of any number: a restored database numbers new rounds like earlier ones. */
  beginRoundsAnew(): void {
    this.settled = undefined;
  }

  /** Ask for an answer again after a pause, since the first could not be stored. */
  putOff(now: number): void {
    if (this.pending !== null) this.update = resendAt(now + FIRST_RESEND_S);
  }

  /** End participation and drop all state: the client was forgotten. */
  forget(): void {
    this.left = true;
    this.joined = false;
    this.model = this.round = this.pending = null;
  }

  // --- what to do -------------------------------------------------------------------------------------------------

  /** Return whether an update made now could count: an open round, its base model known, no pending update. */
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
      (round.round !== this.settled?.round || round.opened_at > this.settled.openedAt) &&
      !this.hasOtherFeatures &&
      model !== null &&
      model.announcement.version === round.base_version &&
      sameBytes(model.hash, round.base_hash) &&
      this.isAsked
    );
  }

  /** Whether the newest announcement has other features than this device's application. */
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

  /** Return what to send now; each returned message counts as sent. */
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

  /** Return when `due` next has something, if nothing arrives before. */
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
  // The federator did not read the update, so it is identified by its bytes. A busy federator reads none.
  if (receipt.update_id === null) return receipt.code === "busy" || namesBytes;
  if (receipt.update_id !== pending.updateId) return false;
  // A refusal may concern other bytes, for example a recording from before this update was re-signed.
  return reactionTo(receipt.code) !== "settle" || receipt.payload_digest === null || namesBytes;
}

// The inbox of a device passes each network message to the part of the device that handles it.

import type { AuditWatch } from "./audit_watch.js";
import type { Contributor } from "./contribution.js";
import { isPolicyOf, type Credentials } from "./credentials.js";
import type { Evaluator } from "./evaluator.js";
import type { Forgetting } from "./forgetting.js";
import type { Log } from "./log.js";
import type { InboundMessage, Session } from "./messaging/session.js";
import type { Participation } from "./participation.js";
import { isSelected, roundSeed } from "./protocol/client_selection.js";
import { openEnvelope, readEnvelope, type Envelope } from "./protocol/codec.js";
import { shortHash, type Bytes } from "./protocol/fields.js";
import {
  AuditHead,
  ErasureNotice,
  MembershipReceipt,
  ModelAnnouncement,
  Pace,
  RoundAnnouncement,
  UnlearningRound,
  UpdateReceipt,
} from "./protocol/messages.js";
import { isErased } from "./protocol/receipts.js";
import { epochAndNumber, type Verify } from "./protocol/signing.js";
import type { DeviceStore } from "./store/store.js";
import type { Relearning } from "./training/relearning.js";
import type { Trainer } from "./training/trainer.js";
import { now, type Happening } from "./turns.js";
import type { Visits } from "./visits.js";

/** The parts of one device that an inbox passes messages to. */
export interface Parts {
  readonly credentials: Credentials;
  readonly verify: Verify;
  readonly session: Session;
  readonly store: DeviceStore;
  readonly participation: Participation;
  readonly trainer: Trainer;
  readonly evaluator: Evaluator;
  readonly contributor: Contributor;
  readonly relearning: Relearning;
  readonly forgetting: Forgetting;
  readonly audit: AuditWatch;
  readonly visits: Visits;
  /** Set once the federator has confirmed that this client has left. */
  readonly hasLeft: Happening;
  readonly log: Log;
}

export class Inbox {
  /** Count of each code of update receipts. */
  readonly receipts: Record<string, number> = {};
  private objection = "";
  // No model below this version is used, from any announcement. A model that came too early is kept: after a database
  // was restored, the model may arrive before the round that permits it.
  private withdrawnBelow = 0;
  private withheld: { announcement: ModelAnnouncement; payload: Bytes } | null = null;
  private hasToldFeatures = false;

  /** @param onErased called when the federation reports that it has erased this client. */
  constructor(
    private readonly parts: Parts,
    private readonly onErased: () => Promise<void>,
  ) {}

  /** Take a message. MessageError: not from the federator, older than a known one, or unreadable. */
  async take(message: InboundMessage): Promise<void> {
    const { session, relearning } = this.parts;
    const { topics } = session;
    if (message.payload.length === 0) {
      if (message.topic === topics.unlearningRound) relearning.forget(); // cleared: no job has an open step
      return;
    }
    if (message.topic === topics.federatorKey) return session.takeFederatorKey(message.payload);
    if (message.topic === topics.policy) return this.takePolicy(message.payload);
    const envelope = await session.open(message);
    await this.takeEnvelope(message, envelope);
    if (!this.parts.forgetting.isForgotten) await session.noteBelieved(message.topic, envelope.sequence);
  }

  /** Use the stored model until a newer one comes. */
  async restoreModel(): Promise<void> {
    const { store } = this.parts;
    this.withdrawnBelow = await store.withdrawnBelow();
    const stored = await store.heard("model");
    if (stored === null) return;
    const model = readEnvelope(openEnvelope(stored), ModelAnnouncement);
    this.parts.participation.takeModel({ announcement: model, hash: await shortHash(model.weights) });
  }

  private async takeEnvelope(message: InboundMessage, envelope: Envelope): Promise<void> {
    const { session, forgetting } = this.parts;
    const { topics } = session;
    const isForUs = message.topic === session.topic("inbox");
    if (isForUs && envelope.kind === ErasureNotice.kindName)
      await this.takeErasure(readEnvelope(envelope, ErasureNotice));
    else if (forgetting.isForgotten) {
      if (message.topic === topics.round) forgetting.hearEpoch(epochAndNumber(envelope.sequence)[0], now());
    } else if (isForUs) await this.takeReceipt(envelope);
    else if (message.topic === topics.pace) this.takePace(envelope);
    else if (message.topic === topics.evaluation) this.parts.evaluator.takeRequest(envelope);
    else if (message.topic === topics.model) await this.takeModel(envelope, message.payload);
    else if (message.topic === topics.round) await this.takeRound(envelope);
    else if (message.topic === topics.auditHead)
      await this.parts.audit.take(readEnvelope(envelope, AuditHead), message.payload);
    else if (message.topic === topics.unlearningRound) await this.takeStep(readEnvelope(envelope, UnlearningRound));
  }

  private async takeModel(envelope: Envelope, payload: Bytes): Promise<void> {
    if (envelope.kind === "manifest") return this.parts.log("error", "model_too_large"); // no chunks in pages
    const announcement = readEnvelope(envelope, ModelAnnouncement);
    if (announcement.federation === this.parts.session.federation) await this.useModel(announcement, payload);
  }

  private async useModel(announcement: ModelAnnouncement, payload: Bytes): Promise<void> {
    const { store, participation, trainer, contributor } = this.parts;
    if (announcement.version < this.withdrawnBelow) {
      this.tellWithdrawn(announcement);
      this.withheld = { announcement, payload };
      return;
    }
    if (!participation.takeModel({ announcement, hash: await shortHash(announcement.weights) })) return;
    await store.putHeard("model", payload);
    await trainer.catchUp();
    await contributor.contribute();
  }

  private takePace(envelope: Envelope): void {
    const pace = readEnvelope(envelope, Pace);
    if (pace.federation !== this.parts.session.federation) return;
    this.parts.visits.take(pace.period_s, epochAndNumber(envelope.sequence)[0]);
  }

  private async takeRound(envelope: Envelope): Promise<void> {
    const { session, participation, trainer, contributor, forgetting } = this.parts;
    const round = readEnvelope(envelope, RoundAnnouncement);
    if (round.federation !== session.federation) return;
    participation.takeRound(round, await isAsked(round, session.clientId), now());
    participation.hearEpoch(epochAndNumber(envelope.sequence)[0], now());
    forgetting.hearEpoch(epochAndNumber(envelope.sequence)[0], now());
    await this.takeWithdrawal(round.withdraws_below);
    this.tellObjection(round);
    await trainer.catchUp();
    await contributor.contribute();
  }

  /** Use no model below this version, now or later: it contains data that was unlearned since. */
  private async takeWithdrawal(below: number): Promise<void> {
    const { store, participation, trainer } = this.parts;
    const model = participation.model?.announcement;
    const isWithdrawn = model !== undefined && model.version < below;
    if (!isWithdrawn && below === this.withdrawnBelow) return; // most rounds repeat the known value
    this.withdrawnBelow = below;
    if (isWithdrawn) {
      // The application's order is shown until the next model.
      this.tellWithdrawn(model);
      participation.model = null;
      trainer.forget();
    }
    await store.putWithdrawal(below, isWithdrawn);
    const { withheld } = this;
    this.withheld = null;
    if (withheld !== null) await this.useModel(withheld.announcement, withheld.payload);
  }

  private tellWithdrawn({ version }: ModelAnnouncement): void {
    this.parts.log("warning", "model_withdrawn", { version, below: this.withdrawnBelow });
  }

  /** Log once, and again when it changes, why nothing is sent to this federation's rounds. */
  private tellObjection(round: RoundAnnouncement): void {
    if (this.parts.participation.hasOtherFeatures && !this.hasToldFeatures)
      this.parts.log("warning", "schema_mismatch");
    this.hasToldFeatures = this.parts.participation.hasOtherFeatures;
    const isSecure = this.parts.participation.underPolicy || round.secure !== null;
    const objection = isSecure ? "the federation has secure sums, and browsers take no part in these" : "";
    if (isSecure && objection !== this.objection) this.parts.log("warning", "round_declined", { cause: objection });
    this.objection = objection;
  }

  /** The operator permits only sums: from now on nothing is sent raw, even if a federator asks for it. */
  private async takePolicy(signed: Bytes): Promise<void> {
    const { credentials, verify, store, participation, relearning, trainer } = this.parts;
    if ((await store.heard("policy")) !== null || !(await isPolicyOf(credentials, signed, verify))) return;
    await store.putPolicy(signed);
    participation.takePolicy();
    relearning.forget();
    trainer.takeBack();
    await trainer.catchUp();
  }

  private async takeStep(round: UnlearningRound): Promise<void> {
    const { session, participation, relearning } = this.parts;
    // Under a policy an answer would reveal what this device alone has learned.
    if (participation.underPolicy || participation.left || round.federation !== session.federation) return;
    if (!participation.isOfMySchema(round.schema_hash)) return; // kept interactions were learned under another schema
    await relearning.takeStep(round);
  }

  private async takeReceipt(envelope: Envelope): Promise<void> {
    const { session, contributor } = this.parts;
    if (envelope.kind === MembershipReceipt.kindName)
      return this.takeMembership(readEnvelope(envelope, MembershipReceipt));
    const receipt = readEnvelope(envelope, UpdateReceipt);
    if (!session.isForUs(receipt)) return;
    this.receipts[receipt.code] = (this.receipts[receipt.code] ?? 0) + 1;
    if (isErased(receipt.code)) await this.onErased();
    else await contributor.takeReceipt(receipt);
  }

  private async takeMembership(receipt: MembershipReceipt): Promise<void> {
    const { session, contributor, participation, hasLeft, log } = this.parts;
    if (!session.isForUs(receipt) || !session.isOfThisSession(receipt)) return;
    if (isErased(receipt.code)) return this.onErased();
    const isStored = await contributor.takeMembershipReceipt(receipt);
    // Joined only once the watermark is stored. The join is sent again and gets another answer.
    if (receipt.code === "joined" && !isStored) return;
    if (receipt.code === "left") hasLeft.set();
    else if (receipt.code !== "joined") log("error", "join_refused", { code: receipt.code, detail: receipt.detail });
    if (receipt.code === "replayed" && receipt.newest_sequence !== null)
      await session.beginAbove(receipt.newest_sequence);
    participation.takeMembershipReceipt(receipt, now());
    await contributor.contribute();
  }

  private async takeErasure(notice: ErasureNotice): Promise<void> {
    if (!this.parts.session.isForUs(notice)) return;
    await this.parts.forgetting.takeNotice(notice);
    if (isErased(notice.code)) await this.onErased();
  }
}

/** Compute whether the round asks this client. Its seed follows from the federation's first. */
async function isAsked({ selection, round }: RoundAnnouncement, clientId: string): Promise<boolean> {
  if (selection === null) return true;
  return isSelected(await roundSeed(selection.first_seed, round), selection.cutoff, clientId);
}

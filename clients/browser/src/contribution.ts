// Contributions of a device: what it learned becomes an update in the store, which its receipt settles.

import { DataError } from "./errors.js";
import type { Evaluator } from "./evaluator.js";
import { causeOf, type Log } from "./log.js";
import type { Session } from "./messaging/session.js";
import type { Participation } from "./participation.js";
import { MAX_MESSAGE_BYTES, shortHash } from "./protocol/fields.js";
import { ModelUpdate, type MembershipReceipt, type UpdateReceipt } from "./protocol/messages.js";
import { isChanged, isTakenBack, type Settlement } from "./store/bounds.js";
import type { DeviceStore } from "./store/store.js";
import type { Trainer } from "./training/trainer.js";

/** The update did not fit this federation: one side is misconfigured. */
const WRONG = [
  "client_mismatch",
  "wrong_federation",
  "malformed",
  "wrong_shape",
  "out_of_range",
  "not_finite",
  "too_large",
];

export class Contributor {
  /** Number of distinct updates that the federation has counted. */
  nCounted = 0;
  /** The federator's operator has excluded this client's updates; its user's clicks wait here. */
  quarantined = false;

  constructor(
    private readonly session: Session,
    private readonly store: DeviceStore,
    private readonly participation: Participation,
    private readonly trainer: Trainer,
    private readonly evaluator: Evaluator,
    private readonly log: Log,
    private readonly now: () => number,
  ) {}

  /** Make an update if a round is open and enough was learned. */
  async contribute(): Promise<void> {
    const { round } = this.participation;
    const { workingModel } = this.trainer;
    if (round === null || workingModel === null || !this.trainer.hasEnough || !this.participation.mayContribute())
      return;
    const { watermark } = await this.store.bounds();
    if (watermark === null) return; // the answer to the join will set it
    const ids = workingModel.interactionIds.slice();
    const update = {
      update_id: crypto.randomUUID().replaceAll("-", ""),
      round: round.round,
      base_version: round.base_version,
      after: watermark,
      through: ids[ids.length - 1],
      base_hash: round.base_hash,
      n_interactions: ids.length,
      body: { kind: "dense" as const, dim: workingModel.base.length, values: workingModel.delta() },
      vote: null,
      evaluation: await this.evaluator.evaluationOf(ids),
    };
    const payload = await this.session.sign(ModelUpdate, update, "updates");
    if (payload.length > MAX_MESSAGE_BYTES) return this.log("error", "update_too_large", { bytes: payload.length });
    const { update_id: updateId, after, through } = update;
    const pending = { updateId, round: round.round, after, through, payload };
    try {
      await this.store.putUpdate(pending, ids);
    } catch (error) {
      return this.log("error", "update_not_stored", { cause: causeOf(error) }); // tried again on the next occasion
    }
    this.participation.contribute({ ...pending, digest: await shortHash(payload) }, this.now());
  }

  /** Take a receipt. If it settles the pending update, the next one may follow. */
  async takeReceipt(receipt: UpdateReceipt): Promise<void> {
    this.takeNoteOfQuarantine(receipt);
    const { watermark } = await this.store.bounds();
    if (watermark === null) return; // the store was lost since; the answer to the join has the watermark
    const { pending } = this.participation;
    const isAnswered = this.participation.takeUpdateReceipt(receipt, this.now());
    await this.settle(receipt.counted_through ?? watermark, isAnswered ? pending!.updateId : null, receipt);
  }

  /** Take the watermark from an answer to this session's message. Returns whether it could be stored. */
  async takeMembershipReceipt(receipt: MembershipReceipt): Promise<boolean> {
    const { watermark } = await this.store.bounds();
    const told = receipt.counted_through ?? watermark;
    if (told === null || (receipt.code !== "joined" && watermark === null)) return true;
    return this.settle(told, null, null);
  }

  /** Settle by an answer's watermark, for any code. Returns whether it could be stored. */
  private async settle(watermark: number, answered: string | null, receipt: UpdateReceipt | null): Promise<boolean> {
    if (this.participation.underPolicy) return true; // then watermarks are of sums
    let settlement: Settlement;
    try {
      const ends = isUndecided(receipt) ? undefined : this.participation.settledWithPending();
      settlement = await this.store.settle(watermark, answered, ends);
    } catch (error) {
      if (!(error instanceof DataError)) throw error;
      // Still pending on disk, so pending here, too. It is sent again and gets another answer.
      this.log("error", "receipt_not_stored", { cause: causeOf(error) });
      this.participation.putOff(this.now());
      return false;
    }
    if (isChanged(settlement)) await this.follow(settlement, receipt);
    return true;
  }

  /** Follow the store: another watermark, or no pending update. */
  private async follow(settlement: Settlement, receipt: UpdateReceipt | null): Promise<void> {
    if (settlement.lost) {
      const { watermarkBefore, watermark } = settlement;
      this.log("warning", "federation_updates_lost", { watermarkBefore, watermark }); // learned again
    }
    if (settlement.givenUp && receipt !== null && WRONG.includes(receipt.code)) {
      this.log("error", "update_refused", { code: receipt.code, detail: receipt.detail });
    }
    if (settlement.counted || settlement.givenUp) this.participation.endPending(isUndecided(receipt));
    if (settlement.lost) this.participation.beginRoundsAnew();
    this.participation.rests ||= this.participation.comesBy && settlement.counted;
    this.nCounted += Number(settlement.counted);
    if (isTakenBack(settlement)) this.trainer.takeBack();
    await this.trainer.catchUp();
    await this.contribute();
  }

  /** Report the start once. Each round's update shows whether it continues. */
  private takeNoteOfQuarantine(receipt: UpdateReceipt): void {
    if (receipt.code === "quarantined") {
      if (!this.quarantined) this.log("warning", "quarantined", { detail: receipt.detail });
      this.quarantined = true;
    } else if (this.quarantined && receipt.code === "accepted") {
      this.log("info", "quarantine_lifted");
      this.quarantined = false;
    }
  }
}

/** Return whether the round did not decide on the update, which began elsewhere than at the watermark. */
function isUndecided(receipt: UpdateReceipt | null): boolean {
  return receipt?.code === "overlaps";
}

// A device that is to be forgotten requests it, follows the progress, and deletes its own data.
//
// The request is stored by the tab in which it was made before it is sent. It is sent over every connection and with
// growing pauses until a receipt comes; nothing else is sent meanwhile. The broker retains it, so it also reaches a
// federator that returns after the page is closed. Once the erasure is stored, the device clears its retained messages.
// It asks once more at each start and in each epoch, since the federation's database may have been restored.

import type { ForgetResult, ForgetState } from "./device_state.js";
import { DataError, FoltrError, UnavailableError } from "./errors.js";
import { causeOf, type Log } from "./log.js";
import type { Outbox } from "./outbox.js";
import type { Participation } from "./participation.js";
import { Forget, type ErasureNotice } from "./protocol/messages.js";
import type { ClientTopic } from "./protocol/topics.js";
import type { DeviceStore } from "./store/store.js";
import { Happening, now, type Turns } from "./turns.js";

// The request or its answer may be lost, and repeating is safe.
const FORGET_AGAIN_S = 3;
/** While nobody waits: the first pause between two requests, which doubles, and the longest. */
const PAUSES_S: Record<ForgetState, readonly [number, number]> = {
  asked: [FORGET_AGAIN_S, 120],
  sent: [FORGET_AGAIN_S, 120],
  erasing: [FORGET_AGAIN_S, 120],
  forgetting: [60, 3600], // the federator sends a notice when the model is ready; this covers a lost one
  forgotten: [Infinity, Infinity],
};

/** The device's part in the erasure of its client. */
export class Forgetting {
  /** Progress; null without a request or an erasure. */
  state: ForgetState | null = null;
  private isWish = false;
  private hadLeft = false;
  private receipt: string | null = null;
  private refusal: ErasureNotice | null = null;
  private done = new Happening();
  private dueAt = Infinity;
  private nSent = 0;
  private hasSent = false;
  private epoch: bigint | null = null;
  /** Topics that the broker may still retain, possibly left by an earlier run. */
  private retained: ClientTopic[];

  /**
   * @param isForgotten the federation has erased this client, or is unlearning it; now or before a restart.
   * @param stored the stored progress of a request.
   */
  constructor(
    private readonly turns: Turns,
    private readonly outbox: Outbox,
    private readonly participation: Participation,
    private readonly store: DeviceStore,
    private readonly log: Log,
    public isForgotten: boolean,
    stored: ForgetState | null,
    private readonly sayHello: () => Promise<void>,
  ) {
    this.retained = isForgotten ? ["forget", "status"] : [];
    if (isForgotten) this.state = "erasing"; // an erasure alone says no more than that
    this.takeUp(stored);
  }

  /** The erasure was requested, and the federation has not answered. */
  get isWaiting(): boolean {
    return this.state === "asked" || this.state === "sent";
  }

  /** The broker may retain messages of a client that was forgotten. */
  get isClearing(): boolean {
    return this.isForgotten && this.retained.length > 0;
  }

  // --- what arrives -------------------------------------------------------------------------------------------------

  /** Take up a stored request, from an earlier run or another tab. Called in each turn before anything is sent. */
  async look(): Promise<void> {
    if (!this.isWish) this.takeUp(await this.store.forgetState());
  }

  private takeUp(stored: ForgetState | null): void {
    if (stored === null) return;
    this.isWish = true;
    this.dueAt = now();
    if (this.state !== null && (stored === "asked" || stored === "sent")) return; // the client is erased since
    this.isForgotten ||= stored !== "asked" && stored !== "sent";
    if (!this.isForgotten) [this.hadLeft, this.participation.left] = [this.participation.left, true];
    this.state = stored;
  }

  /** Ask again over a new connection: the broker may be different, or have lost its retained messages. */
  beginConnection(at: number): void {
    if (this.isWish && !(this.state === "forgotten" && this.hasSent)) [this.dueAt, this.nSent] = [at, 0];
  }

  /** Ask again in a new epoch: the database may have been restored. */
  hearEpoch(epoch: bigint, at: number): void {
    if (this.isWish && this.epoch !== null && epoch > this.epoch) [this.dueAt, this.nSent] = [at, 0];
    this.epoch = epoch;
  }

  /** Delete the device's data: the federation has erased this client. On failure `finish` tries again. */
  async forget(): Promise<void> {
    if (!this.isForgotten) this.retained = ["forget", "status"];
    this.isForgotten = true;
    if (this.state === null || this.isWaiting) await this.goTo("erasing"); // the least that is certain
    await this.delete();
  }

  /** Take an answer to a request, or a notice of an erasure that the operator ordered. */
  async takeNotice(notice: ErasureNotice): Promise<void> {
    const { code } = notice;
    if (code === "erasing" || code === "forgetting" || code === "forgotten") {
      this.receipt = code !== "forgotten" || notice.receipt === null ? null : new TextDecoder().decode(notice.receipt);
      if (code === "forgotten") this.done.set();
      else if (this.done.isSet) this.done = new Happening();
      await this.goTo(code);
    } else if (code !== "busy") {
      // Such a request is sent again.
      if (this.refusal === null && this.isWaiting) this.log("warning", "forget_refused", { code });
      this.refusal = notice;
    }
  }

  // --- what to do ---------------------------------------------------------------------------------------------------

  /**
   * Ask to be erased and unlearned, and wait up to `timeoutS` for the answer. DataError: the request cannot be stored,
   * and nothing was changed.
   */
  async ask(timeoutS: number): Promise<ForgetResult> {
    const giveUpAt = now() + timeoutS;
    await this.store.askToBeForgotten();
    await this.turns.run(() => this.look());
    this.refusal = null;
    if (!this.done.isSet) await this.turns.run(() => this.send());
    while (!(await this.done.within(Math.min(FORGET_AGAIN_S, giveUpAt - now())))) {
      const refusal = this.takeRefusal();
      if (refusal !== null && !this.isForgotten) throw await this.takeBack(refusal);
      if (now() >= giveUpAt) break;
      await this.turns.run(() => this.send());
    }
    await this.turns.run(() => this.finish());
    return { state: this.state ?? "asked", receipt: this.receipt };
  }

  /** Send the request again if it is due. */
  async sendDue(at: number): Promise<void> {
    if (this.outbox.connected && this.dueAt <= at) await this.send();
  }

  /** Return when `sendDue` next has something to do, if nothing arrives before. */
  nextDueAt(): number {
    return this.outbox.connected ? this.dueAt : Infinity;
  }

  /** Delete and clear what failed before. Another failure is left for the next time. */
  async finish(): Promise<void> {
    if (this.isForgotten && !(await this.store.isForgotten())) await this.delete();
    if (!this.outbox.connected) return;
    while (this.retained.length > 0) {
      try {
        await this.outbox.clear(this.retained[0]);
      } catch (error) {
        return this.later(error);
      }
      this.retained = this.retained.slice(1);
    }
  }

  private async delete(): Promise<void> {
    try {
      await this.store.forget();
    } catch (error) {
      this.log("error", "store_not_deleted", { cause: causeOf(error) });
    }
  }

  /** Send the request and schedule its repetition. An unreachable broker only delays it. */
  private async send(): Promise<void> {
    this.dueLater();
    try {
      // A request that the federator has stored need not be retained.
      await this.outbox.publish(Forget, {}, "forget", !this.isForgotten);
    } catch (error) {
      return this.later(error);
    }
    this.hasSent = true;
    if (this.state === "asked") this.state = "sent"; // not stored: by the next start the broker may have lost it
  }

  private dueLater(): void {
    const [first, longest] = PAUSES_S[this.state ?? "asked"];
    this.dueAt = now() + Math.min(longest, first * 2 ** Math.min(this.nSent++, 16));
  }

  /** Enter a state. It is stored if the request was made in this browser. */
  private async goTo(state: ForgetState): Promise<void> {
    if (state === this.state) return;
    this.state = state;
    if (!this.isWish) return;
    this.nSent = 0;
    this.dueLater();
    try {
      await this.store.putForgetState(state);
    } catch (error) {
      if (!(error instanceof DataError)) throw error;
      this.log("warning", "forget_state_not_stored", { cause: causeOf(error) }); // the next start asks again
    }
  }

  private takeRefusal(): ErasureNotice | null {
    const { refusal } = this;
    this.refusal = null;
    return refusal;
  }

  /** Continue as a client. The request must not stay retained, or the next federator might act on it. */
  private async takeBack(refusal: ErasureNotice): Promise<FoltrError> {
    await this.turns.run(async () => {
      await this.store.putForgetState(null);
      [this.isWish, this.state, this.dueAt] = [false, null, Infinity];
      this.participation.left = this.hadLeft;
      this.retained = ["forget"];
      await this.finish();
      if (!this.participation.joined) await this.sayHello(); // the connection has sent nothing else until now
    });
    return new FoltrError(
      `this client cannot be forgotten: ${refusal.code}: ${refusal.detail}. The operator can: foltr erasure request`,
    );
  }

  private later(error: unknown): void {
    if (!(error instanceof UnavailableError)) throw error;
    this.log("debug", "resend_scheduled", { what: "forget", cause: causeOf(error) });
  }
}

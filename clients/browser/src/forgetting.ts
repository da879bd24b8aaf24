// A device that is to be forgotten asks for that, hears how far it is, and deletes what it keeps itself.
//
// The wish is in the store before it is sent, whichever tab was asked, and is sent again over every connection and with
// growing pauses until there is a receipt; nothing else is sent meanwhile. The broker retains it, so that it also reaches
// a federator that comes back when the page is closed. Once the erasure is stored the device clears what is retained of
// it. Who asked asks once more at each start, and in each epoch: the federation's database may be a restored one.

import { DataError, FoltrError, UnavailableError } from "./errors.js";
import { causeOf, type Log } from "./log.js";
import type { Outbox } from "./outbox.js";
import type { Participation } from "./participation.js";
import { Forget, type ErasureNotice } from "./protocol/messages.js";
import type { ClientTopic } from "./protocol/topics.js";
import type { DeviceStore, ForgetState } from "./store/store.js";
import { Happening, now, type Turns } from "./turns.js";

// The request or its answer may be lost; the request may be repeated.
const FORGET_AGAIN_S = 3;
/** As long as nobody waits: the first pause between two requests, which doubles, and the longest. */
const PAUSES_S: Record<ForgetState, readonly [number, number]> = {
  asked: [FORGET_AGAIN_S, 120],
  sent: [FORGET_AGAIN_S, 120],
  erasing: [FORGET_AGAIN_S, 120],
  forgetting: [60, 3600], // it is told when the model is there; this is for the news that was lost
  forgotten: [Infinity, Infinity],
};

/** What became of a request to be forgotten. */
export interface ForgetResult {
  /**
   * `asked`: the wish is kept in this browser, and no broker has it yet; `sent`: the federator has not answered;
   * `erasing`: what is stored of the client is being deleted; `forgetting`: all of it is erased but what is in the model;
   * `forgotten`: that too.
   */
  readonly state: ForgetState;
  /** The federation's signed proof, which `foltr erasure verify` checks, once it is forgotten. */
  readonly receipt: string | null;
}

/** The erasure of one client, as far as its device has to do with it. */
export class Forgetting {
  /** How far it is; null where neither the user has asked nor the federation has erased this client. */
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
  /** What the broker may retain; perhaps a run before this one could not clear it. */
  private retained: ClientTopic[];

  /**
   * @param isForgotten the federation has erased this client, or is unlearning it; now or before a restart.
   * @param stored how far the wish is, as the store says.
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
    if (isForgotten) this.state = "erasing"; // that it was erased says no more than that
    this.takeUp(stored);
  }

  /** The federation was asked for the erasure, and has not answered. */
  get isWaiting(): boolean {
    return this.state === "asked" || this.state === "sent";
  }

  /** The broker may retain something of a client that was forgotten. */
  get isClearing(): boolean {
    return this.isForgotten && this.retained.length > 0;
  }

  // --- what arrives -------------------------------------------------------------------------------------------------

  /** Take up a wish that is in the store: of an earlier run, or of another tab. In each turn, before anything is sent. */
  async look(): Promise<void> {
    if (!this.isWish) this.takeUp(await this.store.forgetState());
  }

  private takeUp(stored: ForgetState | null): void {
    if (stored === null) return;
    this.isWish = true;
    this.dueAt = now();
    if (this.state !== null && (stored === "asked" || stored === "sent")) return; // the federation has erased it since
    this.isForgotten ||= stored !== "asked" && stored !== "sent";
    if (!this.isForgotten) [this.hadLeft, this.participation.left] = [this.participation.left, true];
    this.state = stored;
  }

  /** Ask over a new connection: the broker may be another one than before, or have lost what it retained. */
  beginConnection(at: number): void {
    if (this.isWish && !(this.state === "forgotten" && this.hasSent)) [this.dueAt, this.nSent] = [at, 0];
  }

  /** Ask again where another federator announces than before: its database may be a restored one. */
  hearEpoch(epoch: bigint, at: number): void {
    if (this.isWish && this.epoch !== null && epoch > this.epoch) [this.dueAt, this.nSent] = [at, 0];
    this.epoch = epoch;
  }

  /** Delete what the device keeps: the federation has erased this client. If that fails, `finish` tries again. */
  async forget(): Promise<void> {
    if (!this.isForgotten) this.retained = ["forget", "status"];
    this.isForgotten = true;
    if (this.state === null || this.isWaiting) await this.goTo("erasing"); // all that is known by now
    await this.delete();
  }

  /** Take an answer to a request, or the news of one that the operator made. */
  async takeNotice(notice: ErasureNotice): Promise<void> {
    const { code } = notice;
    if (code === "erasing" || code === "forgetting" || code === "forgotten") {
      this.receipt = code !== "forgotten" || notice.receipt === null ? null : new TextDecoder().decode(notice.receipt);
      if (code === "forgotten") this.done.set();
      else if (this.done.isSet) this.done = new Happening();
      await this.goTo(code);
    } else if (code !== "busy") {
      // That one is asked again.
      if (this.refusal === null && this.isWaiting) this.log("warning", "forget_refused", { code });
      this.refusal = notice;
    }
  }

  // --- what to do ---------------------------------------------------------------------------------------------------

  /**
   * Ask to be erased, and to have unlearned what was contributed; wait for the answer up to `timeoutS`. DataError: the
   * wish cannot be stored, and nothing was changed.
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

  /** Send the wish again, if that is due. */
  async sendDue(at: number): Promise<void> {
    if (this.outbox.connected && this.dueAt <= at) await this.send();
  }

  /** Return when `sendDue` will next have something to do, if nothing arrives before. */
  nextDueAt(): number {
    return this.outbox.connected ? this.dueAt : Infinity;
  }

  /** Delete and clear what could not be before. What fails again is for the next time. */
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

  /** Send the wish, and see to it that it is sent again; an unreachable broker only makes it later. */
  private async send(): Promise<void> {
    this.dueLater();
    try {
      // What is stored already need not be held for anybody.
      await this.outbox.publish(Forget, {}, "forget", !this.isForgotten);
    } catch (error) {
      return this.later(error);
    }
    this.hasSent = true;
    if (this.state === "asked") this.state = "sent"; // not stored: at the next start the broker may have lost it
  }

  private dueLater(): void {
    const [first, longest] = PAUSES_S[this.state ?? "asked"];
    this.dueAt = now() + Math.min(longest, first * 2 ** Math.min(this.nSent++, 16));
  }

  /** Be in this state; the next start knows it, too, if anybody asked in this browser. */
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

  /** Go on as a client; the broker must not show the request to the next federator, which might obey it. */
  private async takeBack(refusal: ErasureNotice): Promise<FoltrError> {
    await this.turns.run(async () => {
      await this.store.putForgetState(null);
      [this.isWish, this.state, this.dueAt] = [false, null, Infinity];
      this.participation.left = this.hadLeft;
      this.retained = ["forget"];
      await this.finish();
      if (!this.participation.joined) await this.sayHello(); // the connection had to be silent until now
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

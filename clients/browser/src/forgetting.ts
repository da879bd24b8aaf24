// A device that is to be forgotten asks for that, hears how far it is, and deletes what it keeps itself.
//
// It sends `forget` again until it is answered; the broker retains it meanwhile, so that it also reaches a federator
// that comes back when the page is closed. Once the erasure is stored the device clears what is retained of it.

import { FoltrError, UnavailableError } from "./errors.js";
import { causeOf, type Log } from "./log.js";
import type { Outbox } from "./outbox.js";
import type { Participation } from "./participation.js";
import { Forget, type ErasureNotice } from "./protocol/messages.js";
import type { ClientTopic } from "./protocol/topics.js";
import type { DeviceStore } from "./store/store.js";
import { Happening, now, type Turns } from "./turns.js";

// The request or its answer may be lost; the request may be repeated.
const FORGET_AGAIN_S = 3;

/** What became of a request to be forgotten. */
export interface ForgetResult {
  /**
   * `sent`: the federator has not answered yet; `forgetting`: all of the client is erased but what is in the model;
   * `forgotten`: that too.
   */
  readonly state: "sent" | "forgetting" | "forgotten";
  /** The federation's signed proof, which `foltr receipt verify` checks, once it is forgotten. */
  readonly receipt: string | null;
}

/** The erasure of one client, as far as its device has to do with it. */
export class Forgetting {
  private isRequested = false;
  private receipt: string | null = null;
  private refusal: ErasureNotice | null = null;
  private readonly done = new Happening();
  /** What the broker may retain; perhaps a run before this one could not clear it. */
  private retained: ClientTopic[];

  /** @param isForgotten the federation has erased this client, or is unlearning it; now or before a restart. */
  constructor(
    private readonly turns: Turns,
    private readonly outbox: Outbox,
    private readonly participation: Participation,
    private readonly store: DeviceStore,
    private readonly log: Log,
    public isForgotten: boolean,
  ) {
    this.retained = isForgotten ? ["forget", "status"] : [];
  }

  /** The federation was asked for the erasure, and has not answered. */
  get isWaiting(): boolean {
    return this.isRequested && !this.isForgotten;
  }

  /** The broker may retain something of a client that was forgotten. */
  get isClearing(): boolean {
    return this.isForgotten && this.retained.length > 0;
  }

  /** Delete what the device keeps: the federation has erased this client. If that fails, `finish` tries again. */
  async forget(): Promise<void> {
    if (!this.isForgotten) this.retained = ["forget", "status"];
    this.isForgotten = true;
    await this.delete();
  }

  /** Take an answer to a request, or the news of one that the operator made. */
  takeNotice(notice: ErasureNotice): void {
    if (notice.code === "forgotten") {
      this.receipt = notice.receipt === null ? null : new TextDecoder().decode(notice.receipt);
      this.done.set();
    } else if (notice.code !== "forgetting" && notice.code !== "busy") this.refusal = notice; // that is asked again
  }

  /** Ask to be erased, and to have unlearned what was contributed; wait for the answer up to `timeoutS`. */
  async ask(timeoutS: number): Promise<ForgetResult> {
    const giveUpAt = now() + timeoutS;
    const hadLeft = this.participation.left && !this.isRequested;
    this.refusal = null;
    this.participation.left = true; // first: an update that is due must not follow the request
    try {
      if (!this.done.isSet) await this.turns.run(() => this.send());
    } catch (error) {
      this.participation.left = hadLeft || this.isRequested || this.isForgotten;
      throw error;
    }
    this.isRequested = true;
    while (!(await this.done.within(Math.min(FORGET_AGAIN_S, giveUpAt - now())))) {
      const refusal = this.takeRefusal();
      if (refusal !== null && !this.isForgotten) throw await this.takeBack(refusal, hadLeft);
      if (now() >= giveUpAt) break;
      await this.turns.run(() => this.send()).catch((error: unknown) => this.later(error));
    }
    await this.turns.run(() => this.finish());
    if (this.done.isSet) return { state: "forgotten", receipt: this.receipt };
    return { state: this.isForgotten ? "forgetting" : "sent", receipt: null };
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

  /** What is stored already need not be held for anybody. */
  private send(): Promise<void> {
    return this.outbox.publish(Forget, {}, "forget", !this.isForgotten);
  }

  private takeRefusal(): ErasureNotice | null {
    const { refusal } = this;
    this.refusal = null;
    return refusal;
  }

  /** Go on as a client; the broker must not show the request to the next federator, which might obey it. */
  private async takeBack(refusal: ErasureNotice, hadLeft: boolean): Promise<FoltrError> {
    this.isRequested = false;
    this.participation.left = hadLeft;
    this.retained = ["forget"];
    await this.turns.run(() => this.finish());
    return new FoltrError(
      `this client cannot be forgotten: ${refusal.code}: ${refusal.detail}. The operator can: foltr forget`,
    );
  }

  private later(error: unknown): void {
    if (!(error instanceof UnavailableError)) throw error;
    this.log("debug", "will_send_again", { what: "forget", cause: causeOf(error) });
  }
}

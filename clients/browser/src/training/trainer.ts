// The trainer of a device keeps its working model: the newest model plus the waiting interactions, learned in order.
//
// A working model follows from the announced one and the interactions, so it can be dropped and made again.

import { DataError } from "../errors.js";
import { causeOf, type Log } from "../log.js";
import type { Model, Participation } from "../participation.js";
import type { Training } from "../protocol/messages.js";
import type { Interaction } from "../store/interactions.js";
import type { DeviceStore } from "../store/store.js";
import { linearWeights, whyNotUsable, WorkingModel } from "./working_model.js";

export class Trainer {
  /** The newest model with waiting interactions learned; null before the first, or if it cannot be used. */
  workingModel: WorkingModel | null = null;
  private begunWith: { model: Model; training: Training } | null = null;
  private loggedCause = "";
  private doMisfitsWait = false;

  constructor(
    private readonly store: DeviceStore,
    private readonly participation: Participation,
    private readonly log: Log,
    /** Whether a gate decides which lists come from the model; without one all do, and none is imitated. */
    private readonly isGated: boolean,
  ) {}

  /** (features,) weights to rank by; null without a linear model. */
  get weights(): Float64Array<ArrayBuffer> | null {
    const { model, hasOtherFeatures } = this.participation;
    if (hasOtherFeatures) return null; // it ranks other features
    return this.workingModel?.weights ?? (model === null ? null : linearWeights(model.announcement));
  }

  /** Whether enough interactions were learned for an update. */
  get hasEnough(): boolean {
    const { workingModel } = this;
    return workingModel !== null && workingModel.interactionIds.length >= workingModel.training.min_interactions;
  }

  /** Learn new waiting interactions, from the newest model with the newest announced settings. */
  async catchUp(): Promise<void> {
    const { model, round } = this.participation;
    if (this.participation.hasOtherFeatures) return this.forget(); // and it cannot learn from these
    if (model === null || round === null) return;
    if (this.begunWith?.model !== model || !isSameTraining(this.begunWith.training, round.training)) this.begin();
    for (let isAllLearned = false; !isAllLearned;) {
      const { workingModel } = this;
      if (workingModel === null) return;
      const waiting = await this.store.waitingIds(workingModel.training.max_interactions);
      const nLearned = workingModel.interactionIds.length;
      if (!workingModel.interactionIds.every((id, i) => id === waiting[i])) {
        // The interactions of an update are under way; ranking keeps what was learned from them.
        if (this.participation.pending !== null) return;
        this.begin();
        continue;
      }
      // Discarded interactions made room for others.
      const news = await this.store.interactions(waiting.slice(nLearned));
      isAllLearned = await this.learn(workingModel, await this.upToMisfits(workingModel, news));
    }
  }

  /** Start over from what counts now, since learned interactions turned out not to count. */
  takeBack(): void {
    if (this.begunWith !== null) this.begin();
  }

  /** Drop everything that was learned. */
  forget(): void {
    this.workingModel = this.begunWith = null;
  }

  private begin(): void {
    const { model, round } = this.participation;
    this.forget();
    if (model === null || round === null) return;
    const { announcement } = model;
    const { training } = round;
    this.begunWith = { model, training };
    const cause = whyNotUsable(announcement, training);
    if (cause !== null && cause !== this.loggedCause) this.log("error", "method_unsupported", { cause });
    this.loggedCause = cause ?? "";
    const base = linearWeights(announcement);
    if (cause === null && base !== null && training.kind === "pdgd")
      this.workingModel = new WorkingModel(base, training, this.isGated);
  }

  /**
   * Return the interactions before the first with another number of features than the ranker.
   *
   * The newest list shows the application's number of features. While it differs from the federation's, clicks wait,
   * since either side may be corrected. Once they agree, older lists of another number are discarded.
   */
  private async upToMisfits(model: WorkingModel, news: readonly Interaction[]): Promise<readonly Interaction[]> {
    const first = news.findIndex(({ nFeatures }) => nFeatures !== model.base.length);
    const before = this.doMisfitsWait;
    this.doMisfitsWait = first >= 0 && (await this.store.newestWaitingWidth()) !== model.base.length;
    if (!this.doMisfitsWait) return news;
    if (!before)
      this.log("warning", "feature_count_mismatch", { features: news[first].nFeatures, ranker: model.base.length });
    return news.slice(0, first);
  }

  /** Learn these, and discard any that cannot be learned, so that it does not block the others. */
  private async learn(workingModel: WorkingModel, interactions: readonly Interaction[]): Promise<boolean> {
    const refused: number[] = [];
    for (const interaction of interactions) {
      try {
        workingModel.learn(interaction);
      } catch (error) {
        if (!(error instanceof DataError)) throw error;
        refused.push(interaction.id);
        this.log("warning", "interaction_discarded", { cause: causeOf(error) });
      }
    }
    if (refused.length > 0) await this.store.discard(refused);
    return refused.length === 0;
  }
}

/** Both have the same fields in the same order. */
function isSameTraining(left: Training, right: Training): boolean {
  return JSON.stringify(left) === JSON.stringify(right);
}

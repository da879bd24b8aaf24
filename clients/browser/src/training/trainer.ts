// A device's trainer keeps its working model: the newest model, with what waits in the store learned in order.
//
// A working model follows from the announced one and the interactions, so it can be dropped and made again.

import { DataError } from "../errors.js";
import { causeOf, type Log } from "../log.js";
import type { Model, Participation } from "../participation.js";
import type { Training } from "../protocol/messages.js";
import type { DeviceStore, Interaction } from "../store/store.js";
import { linearWeights, whyNotUsable, WorkingModel } from "./working_model.js";

export class Trainer {
  /** The newest model with what waits learned into it; null before there is one, or where it cannot be used. */
  workingModel: WorkingModel | null = null;
  private begunWith: { model: Model; training: Training } | null = null;
  private loggedCause = "";
  private doMisfitsWait = false;

  constructor(
    private readonly store: DeviceStore,
    private readonly participation: Participation,
    private readonly log: Log,
  ) {}

  /** (features,) weights to rank by; null where there is no linear model. */
  get weights(): Float64Array<ArrayBuffer> | null {
    const { model, hasOtherFeatures } = this.participation;
    if (hasOtherFeatures) return null; // it ranks other features
    return this.workingModel?.weights ?? (model === null ? null : linearWeights(model.announcement));
  }

  /** Whether as many interactions were learned as an update is made of. */
  get hasEnough(): boolean {
    const { workingModel } = this;
    return workingModel !== null && workingModel.interactionIds.length >= workingModel.training.min_interactions;
  }

  /** Learn what waits and was not learned, from the newest model by the newest announced settings. */
  async catchUp(): Promise<void> {
    const { model, round } = this.participation;
    if (this.participation.hasOtherFeatures) return this.forget(); // and these teach it nothing
    if (model === null || round === null) return;
    if (this.begunWith?.model !== model || !isSameTraining(this.begunWith.training, round.training)) this.begin();
    for (let isAllLearned = false; !isAllLearned;) {
      const { workingModel } = this;
      if (workingModel === null) return;
      const waiting = await this.store.waitingIds(workingModel.training.max_interactions);
      const nLearned = workingModel.interactionIds.length;
      if (!workingModel.interactionIds.every((id, i) => id === waiting[i])) {
        // Those of an update are on their way; ranking goes on with what was learned from them.
        if (this.participation.pending !== null) return;
        this.begin();
        continue;
      }
      // What had to be discarded made room for others.
      const news = await this.store.interactions(waiting.slice(nLearned));
      isAllLearned = await this.learn(workingModel, await this.upToMisfits(workingModel, news));
    }
  }

  /** Begin anew, with what counts now: an update does not count that seemed to, or that was hoped to. */
  takeBack(): void {
    if (this.begunWith !== null) this.begin();
  }

  /** Keep nothing that was learned. */
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
    if (cause !== null && cause !== this.loggedCause) this.log("error", "method_not_usable", { cause }); // once
    this.loggedCause = cause ?? "";
    const base = linearWeights(announcement);
    if (cause === null && base !== null && training.kind === "pdgd")
      this.workingModel = new WorkingModel(base, training);
  }

  /**
   * Return those before the first that has not as many features as the ranker, if the application has not either.
   *
   * Its newest list says how many it has. As long as they are not the federation's, its clicks wait: either may be put
   * right. Once they are, older lists of another number are as good as lost, and discarded.
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

  /** Learn these, and discard what cannot be learned: one such list must not keep the others from it. */
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

/** Both are of the same fields in the same order, whoever read them. */
function isSameTraining(left: Training, right: Training): boolean {
  return JSON.stringify(left) === JSON.stringify(right);
}

// A device helps to unlearn other clients: it learns again, in each step of a job, from interactions that it kept.

import { DataError } from "../errors.js";
import { causeOf, type Log } from "../log.js";
import type { Fields } from "../protocol/fields.js";
import { UnlearningUpdate, type UnlearningRound } from "../protocol/messages.js";
import type { DeviceStore } from "../store/store.js";
import { linearWeights, whyNotUsable, WorkingModel } from "./working_model.js";

export type Answer = Omit<Fields<typeof UnlearningUpdate.shape>, "federation" | "client_id">;

/** Answers the steps of unlearning jobs for one device. */
export class Relearning {
  /** What is to be sent; null once it was. */
  due: Answer | null = null;
  private newest: { step: string; answer: Answer | null } | null = null;

  constructor(
    private readonly store: DeviceStore,
    private readonly log: Log,
    private readonly random: () => number,
  ) {}

  /** Take a step. One that was announced before is answered as before: the answer may have been lost. */
  async takeStep(round: UnlearningRound): Promise<void> {
    if (!round.open) return this.forget();
    const step = `${round.job}/${round.step}/${[...round.weights].join()}`;
    if (this.newest?.step !== step) this.newest = { step, answer: await this.answer(round) };
    this.due = this.newest.answer;
  }

  markSent(answer: Answer): void {
    if (this.due === answer) this.due = null;
  }

  /** Remember neither a step to answer nor an answer. */
  forget(): void {
    this.newest = this.due = null;
  }

  /** Learn in a step; return what is to be sent, or null where that is nothing. */
  private async answer(round: UnlearningRound): Promise<Answer | null> {
    const base = linearWeights(round);
    if (base === null || round.training.kind !== "pdgd" || whyNotUsable(round, round.training) !== null) return null;
    const model = new WorkingModel(base, round.training);
    const kept = shuffled(await this.store.keptIds(), this.random);
    while (model.interactionIds.length < round.local_interactions && kept.length > 0) {
      const [interaction] = await this.store.interactions([kept.pop()!]);
      try {
        if (interaction !== undefined) model.learn(interaction);
      } catch (error) {
        if (!(error instanceof DataError)) throw error;
        this.log("warning", "kept_interaction_not_learned", { cause: causeOf(error) });
      }
    }
    const n = model.interactionIds.length;
    if (n === 0) return null;
    const body = { kind: "dense" as const, dim: base.length, values: model.delta() };
    return { job: round.job, step: round.step, n_interactions: n, body };
  }
}

function shuffled(ids: readonly number[], random: () => number): number[] {
  return ids
    .map((id) => ({ id, key: random() }))
    .sort((a, b) => a.key - b.key)
    .map(({ id }) => id);
}

// A device helps to unlearn other clients: in each step of a job it learns again from interactions that it kept.

import { DataError } from "../errors.js";
import { causeOf, type Log } from "../log.js";
import { toHex, type Fields } from "../protocol/fields.js";
import { UnlearningUpdate, type UnlearningRound } from "../protocol/messages.js";
import type { DeviceStore } from "../store/store.js";
import type { UnlearningLimits } from "./unlearning_limits.js";
import { linearWeights, whyNotUsable, WorkingModel } from "./working_model.js";

const DAY_MS = 86_400_000;
/** A client is unlearned by one job, and by a second one if the first covered too little. */
const JOBS_AN_ERASURE = 2;

export type Answer = Omit<Fields<typeof UnlearningUpdate.shape>, "federation" | "client_id">;

/** Answers the steps of unlearning jobs for one device. */
export class Relearning {
  /** The answer to send; null once it was sent. */
  due: Answer | null = null;
  private newest: { step: string; answer: Answer | null } | null = null;
  private told = "";

  constructor(
    private readonly store: DeviceStore,
    private readonly log: Log,
    private readonly random: () => number,
    private readonly limits: UnlearningLimits,
  ) {}

  /** Take a step. A repeated announcement gets the same answer, since the first may have been lost. */
  async takeStep(round: UnlearningRound): Promise<void> {
    if (!round.open) return this.forget();
    const step = `${round.job}/${round.step}/${[...round.weights].join()}`;
    if (this.newest?.step !== step || this.newest.answer === null)
      this.newest = { step, answer: await this.answer(round) };
    this.due = this.newest.answer;
  }

  markSent(answer: Answer): void {
    if (this.due === answer) this.due = null;
  }

  /** Drop the step and its answer. */
  forget(): void {
    this.newest = this.due = null;
  }

  /** Learn in a step. Returns the answer, or null for none. */
  private async answer(round: UnlearningRound): Promise<Answer | null> {
    const base = linearWeights(round);
    if (base === null || round.training.kind !== "pdgd" || whyNotUsable(round, round.training) !== null) return null;
    const day = Math.floor(Date.now() / DAY_MS);
    const named = round.erasures.map(({ audit_seq, audit_hash }) => `${audit_seq}:${toHex(audit_hash)}`);
    const others = await Promise.all(
      named.map(async (one) => (await this.store.jobsOf(one)).filter((job) => job !== round.job)),
    );
    if (others.every((jobs) => jobs.length >= JOBS_AN_ERASURE))
      return this.decline(round, `the erasures that it names were used for ${JOBS_AN_ERASURE} other jobs`);
    const { stepsADay, stepsAClick, fewestInteractions } = this.limits;
    if (round.local_interactions < fewestInteractions)
      return this.decline(round, `it asks for fewer than ${fewestInteractions} interactions`);
    if ((await this.store.answeredOn(day)) >= stepsADay)
      return this.decline(round, `${stepsADay} steps were answered today`);
    const model = new WorkingModel(base, round.training);
    const kept = shuffled(await this.store.keptIds(), this.random);
    while (model.interactionIds.length < round.local_interactions && kept.length > 0) {
      const [interaction] = await this.store.interactions([kept.pop()!]);
      try {
        if (interaction !== undefined && (interaction.relearned ?? 0) < stepsAClick) model.learn(interaction);
      } catch (error) {
        if (!(error instanceof DataError)) throw error;
        this.log("warning", "kept_interaction_not_learned", { cause: causeOf(error) });
      }
    }
    const n = model.interactionIds.length;
    if (n < fewestInteractions)
      return this.decline(round, `fewer than ${fewestInteractions} interactions are left to learn from`);
    await this.store.countAnswer(day, model.interactionIds, round.job, named);
    const body = { kind: "dense" as const, dim: base.length, values: model.delta() };
    return { job: round.job, step: round.step, n_interactions: n, body };
  }

  /** Decline a step, and log each cause once per job. */
  private decline({ job }: UnlearningRound, cause: string): null {
    if (this.told !== `${job} ${cause}`) this.log("warning", "unlearning_step_skipped", { job, cause });
    this.told = `${job} ${cause}`;
    return null;
  }
}

function shuffled(ids: readonly number[], random: () => number): number[] {
  return ids
    .map((id) => ({ id, key: random() }))
    .sort((a, b) => a.key - b.key)
    .map(({ id }) => id);
}

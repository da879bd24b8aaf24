// A device reports how the ranker does by its user's clicks, if the federation asks, and gets what all report.
//
// edge_client/evaluator.py is the same, with more explanation. Under a policy a browser reports nothing.

import type { Credits } from "./learning/gate.js";
import { firstClickReward, meanOfLists, type ListRewards } from "./learning/rewards.js";
import type { Participation } from "./participation.js";
import { readEnvelope, type Envelope } from "./protocol/codec.js";
import { EvaluationRequest, type Evaluation } from "./protocol/messages.js";
import { epochAndNumber } from "./protocol/signing.js";
import type { Interaction } from "./store/interactions.js";
import type { DeviceStore } from "./store/store.js";

export class Evaluator {
  private request: EvaluationRequest | null = null;
  private epoch: bigint | null = null;

  /** @param isEnabled false reports nothing, and uses nothing of what others report. */
  constructor(
    private readonly federation: string,
    private readonly store: DeviceStore,
    private readonly participation: Participation,
    private readonly isEnabled: boolean,
  ) {}

  /** Take a request; another federation's is ignored. */
  takeRequest(envelope: Envelope): void {
    const request = readEnvelope(envelope, EvaluationRequest);
    if (request.federation !== this.federation) return;
    [this.request, this.epoch] = [request, epochAndNumber(envelope.sequence)[0]];
  }

  /** What the lists of all users say of the model, while its federator runs; null if it does not say. */
  get shared(): Credits | null {
    const { current } = this;
    return current && { total: current.credit_total, squares: current.credit_squares };
  }

  /** Return the evaluation in an update of these interactions; null if nobody asks, or no base order is stored. */
  async evaluationOf(interactionIds: readonly number[]): Promise<Evaluation | null> {
    const { current } = this;
    if (current === null) return null;
    const interactions = await this.store.interactions(interactionIds);
    const lists = interactions.flatMap((each) => earnedBy(each, current.credits_since));
    if (lists.length === 0) return null;
    const { clicked, reward, baseReward } = meanOfLists(lists);
    return {
      clicked,
      reward,
      base_reward: baseReward,
      credit_total: lists.reduce((sum, { credit }) => sum + credit, 0),
      credit_squares: lists.reduce((sum, { credit }) => sum + credit ** 2, 0),
    };
  }

  /** The request of the federator that runs. */
  private get current(): EvaluationRequest | null {
    return this.isEnabled && this.epoch === this.participation.epoch ? this.request : null;
  }
}

/**
 * Return the rewards of an interaction; none if its base order is unknown.
 *
 * @param creditsSince a list that is mixed with an older model has no credit.
 */
export function earnedBy(
  { clicks, baseReward, credit = 0, baseVersion }: Interaction,
  creditsSince: number,
): ListRewards[] {
  if (baseReward === undefined) return [];
  const counts = baseVersion !== null && baseVersion >= creditsSince;
  return [{ reward: firstClickReward(clicks), baseReward, credit: counts ? credit : 0 }];
}

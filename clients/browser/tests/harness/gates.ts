// Gates as numbers in the order of the vectors.

import * as gating from "../../src/learning/gate.js";
import type { Gate } from "../../src/learning/gate.js";

/** Return what a gate says. */
export function toldGate(gate: Gate): number[] {
  const mean = (each: gating.FadingMean) => [each.weight, each.weightSquares, each.total, each.squares];
  const count = (each: gating.ShownCount) => [each.lists, each.clicked, each.reciprocalRanks];
  const { base, model, interleaved } = gate.counts;
  return [
    ...[mean(gate.credits), mean(gate.ofBase), mean(gate.ofModel), count(base), count(model), count(interleaved)],
    [gating.creditScore(gate), gating.modelScore(gate), gating.shareInterleaved(gate), Number(gate.isOpen)],
  ].flat();
}

/** Return what a vector's gate says. */
export function statedGate(gate: any): number[] {
  const { credits, of_base, of_model, counts } = gate;
  const { base, model, interleaved } = counts;
  const scores = [gate.credit_score, gate.model_score, gate.share_interleaved, Number(gate.is_open)];
  return [credits, of_base, of_model, base, model, interleaved, scores].flatMap((each) => Object.values<number>(each));
}

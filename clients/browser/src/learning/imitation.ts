// Learn the order of a list as it was shown, with or without clicks: what a model of zeros learns first.
//
// core/learning/imitation.py is the same with more explanation.

import { MOST_COMPARED } from "./display.js";
import { score, type Features } from "./linear.js";

/** The rate of these steps in learning rates of PDGD. */
const OF_LEARNING_RATE = 0.1;

/** Return a linear ranker's weights after one list: a step up the Plackett-Luce likelihood of its order. */
export function imitationStep(
  weights: Float64Array<ArrayBuffer>,
  features: Features,
  { ranking }: { readonly ranking: readonly number[] },
  learningRate: number,
): Float64Array<ArrayBuffer> {
  const { nFeatures, values } = features;
  const scores = score(weights, features);
  const ofScores = new Float64Array(scores.length);
  const left = new Set(scores.keys());
  ranking.slice(0, MOST_COMPARED).forEach((document, i) => {
    const largest = Math.max(...[...left].map((d) => scores[d]));
    const likely = [...left].map((d) => [d, Math.exp(scores[d] - largest)] as const);
    const total = likely.reduce((sum, [, one]) => sum + one, 0);
    for (const [d, one] of likely) ofScores[d] -= one / ((i + 1) * total);
    ofScores[document] += 1 / (i + 1);
    left.delete(document);
  });
  return weights.map((weight, f) => {
    const gradient = ofScores.reduce((sum, one, d) => sum + one * values[d * nFeatures + f], 0);
    return weight + OF_LEARNING_RATE * learningRate * gradient;
  });
}

// Learn the order of a list as it was shown, with or without clicks: what a model of zeros learns first.
//
// core/learning/imitation.py is the same with more explanation.

import { MOST_COMPARED } from "./display.js";
import { score, type Features } from "./linear.js";
import { weightedRows } from "./pdgd.js";

/** The rate of these steps in learning rates of PDGD. */
const OF_LEARNING_RATE = 0.1;

/** Return a linear ranker's weights after one list: a step up the Plackett-Luce likelihood of its order. */
export function imitationStep(
  weights: Float64Array<ArrayBuffer>,
  features: Features,
  { ranking }: { readonly ranking: readonly number[] },
  learningRate: number,
): Float64Array<ArrayBuffer> {
  const scores = score(weights, features);
  const likely = Float64Array.from(scores, Math.exp); // a score that is too large for it is refused with the weights
  const ofScores = new Float64Array(scores.length);
  ranking.slice(0, MOST_COMPARED).forEach((document, i) => {
    const total = (i + 1) * likely.reduce((sum, one) => sum + one);
    likely.forEach((one, d) => (ofScores[d] -= one / total));
    ofScores[document] += 1 / (i + 1);
    likely[document] = 0; // it is no longer left
  });
  const gradient = weightedRows(features, [...scores.keys()], ofScores);
  return weights.map((weight, f) => weight + OF_LEARNING_RATE * learningRate * gradient[f]);
}

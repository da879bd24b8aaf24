// PDGD: learn from clicks by pairwise preferences, corrected for the bias of the shown ranking.
//
// Oosterhuis and de Rijke, "Differentiable Unbiased Online Learning to Rank" (CIKM 2018), as used by FPDGD (Wang et
// al., ICTIR 2021, Section 3.1, Algorithm 1). core/learning/pdgd.py is the same with more explanation.

import { DataError } from "../errors.js";
import { MOST_COMPARED, pairIndex } from "./display.js";
import { score, type Features } from "./linear.js";

/** A list as shown, its clicks by position, and its reversals (`display.Shown`). */
export interface ClickedList {
  readonly ranking: readonly number[];
  readonly clicks: readonly boolean[];
  readonly reversals: Float64Array;
}

/**
 * Return the linear ranker's weights after one interaction: w + learning_rate * gradient (FPDGD, Algorithm 1, line 10).
 */
export function pdgdStep(
  weights: Float64Array<ArrayBuffer>,
  features: Features,
  list: ClickedList,
  learningRate: number,
): Float64Array<ArrayBuffer> {
  const gradient = weightedRows(features, list.ranking, scoreGradient(score(weights, features), list));
  return weights.map((weight, i) => weight + learningRate * gradient[i]);
}

/**
 * Return the PDGD gradient with respect to the scores of the shown documents, (k,) in the order shown.
 *
 * Every clicked document is preferred over every unclicked one that the user surely saw: those above the last click and
 * the first one after it. A preference of document p over q adds rho * sigma'(s_p - s_q) to the gradient of p and
 * subtracts it from q's (FPDGD, Eq. 5), where sigma' is the slope of the logistic function.
 */
export function scoreGradient(scores: ArrayLike<number>, list: ClickedList): Float64Array {
  const { ranking, clicks, reversals } = list;
  const n = Math.min(ranking.length, MOST_COMPARED);
  if (clicks.length !== ranking.length) throw new DataError("clicks must have one entry for each document shown");
  if (reversals.length !== (n * (n - 1)) / 2) throw new DataError("reversals must have one entry for each pair shown");
  const shown = ranking.map((document) => scores[document]);
  if (!shown.every(Number.isFinite)) throw new DataError("scores must be finite numbers to learn from");
  const gradient = new Float64Array(ranking.length);
  const lastClick = clicks.slice(0, n).lastIndexOf(true);
  const seen = Math.min(lastClick + 2, n);
  for (let preferred = 0; preferred <= lastClick; preferred++) {
    if (!clicks[preferred]) continue;
    for (let other = 0; other < seen; other++) {
      if (clicks[other]) continue;
      const rho = reversals[pairIndex(Math.min(preferred, other), Math.max(preferred, other), n)];
      const decay = Math.exp(-Math.abs(shown[preferred] - shown[other]));
      const weight = (rho * decay) / (1 + decay) ** 2;
      gradient[preferred] += weight;
      gradient[other] -= weight;
    }
  }
  return gradient;
}

/** Carry a gradient of scores back to linear weights: a weighted sum of feature rows. */
export function weightedRows(features: Features, ranking: readonly number[], rowWeights: Float64Array): Float64Array {
  const { nFeatures, values } = features;
  const total = new Float64Array(nFeatures);
  ranking.forEach((document, i) => {
    for (let f = 0; f < nFeatures; f++) total[f] += rowWeights[i] * values[document * nFeatures + f];
  });
  return total;
}

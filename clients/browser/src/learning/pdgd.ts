// PDGD: learn from clicks by pairwise preferences, freed of the bias of the ranking that was shown.
//
// Oosterhuis and de Rijke, "Differentiable Unbiased Online Learning to Rank" (CIKM 2018), as used by FPDGD (Wang et al.,
// ICTIR 2021, Section 3.1, Algorithm 1). foltr/learning/pdgd.py is the same and says more.

import { DataError } from "../errors.js";
import type { Features } from "./linear.js";
import { score } from "./linear.js";

// exp of a larger number overflows; a weight of exp(-700) is zero for every purpose here.
const LARGEST_EXPONENT = 700;

/** A list as it was shown, and its clicks by position. */
export interface Shown {
  readonly ranking: readonly number[];
  readonly clicks: readonly boolean[];
  /** (documents,) the scores it was drawn by. */
  readonly drawnBy: ArrayLike<number>;
}

/** Return the linear ranker's weights after one interaction: w + learning_rate * gradient (FPDGD, Algorithm 1, line 10). */
export function pdgdStep(
  weights: Float64Array<ArrayBuffer>,
  features: Features,
  shown: Shown,
  learningRate: number,
): Float64Array<ArrayBuffer> {
  const gradient = weightedRows(features, shown.ranking, scoreGradient(score(weights, features), shown));
  return weights.map((weight, i) => weight + learningRate * gradient[i]);
}

/**
 * Return the PDGD gradient with respect to the scores of the shown documents, (k,) in the order shown.
 *
 * Every clicked document is preferred over every unclicked one that the user surely saw: those above the last click and
 * the first one after it. A preference of document p over q adds rho * sigma'(s_p - s_q) to the gradient of p and takes
 * it from q's (FPDGD, Eq. 5), where sigma' is the slope of the logistic function.
 */
export function scoreGradient(scores: ArrayLike<number>, shown: Shown): Float64Array {
  const { ranking, clicks } = shown;
  if (clicks.length !== ranking.length) throw new DataError("clicks must have one entry for each document shown");
  const [drawn, logDenominators] = plackettLuceDenominators(shown.drawnBy, ranking);
  const gradient = new Float64Array(ranking.length);
  const lastClick = clicks.lastIndexOf(true);
  const seen = Math.min(lastClick + 2, ranking.length);
  for (let preferred = 0; preferred <= lastClick; preferred++) {
    if (!clicks[preferred]) continue;
    for (let other = 0; other < seen; other++) {
      if (clicks[other]) continue;
      const rho = reversalWeight(drawn, logDenominators, Math.min(preferred, other), Math.max(preferred, other));
      const decay = Math.exp(-Math.abs(scores[ranking[preferred]] - scores[ranking[other]]));
      const weight = (rho * decay) / (1 + decay) ** 2;
      gradient[preferred] += weight;
      gradient[other] -= weight;
    }
  }
  if (!gradient.every(Number.isFinite)) throw new DataError("scores must be finite numbers to learn from");
  return gradient;
}

/** Return the shown documents' scores, and log denominators: entry i covers position i and below, and what was not shown. */
export function plackettLuceDenominators(
  scores: ArrayLike<number>,
  ranking: readonly number[],
): [Float64Array, Float64Array] {
  const notShown = Float64Array.from(scores);
  const shownScores = new Float64Array(ranking.length);
  ranking.forEach((document, i) => {
    if (!(document in notShown)) throw new DataError("a shown document is not among the candidates");
    if (!Number.isFinite(notShown[document])) throw new DataError("a document is shown twice, or has no finite score");
    shownScores[i] = notShown[document];
    notShown[document] = -Infinity;
  });
  const logDenominators = new Float64Array(ranking.length + 1).fill(-Infinity);
  if (ranking.length < scores.length) {
    const largest = notShown.reduce((a, b) => Math.max(a, b), -Infinity);
    logDenominators[ranking.length] = largest + Math.log(notShown.reduce((sum, s) => sum + Math.exp(s - largest), 0));
  }
  for (let i = ranking.length - 1; i >= 0; i--) logDenominators[i] = logAddExp(logDenominators[i + 1], shownScores[i]);
  return [shownScores, logDenominators];
}

/** Return rho = P(R*) / (P(R) + P(R*)) for the shown ranking R, and R* with two positions swapped (FPDGD, Eq. 6). */
export function reversalWeight(
  shownScores: Float64Array,
  logDenominators: Float64Array,
  upper: number,
  lower: number,
): number {
  let swapped = logAddExp(logDenominators[lower + 1], shownScores[upper]);
  let logOdds = swapped - logDenominators[lower];
  for (let i = lower - 1; i > upper; i--) {
    swapped = logAddExp(swapped, shownScores[i]);
    logOdds += swapped - logDenominators[i];
  }
  return 1 / (1 + Math.exp(Math.min(logOdds, LARGEST_EXPONENT)));
}

/** Carry a gradient of the shown scores back to linear weights: a weighted sum of feature rows. */
function weightedRows(features: Features, ranking: readonly number[], rowWeights: Float64Array): Float64Array {
  const { nFeatures, values } = features;
  const total = new Float64Array(nFeatures);
  ranking.forEach((document, i) => {
    for (let f = 0; f < nFeatures; f++) total[f] += rowWeights[i] * values[document * nFeatures + f];
  });
  return total;
}

function logAddExp(left: number, right: number): number {
  return left > right ? left + Math.log1p(Math.exp(right - left)) : right + Math.log1p(Math.exp(left - right));
}

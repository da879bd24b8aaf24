// The linear ranker: scores, the ranking by score, and a ranking drawn from the scores.

import { DataError } from "../errors.js";

/** The candidates' features, row by row as float32. Scoring, storing and learning use the same numbers. */
export interface Features {
  readonly nDocuments: number;
  readonly nFeatures: number;
  readonly values: Float32Array<ArrayBuffer>;
}

/** Return (documents,) scores w . x, as float32; the weights are rounded to the features' type first. */
export function score(weights: ArrayLike<number>, features: Features): Float32Array<ArrayBuffer> {
  const { nDocuments, nFeatures, values } = features;
  const rounded = Float32Array.from(weights);
  const scores = new Float32Array(nDocuments);
  for (let d = 0; d < nDocuments; d++) {
    let total = 0;
    for (let f = 0; f < nFeatures; f++) total += rounded[f] * values[d * nFeatures + f];
    scores[d] = total;
  }
  return scores;
}

/** Return the k best documents by descending score; equal scores keep the document order. */
export function rankByScore(scores: ArrayLike<number>, k: number): number[] {
  const order = Array.from({ length: scores.length }, (_, i) => i);
  for (const i of order) {
    if (!(scores[i] > -Infinity)) throw new DataError("scores must be finite numbers to rank by");
  }
  return order.sort((a, b) => scores[b] - scores[a] || a - b).slice(0, k);
}

/** Draw a ranking without replacement from the Plackett-Luce model of the scores: the k largest under Gumbel noise. */
export function samplePlackettLuce(scores: ArrayLike<number>, k: number, random: () => number): number[] {
  const keys = Float64Array.from(scores, (each) => each - Math.log(-Math.log(1 - random())));
  return rankByScore(keys, k);
}

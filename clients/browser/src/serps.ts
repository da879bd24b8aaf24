// A result list is made of features, and clicks on it are checked. No I/O.

import { DataError } from "./errors.js";
import { drawList, type Exploration, type Random } from "./learning/display.js";
import { score, type Features } from "./learning/linear.js";

/** The candidates' features: rows of numbers, or all of them row by row with their number. */
export type FeaturesLike = readonly ArrayLike<number>[] | Features;

/** A result list as shown. */
export interface Serp {
  readonly serpId: string;
  /** Indices into the candidates, best first. */
  readonly ranking: readonly number[];
  /** Whose order it was drawn around. */
  readonly source: "base" | "model" | "interleaved";
  /** The global model behind it; null before the first one arrived. */
  readonly modelVersion: number | null;
  readonly features: Features;
  readonly reversals: Float64Array<ArrayBuffer>;
  readonly logProbability: number;
}

/** What lists are made by. */
export interface RankingState {
  /** (features,) of a linear ranker, with what this device has learned; null before there is a model. */
  readonly weights: Float64Array<ArrayBuffer> | null;
  readonly modelVersion: number | null;
  /** The number of documents the federation asks to show. */
  readonly serpLength: number;
  readonly exploration: Exploration;
  /** The federation has erased this client: documents are shown in the order given, and nothing is kept. */
  readonly isForgotten: boolean;
}

export const DEFAULT_SERP_LENGTH = 10;

/**
 * Make a list of k of the candidates, or of all if they are fewer.
 *
 * Without a model, or where it is of another number of features, the application's own order is shown.
 *
 * @param base (documents,) the application's own scores, higher is better; null: the rows are given in its order.
 */
export function makeSerp(
  features: FeaturesLike,
  k: number,
  base: ArrayLike<number> | null,
  state: RankingState,
  exploration: Exploration,
  random: Random = Math.random,
): Serp {
  const matrix = asFeatures(features);
  if (!(k >= 1)) throw new DataError(`k: ${k} documents to show; at least 1 is needed`);
  const ofBase = base ?? Float64Array.from({ length: matrix.nDocuments }, (_, i) => -i);
  if (ofBase.length !== matrix.nDocuments || !Array.from(ofBase).every(Number.isFinite)) {
    throw new DataError(`base: expected ${matrix.nDocuments} finite numbers, one for each candidate`);
  }
  const fits = !state.isForgotten && state.weights !== null && state.weights.length === matrix.nFeatures;
  const scores = fits ? finite(score(state.weights!, matrix)) : ofBase;
  const drawn = drawList(state.isForgotten ? { kind: "none" } : exploration, scores, ofBase, k, random);
  const source = !fits ? "base" : exploration.kind === "interleaving" ? "interleaved" : "model";
  const modelVersion = fits ? state.modelVersion : null;
  const { ranking, reversals, logProbability } = drawn;
  return { serpId: crypto.randomUUID(), ranking, source, modelVersion, features: matrix, reversals, logProbability };
}

/** Return, for each position shown, whether it was clicked; DataError for a position outside the list. */
export function clicksOn(serp: Serp, clicked: readonly number[]): boolean[] {
  const clicks = serp.ranking.map(() => false);
  for (const position of clicked) {
    if (!(position in clicks))
      throw new DataError(`clicked: position ${position} is outside the list (0 to ${clicks.length - 1})`);
    clicks[position] = true;
  }
  return clicks;
}

/** Return a float32 copy: the application may reuse its arrays before the clicks come. */
function asFeatures(features: FeaturesLike): Features {
  const isMatrix = !Array.isArray(features);
  const rows = isMatrix ? [] : (features as readonly ArrayLike<number>[]);
  const { nDocuments, nFeatures } = isMatrix
    ? (features as Features)
    : { nDocuments: rows.length, nFeatures: rows[0]?.length ?? 0 };
  const values = new Float32Array(nDocuments * nFeatures);
  if (isMatrix) values.set((features as Features).values);
  rows.forEach((row, d) => {
    if (row.length !== nFeatures)
      throw new DataError(`features: row ${d} has ${row.length} numbers; the first has ${nFeatures}`);
    values.set(row, d * nFeatures);
  });
  if (!values.every(Number.isFinite)) throw new DataError("features: expected finite numbers that fit float32");
  return { nDocuments, nFeatures, values };
}

function finite(scores: Float32Array<ArrayBuffer>): Float32Array<ArrayBuffer> {
  if (!scores.every(Number.isFinite))
    throw new DataError("features: too large, the scores are not finite; normalise them to [0, 1]");
  return scores;
}

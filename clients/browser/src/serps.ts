// A result list is made of features, and clicks on it are checked. No I/O.

import { DataError } from "./errors.js";
import { drawList, type Exploration, type Random } from "./learning/display.js";
import type { Gate, Source } from "./learning/gate.js";
import { rankByScore, score, type Features } from "./learning/linear.js";

/** The candidates' features: rows of numbers, or all of them row by row with their number. */
export type FeaturesLike = readonly ArrayLike<number>[] | Features;

/** A result list as shown. */
export interface Serp {
  readonly serpId: string;
  /** Indices into the candidates, best first. */
  readonly ranking: readonly number[];
  /** Whose order it was drawn around. */
  readonly source: Source;
  /** Of an interleaved list, where there is a gate to judge by it: see `interleavingCredits`. */
  readonly toCredit: readonly number[] | undefined;
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
  /** The federation's features are others than the application's: its order is shown, and nothing is explored. */
  readonly hasOtherFeatures: boolean;
  /** What decides whether lists come from the model; null before it has judged by any. */
  readonly gate: Gate | null;
}

/** The module of the gate, which is loaded where there is one. */
export type Gating = typeof import("./learning/gate.js");

export const DEFAULT_SERP_LENGTH = 10;
export const NONE: Exploration = { kind: "none" };

/**
 * Make a list of k of the candidates, or of all if they are fewer.
 *
 * Without a model, or where it cannot rank these candidates, the application's own order is shown; so it is where the
 * gate does not let the model's lists through. Where exploration is interleaving, every list of the model is.
 *
 * @param base (documents,) the application's own scores, higher is better; null: the rows are given in its order.
 * @param exploration null as the federation says.
 * @param gating null lets every model through.
 */
export function makeSerp(
  features: FeaturesLike,
  k: number,
  base: ArrayLike<number> | null,
  state: RankingState,
  exploration: Exploration | null,
  gating: Gating | null = null,
  random: Random = Math.random,
): Serp {
  const matrix = asFeatures(features);
  if (!(k >= 1)) throw new DataError(`k: ${k} documents to show; at least 1 is needed`);
  const ofBase = base ?? Float64Array.from({ length: matrix.nDocuments }, (_, i) => -i);
  if (ofBase.length !== matrix.nDocuments || !Array.from(ofBase).every(Number.isFinite)) {
    throw new DataError(`base: expected ${matrix.nDocuments} finite numbers, one for each candidate`);
  }
  // Of equal scores the application's order decides.
  const order = rankByScore(ofBase, matrix.nDocuments);
  const byModel = modelScores(matrix, state);
  if (state.isForgotten || state.hasOtherFeatures) exploration = NONE;
  const source = byModel === null ? "base" : (gating?.sourceBy(state, exploration?.kind !== "none", random) ?? "model");
  const inOrder = (numbers: ArrayLike<number>) => order.map((document) => numbers[document]);
  const scores = inOrder(source === "base" ? ofBase : byModel!);
  const advice = byModel && (source === "model" || gating?.takesAdvice(state)) ? inOrder(byModel) : null;
  const places = order.map((_, place) => -place);
  const drawnBy = drawnFor(source, exploration ?? state.exploration);
  const { ranking, byModel: turns, ...drawn } = drawList(drawnBy, scores, places, k, random, advice);
  return {
    ...drawn,
    serpId: crypto.randomUUID(),
    ranking: ranking.map((place) => order[place]),
    source: turns ? "interleaved" : source,
    toCredit: turns && gating?.interleavingCredits(turns, [...order.keys()], rankByScore(scores, k)),
    modelVersion: byModel === null ? null : state.modelVersion,
    features: matrix,
  };
}

/** Return the model's scores; null where there is no model, or one that cannot rank these candidates. */
function modelScores(features: Features, { weights, isForgotten }: RankingState): Float32Array | null {
  if (isForgotten || weights === null || weights.length !== features.nFeatures) return null;
  const scores = score(weights, features);
  return scores.every(Number.isFinite) ? scores : null;
}

/**
 * Return how a list from a source is drawn.
 *
 * Around the base, sampling of scores as they are would be of another application's scale each time, and interleaving
 * has one list.
 */
function drawnFor(source: Source, exploration: Exploration): Exploration {
  if (source === "interleaved") return { kind: "interleaving" };
  if (source === "model") return exploration;
  if (exploration.kind === "interleaving") return NONE;
  return exploration.kind === "sampling"
    ? { kind: "sampling", temperature: exploration.temperature ?? 1 }
    : exploration;
}

/** Return, for each position shown, whether it was clicked; DataError for what is no position of the list. */
export function clicksOn(serp: Serp, clicked: readonly number[]): boolean[] {
  const clicks = serp.ranking.map(() => false);
  // It may be from JSON, where nobody has checked its type.
  if (!Array.isArray(clicked) || !clicked.every((one) => Number.isInteger(one) && one in clicks))
    throw new DataError(`clicked: ${clicked}: expected a list of positions (0 to ${clicks.length - 1})`);
  for (const position of clicked) clicks[position] = true;
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

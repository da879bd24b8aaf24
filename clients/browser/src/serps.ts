// Makes result lists from features, and checks clicks on them. No I/O.

import { DataError } from "./errors.js";
import { drawList, type Exploration, type Random } from "./learning/display.js";
import type { Credits, Gate, Source } from "./learning/gate.js";
import { rankByScore, score, type Features } from "./learning/linear.js";

/** The candidates' features: rows of numbers, or one array of all rows with their number. */
export type FeaturesLike = readonly ArrayLike<number>[] | Features;

/** A result list as shown. */
export interface Serp {
  readonly serpId: string;
  /** Indices into the candidates, best first. */
  readonly ranking: readonly number[];
  /** The order it was drawn around. */
  readonly source: Source;
  /** Of an interleaved list with a gate: see `interleavingCredits`. */
  readonly toCredit: readonly number[] | undefined;
  /** Of each shown document in the application's order, from 0; missing from lists of earlier versions. */
  readonly basePositions?: readonly number[];
  /** The global model behind it; null before the first one arrived. */
  readonly modelVersion: number | null;
  readonly features: Features;
  readonly reversals: Float64Array<ArrayBuffer>;
  readonly logProbability: number;
}

/** The state that lists are made from. */
export interface RankingState {
  /** (features,) of a linear ranker, with what this device has learned; null before the first model. */
  readonly weights: Float64Array<ArrayBuffer> | null;
  readonly modelVersion: number | null;
  /** The number of documents the federation asks to show. */
  readonly serpLength: number;
  readonly exploration: Exploration;
  /** The federation has erased this client: documents are shown in the given order, and nothing is kept. */
  readonly isForgotten: boolean;
  /** The federation's features differ from the application's: its order is shown, without exploration. */
  readonly hasOtherFeatures: boolean;
  /** Decides whether lists come from the model; null before any evidence. */
  readonly gate: Gate | null;
  /** What the lists of all users say; a gate opens by them once. */
  readonly shared?: Credits | null;
}

/** The gate's module, loaded only if a gate is used. */
export type Gating = typeof import("./learning/gate.js");

export const DEFAULT_SERP_LENGTH = 10;
export const NONE: Exploration = { kind: "none" };

/**
 * Make a list of k of the candidates, or of all if they are fewer.
 *
 * The application's own order is shown without a model, if the model cannot rank these candidates, or if the gate is
 * closed. With exploration by interleaving every list of the model is interleaved.
 *
 * @param base (documents,) the application's own scores, higher is better; null: the rows are given in its order.
 * @param exploration null: the federation's.
 * @param gating null admits every model.
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
  // Ties are broken by the application's order.
  const order = rankByScore(ofBase, matrix.nDocuments);
  const byModel = modelScores(matrix, state);
  if (state.isForgotten || state.hasOtherFeatures) exploration = NONE;
  const source = byModel === null ? "base" : (gating?.sourceBy(state, exploration?.kind !== "none", random) ?? "model");
  const inOrder = (numbers: ArrayLike<number>) => order.map((document) => numbers[document]);
  const scores = inOrder(source === "base" ? ofBase : byModel!);
  const places = order.map((_, place) => -place);
  const drawnBy = drawnFor(source, exploration ?? state.exploration);
  const { ranking, byModel: turns, ...drawn } = drawList(drawnBy, scores, places, k, random);
  return {
    ...drawn,
    serpId: crypto.randomUUID(),
    ranking: ranking.map((place) => order[place]),
    source: turns ? "interleaved" : source,
    toCredit: turns && gating?.interleavingCredits(turns, [...order.keys()], rankByScore(scores, k)),
    basePositions: ranking,
    modelVersion: byModel === null ? null : state.modelVersion,
    features: matrix,
  };
}

/** Return the model's scores. Null without a model that can rank these candidates. */
function modelScores(features: Features, { weights, isForgotten }: RankingState): Float32Array | null {
  if (isForgotten || weights === null || weights.length !== features.nFeatures) return null;
  const scores = score(weights, features);
  return scores.every(Number.isFinite) ? scores : null;
}

/**
 * Return how a list from a source is drawn.
 *
 * The base's scores have a scale that depends on the application, so they are not sampled; and it has only one list, so
 * it is not interleaved.
 */
function drawnFor(source: Source, exploration: Exploration): Exploration {
  if (source === "interleaved") return { kind: "interleaving" };
  if (source === "model") return exploration;
  if (exploration.kind === "interleaving") return NONE;
  return exploration.kind === "sampling"
    ? { kind: "sampling", temperature: exploration.temperature ?? 1 }
    : exploration;
}

/** Return for each position shown whether it was clicked. DataError for a position outside the list. */
export function clicksOn(serp: Serp, clicked: readonly number[]): boolean[] {
  const clicks = serp.ranking.map(() => false);
  // It may be from JSON, with unchecked types.
  if (!Array.isArray(clicked) || !clicked.every((one) => Number.isInteger(one) && one in clicks))
    throw new DataError(`clicked: ${clicked}: expected a list of positions (0 to ${clicks.length - 1})`);
  for (const position of clicked) clicks[position] = true;
  return clicks;
}

/** Return a float32 copy, since the application may reuse its arrays before clicks come. */
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

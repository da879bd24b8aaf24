// How a list is drawn for display, and with which probability, which learning from its clicks needs.
//
// core/learning/display.py is the same with more explanation. Here the reversals are computed from the probability of
// each list, which is slower and shorter than Python's kernels.

import { DataError } from "../errors.js";
import { rankByScore, samplePlackettLuce } from "./linear.js";

/** Pairs are taken from this many first positions. */
export const MOST_COMPARED = 50;
// exp of a larger number overflows; a weight of exp(-700) is zero for every purpose here.
const LARGEST_EXPONENT = 700;

/** A number from 0 up to but not including 1. */
export type Random = () => number;

/** A list drawn for display. */
export interface Shown {
  readonly ranking: number[];
  /** The natural logarithm of P(R), R being this ranking. */
  readonly logProbability: number;
  /** For each pair of positions i < j, row by row over i: P(R*) / (P(R) + P(R*)), R* being R with i and j exchanged. */
  readonly reversals: Float64Array<ArrayBuffer>;
  /** In an interleaved list: whether the document at each position was placed by the model. */
  readonly byModel?: readonly boolean[];
}

/** How lists vary around an order, as announced by the federation or requested in one call. */
export type Exploration =
  | { readonly kind: "none" }
  | { readonly kind: "share"; readonly share: number; readonly temperature: number }
  | { readonly kind: "swaps"; readonly probability: number }
  | { readonly kind: "interleaving" }
  | { readonly kind: "sampling"; readonly temperature: number | null };

/** The default exploration: lists hardly differ from the best one known. */
export const SAFE: Exploration = { kind: "swaps", probability: 0.004 };

/**
 * Draw a list of k.
 *
 * @param scores of the order to show, (documents,) finite: the model's, or the base's.
 * @param base (documents,) the application's own scores, for interleaving.
 */
export function drawList(
  exploration: Exploration,
  scores: ArrayLike<number>,
  base: ArrayLike<number>,
  k: number,
  random: Random,
): Shown {
  const best = rankByScore(scores, k);
  if (exploration.kind === "none") return certain(best);
  const drawn = drawRanking(exploration, scores, best, base, random);
  return { ...drawn, ...withReversals(drawn.ranking, logProbabilityOf(exploration, scores, base, k)) };
}

/** Return log P of each list that an exploration may show of these scores. */
export function logProbabilityOf(
  exploration: Exclude<Exploration, { kind: "none" }>,
  scores: ArrayLike<number>,
  base: ArrayLike<number>,
  k: number,
): LogProbability {
  const best = rankByScore(scores, k);
  if (exploration.kind === "swaps") return neighbourSwaps(best, exchanges(best, exploration.probability));
  if (exploration.kind === "interleaving") return teamDraft(best, rankByScore(base, k));
  const sampled = plackettLuce(tempered(scores, exploration.temperature));
  return exploration.kind === "share" ? bestOrSampled(best, sampled, exploration.share) : sampled;
}

/** Return the index in `Shown.reversals` of n positions for a pair of two, upper < lower. */
export function pairIndex(upper: number, lower: number, n: number): number {
  return (upper * (2 * n - upper - 1)) / 2 + lower - upper - 1;
}

/** Return scores with mean 0 and standard deviation 1. If all are equal, the given order replaces them. */
export function standardised(scores: ArrayLike<number>): Float64Array<ArrayBuffer> {
  const exact = Float64Array.from(scores);
  const mean = exact.reduce((sum, each) => sum + each, 0) / exact.length;
  const centred = exact.map((each) => each - mean);
  const deviation = Math.sqrt(centred.reduce((sum, each) => sum + each * each, 0) / exact.length);
  if (deviation !== 0) return centred.map((each) => each / deviation);
  return exact.length > 1 ? standardised(exact.map((_, i) => -i)) : centred;
}

/** Return log P of a ranking. */
type LogProbability = (ranking: readonly number[]) => number;

export function withReversals(ranking: number[], logP: LogProbability): Shown {
  const n = Math.min(ranking.length, MOST_COMPARED);
  const logProbability = logP(ranking);
  const reversals = new Float64Array((n * (n - 1)) / 2);
  for (let upper = 0; upper < n; upper++) {
    for (let lower = upper + 1; lower < n; lower++) {
      const exchanged = ranking.slice();
      [exchanged[upper], exchanged[lower]] = [ranking[lower], ranking[upper]];
      const logOdds = logProbability - logP(exchanged);
      reversals[pairIndex(upper, lower, n)] = 1 / (1 + Math.exp(Math.min(logOdds, LARGEST_EXPONENT)));
    }
  }
  return { ranking, logProbability, reversals };
}

/** Return log P of lists by the Plackett-Luce model of the scores (FPDGD, Eq. 2). */
function plackettLuce(scores: ArrayLike<number>): LogProbability {
  return (ranking) => {
    const shown = new Set(ranking);
    let logDenominator = -Infinity;
    for (let d = 0; d < scores.length; d++) if (!shown.has(d)) logDenominator = logAddExp(logDenominator, scores[d]);
    let logProbability = 0;
    for (let i = ranking.length - 1; i >= 0; i--) {
      const score = scores[ranking[i]];
      if (!Number.isFinite(score)) throw new DataError("scores must be finite numbers to learn from");
      logDenominator = logAddExp(logDenominator, score);
      logProbability += score - logDenominator;
    }
    return logProbability;
  };
}

/** Return the probability of exchanging each position with the one below. See Python's `exchange_probabilities`. */
function exchanges(best: readonly number[], first: number): number[] {
  return best.slice(1).map((_, i) => Math.min(0.5, (first * (i + 1) * (i + 2)) / 2));
}

/** Return log P of lists that are `best` with neighbours exchanged, in one of both pairings of positions. */
function neighbourSwaps(best: readonly number[], likely: readonly number[]): LogProbability {
  return (ranking) => {
    let logProbability = -Infinity;
    for (const first of [0, 1]) {
      let ofPairing = Math.log(0.5);
      for (let i = 0; i < best.length; i++) {
        const isPaired = i >= first && i + 1 < best.length && (i - first) % 2 === 0;
        if (isPaired && ranking[i] === best[i + 1] && ranking[i + 1] === best[i]) {
          ofPairing += Math.log(likely[i]);
          i++;
        } else if (isPaired && ranking[i] === best[i] && ranking[i + 1] === best[i + 1]) {
          ofPairing += Math.log1p(-likely[i]);
          i++;
        } else if (isPaired || ranking[i] !== best[i]) {
          ofPairing = -Infinity;
        }
      }
      if (ofPairing > -Infinity) logProbability = logAddExp(logProbability, ofPairing);
    }
    return logProbability;
  };
}

/** Return log P of lists made from two by team draft, summed over its coins, one for two positions. */
function teamDraft(model: readonly number[], base: readonly number[]): LogProbability {
  return (ranking) => {
    const taken = new Set<number>();
    const bestLeft = (order: readonly number[], except = -1) => order.find((d) => !taken.has(d) && d !== except);
    let logProbability = 0;
    for (let i = 0; i < ranking.length; i += 2) {
      const nSides = [
        [model, base],
        [base, model],
      ].filter(([first, second]) => {
        if (bestLeft(first) !== ranking[i]) return false;
        return i + 1 >= ranking.length || bestLeft(second, ranking[i]) === ranking[i + 1];
      }).length;
      if (nSides === 0) return -Infinity;
      logProbability += Math.log(nSides / 2);
      ranking.slice(i, i + 2).forEach((d) => taken.add(d));
    }
    return logProbability;
  };
}

/** Return log P of lists that are the best one, or with probability `share` a sample. */
function bestOrSampled(best: readonly number[], sampledBy: LogProbability, share: number): LogProbability {
  return (ranking) => {
    const sampled = sampledBy(ranking) + Math.log(share);
    return share < 1 && ranking.every((d, i) => d === best[i]) ? logAddExp(Math.log1p(-share), sampled) : sampled;
  };
}

function tempered(scores: ArrayLike<number>, temperature: number | null): ArrayLike<number> {
  return temperature === null ? scores : standardised(scores).map((each) => each / temperature);
}

function certain(ranking: number[]): Shown {
  const n = Math.min(ranking.length, MOST_COMPARED);
  return { ranking, logProbability: 0, reversals: new Float64Array((n * (n - 1)) / 2) };
}

function drawRanking(
  exploration: Exclude<Exploration, { kind: "none" }>,
  scores: ArrayLike<number>,
  best: number[],
  base: ArrayLike<number>,
  random: Random,
): Pick<Shown, "ranking" | "byModel"> {
  if (exploration.kind === "interleaving") return interleaved(best, rankByScore(base, best.length), random);
  if (exploration.kind === "swaps") {
    return { ranking: swapped(best, exchanges(best, exploration.probability), random) };
  }
  if (exploration.kind === "share" && random() >= exploration.share) return { ranking: best };
  return { ranking: samplePlackettLuce(tempered(scores, exploration.temperature), best.length, random) };
}

function swapped(best: readonly number[], likely: readonly number[], random: Random): number[] {
  const ranking = best.slice();
  for (let i = random() < 0.5 ? 0 : 1; i + 1 < best.length; i += 2) {
    if (random() < likely[i]) [ranking[i], ranking[i + 1]] = [best[i + 1], best[i]];
  }
  return ranking;
}

function interleaved(model: readonly number[], base: readonly number[], random: Random) {
  const ranking: number[] = [];
  const byModel: boolean[] = [];
  for (let i = 0; i < model.length; i += 2) {
    const sides = random() < 0.5 ? [model, base] : [base, model];
    for (const order of sides.slice(0, model.length - i)) {
      ranking.push(order.find((d) => !ranking.includes(d))!);
      byModel.push(order === model);
    }
  }
  return { ranking, byModel };
}

function logAddExp(left: number, right: number): number {
  if (right === -Infinity) return left;
  return left > right ? left + Math.log1p(Math.exp(right - left)) : right + Math.log1p(Math.exp(left - right));
}

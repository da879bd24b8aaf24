// A gate keeps the application's order until the user's clicks show that the model's lists are better.
//
// core/learning/gate.py is the same, with reasons. This module is loaded separately, so that a page without a gate does
// not load it. A gate is plain data that is stored and sent to other tabs unchanged.

import { creditOf, firstClickReward } from "./rewards.js";

/** Weight of a credit after the next one while the gate is open: a hundred interleaved lists are remembered. */
export const CREDIT_DECAY = 0.99;
/** Weight of a list of the base after the next of the base. */
export const BASE_DECAY = 0.99;
/** Weight of a list of the model after the next of the model: the newest fourteen count, and so the newest models. */
export const MODEL_DECAY = 0.93;
/** The effective number of credits needed to say something of them. */
export const FEWEST_CREDITS = 10;
/** The gate opens once a stake on the model has grown this many times, by the own credits or by those of all users. */
export const OPENS_AT = 100;
/** The stakes of a bet, in equal parts. */
const STAKES = [0.15, 0.3, 0.6, 1.2];
/** It closes if they are below 0 by this many standard errors. */
export const CLOSES_BELOW = -2;
/** It closes if the model's lists perform worse than the base's by this many standard errors of the difference. */
export const WORSE_BY = 2;
/** The number of lists of each needed for this comparison. */
export const FEWEST_LISTS = 6;
/** Share of interleaved lists before there is evidence for the model, and for checking it while the gate is open. */
export const SHARE_WARY = 0.05;
/** Their share while the gate is closed and the credits say that the model is worse, or nothing beside a good base. */
export const SHARE_DISMISSED = 0.01;
/** They say that it is worse if they are below 0 by this many standard errors. */
export const DISMISSED_BELOW = -2;
/** A base is good if its lists have more reward on average, with `FEWEST_LISTS` of them. */
export const GOOD_BASE_ABOVE = 0.65;
/** Their share while the gate is closed and the model looks no worse. */
export const SHARE_PROMISING = 0.5;
/** Their share while the gate is closed and the credits are above 0 by a standard error. */
export const SHARE_LIKELY = 1;
/** The effective number of credits needed for this, */
export const FEWEST_PROMISING = 4;
/** and beside a good base. */
export const FEWEST_PROMISING_OF_GOOD = 8;
/** By those of all users only with this many lists of the base, in effect, */
export const FEWEST_BASE_LISTS = 40;
/** and unless the own credits are below 0 by this many standard errors. */
export const OBJECTS_BELOW = -1;
/** All users' credits say that the model looks no worse, or better, from this many standard errors on. */
export const SHARED_PROMISING_FROM = -0.5;
export const SHARED_LIKELY_ABOVE = 0.5;
const LARGEST_EXPONENT = 700;
const LEAST_VARIANCE = 0.02; // of a reciprocal rank: a few equal ones are no certainty

/** The source of a list's order. */
export type Source = "base" | "model" | "interleaved";

/** A mean of numbers with decaying weights: the i-th newest weighs `decay ** i`. */
export interface FadingMean {
  /** Sums of the weights, and of their squares. */
  readonly weight: number;
  readonly weightSquares: number;
  /** Weighted sums of the numbers, and of their squares. */
  readonly total: number;
  readonly squares: number;
}

/** Credits of all users' interleaved lists: their sum, and the variance of that if the model is no better. */
export interface Credits {
  readonly total: number;
  readonly squares: number;
}

/** Results of one source's lists, for information; without decay. */
export interface ShownCount {
  /** Recorded lists. */
  readonly lists: number;
  /** Those of them with a click. */
  readonly clicked: number;
  /** Sum over lists of 1 / (1-based position of the first click); 0 for a list without clicks. */
  readonly reciprocalRanks: number;
}

/** A gate with all its evidence; `withList` makes the next one. */
export interface Gate {
  /** Lists come from the model. */
  readonly isOpen: boolean;
  /** From decided interleaved lists: 1 for the model, -1 for the base. */
  readonly credits: FadingMean;
  /** Reciprocal ranks of the first click on each one's lists; the model's since the gate opened. */
  readonly ofBase: FadingMean;
  readonly ofModel: FadingMean;
  /** By source, over all lists. */
  readonly counts: Readonly<Record<Source, ShownCount>>;
}

const NO_NUMBERS: FadingMean = { weight: 0, weightSquares: 0, total: 0, squares: 0 };
const NO_LISTS: ShownCount = { lists: 0, clicked: 0, reciprocalRanks: 0 };

/** The gate of a device that has recorded nothing. */
export const NEW_GATE: Gate = {
  isOpen: false,
  credits: NO_NUMBERS,
  ofBase: NO_NUMBERS,
  ofModel: NO_NUMBERS,
  counts: { base: NO_LISTS, model: NO_LISTS, interleaved: NO_LISTS },
};

/**
 * Return the share of the next lists to interleave.
 *
 * @param shared credits of all users.
 */
export function shareInterleaved(gate: Gate, shared: Credits | null = null): number {
  if (gate.isOpen) return SHARE_WARY;
  const own = shareByOwn(gate);
  if (isDismissed(gate) || wasOpen(gate) || !shared?.squares) return own;
  const score = shared.total / Math.sqrt(shared.squares);
  if (score < SHARED_PROMISING_FROM) return own;
  const isLikely = score > SHARED_LIKELY_ABOVE;
  if (gate.credits.total < 0 && !isLikely) return own;
  const share = Math.max(own, isLikely ? SHARE_LIKELY : SHARE_PROMISING);
  // If all were interleaved there would be no lists of the base, without which the gate does not open.
  return gate.ofBase.weight < FEWEST_BASE_LISTS ? Math.min(share, SHARE_PROMISING) : share;
}

function shareByOwn(gate: Gate): number {
  if (areFewCredits(gate) || gate.credits.total < 0)
    return isDismissed(gate) || hasGoodBase(gate) ? SHARE_DISMISSED : SHARE_WARY;
  return creditScore(gate) > 1 ? SHARE_LIKELY : SHARE_PROMISING;
}

function areFewCredits(gate: Gate): boolean {
  const fewest = hasGoodBase(gate) ? FEWEST_PROMISING_OF_GOOD : FEWEST_PROMISING;
  // Without credits it is no number.
  return !(shareOfVariance(gate.credits) * fewest <= 1);
}

function isDismissed(gate: Gate): boolean {
  return !areFewCredits(gate) && creditScore(gate) < DISMISSED_BELOW;
}

function hasGoodBase({ ofBase }: Gate): boolean {
  return ofBase.weight >= FEWEST_LISTS && ofBase.total / ofBase.weight > GOOD_BASE_ABOVE;
}

function wasOpen({ counts }: Gate): boolean {
  return counts.model.lists > 0;
}

/** Return by how many standard errors the credits are above 0, the mean for equally good orders. */
export function creditScore({ credits }: Gate): number {
  // Each credit is 1 or -1, and 0 on average if both are equally good.
  return credits.weight > 0 ? credits.total / Math.sqrt(credits.weightSquares) : 0;
}

/** Return how many times a stake on the model has grown by the credits. If it is no better, that is chance. */
export function growth({ credits }: Gate): number {
  return growthBy({ total: credits.total, squares: credits.weightSquares });
}

function growthBy({ total, squares }: Credits): number {
  const gains = STAKES.map((stake) => stake * total - (stake ** 2 * squares) / 2);
  return gains.reduce((sum, gain) => sum + Math.exp(Math.min(gain, LARGEST_EXPONENT)), 0) / STAKES.length;
}

/** Return by how many standard errors the model's lists perform better than the base's; 0 with too few lists. */
export function modelScore(gate: Gate): number {
  const rewards = rewardDifference(gate);
  return rewards === null ? 0 : rewards.difference / rewards.error;
}

/** Return how much better the model's newest lists perform, and the standard error; null with too few lists. */
export function rewardDifference({ ofBase, ofModel }: Gate): { difference: number; error: number } | null {
  if (Math.min(ofBase.weight, ofModel.weight) < FEWEST_LISTS) return null;
  const base = Math.max(varianceOf(ofBase), LEAST_VARIANCE);
  const model = Math.max(varianceOf(ofModel), base); // the model's few values may be equal by chance
  const error = Math.sqrt(base * shareOfVariance(ofBase) + model * shareOfVariance(ofModel));
  return { difference: meanOf(ofModel) - meanOf(ofBase), error };
}

/**
 * Return the source of the next list, given a model for it.
 *
 * @param mayInterleave false if the application asked for the best list only; then no number is drawn.
 */
export function sourceOfNext(
  gate: Gate,
  mayInterleave: boolean,
  random: () => number,
  shared: Credits | null = null,
): Source {
  if (mayInterleave && random() < shareInterleaved(gate, shared)) return "interleaved";
  return gate.isOpen ? "model" : "base";
}

/** What a gate judges a list by: its source, and of an interleaved one whose credit a click is. */
export interface JudgedList {
  readonly source: Source;
  /** See `interleavingCredits`. */
  readonly toCredit: readonly number[] | undefined;
}

/** Return the gate after a list, of which some clicks may have been recorded before. */
export function judgedBy(
  gate: Gate = NEW_GATE,
  list: JudgedList,
  clicks: readonly boolean[],
  before: { readonly clicks: readonly boolean[]; readonly nth: number | null } | null,
  shared: Credits | null = null,
): Gate {
  if (before === null || before.nth === null) return withList(gate, list, clicks, shared);
  return withMoreClicks(gate, list, before.clicks, clicks, gate.counts[list.source].lists - before.nth, shared);
}

/**
 * Return the gate after one more shown list.
 *
 * An interleaved list gives one credit, to the order whose document was clicked last: the more, the higher up.
 */
export function withList(
  gate: Gate,
  { source, toCredit }: JudgedList,
  clicks: readonly boolean[],
  shared: Credits | null = null,
): Gate {
  const reward = firstClickReward(clicks);
  const { lists, clicked, reciprocalRanks } = gate.counts[source];
  const counted = {
    lists: lists + 1,
    clicked: clicked + (reward > 0 ? 1 : 0),
    reciprocalRanks: reciprocalRanks + reward,
  };
  gate = { ...gate, counts: { ...gate.counts, [source]: counted } };
  if (source === "base") return openedIfBetter({ ...gate, ofBase: withNext(gate.ofBase, reward, BASE_DECAY) }, shared);
  if (source === "model") return afterListOfModel({ ...gate, ofModel: withNext(gate.ofModel, reward, MODEL_DECAY) });
  return withCredit(gate, toCredit, clicks, shared);
}

/**
 * Return the gate after more clicks on a list that `withList` has counted.
 *
 * The list's reward is corrected. A credit that it has given stays, because the clicks came in that order.
 *
 * @param nSince how many lists of its source were counted after it.
 */
export function withMoreClicks(
  gate: Gate,
  { source, toCredit }: JudgedList,
  before: readonly boolean[],
  now: readonly boolean[],
  nSince: number,
  shared: Credits | null = null,
): Gate {
  const [from, to] = [firstClickReward(before), firstClickReward(now)];
  const { lists, clicked, reciprocalRanks } = gate.counts[source];
  const nClicked = clicked + (to > 0 && from === 0 ? 1 : 0);
  // Rounding must not make it more than one for each clicked list.
  const counted = { lists, clicked: nClicked, reciprocalRanks: Math.min(reciprocalRanks + to - from, nClicked) };
  gate = { ...gate, counts: { ...gate.counts, [source]: counted } };
  if (source === "base") return { ...gate, ofBase: replacing(gate.ofBase, from, to, nSince, BASE_DECAY) };
  if (source === "model")
    return afterListOfModel({ ...gate, ofModel: replacing(gate.ofModel, from, to, nSince, MODEL_DECAY) });
  return creditOf(before, toCredit) ? gate : withCredit(gate, toCredit, now, shared);
}

interface Stored {
  readonly gate: Gate | null;
  readonly weights: Float64Array | null;
  readonly shared?: Credits | null;
}

/** Return the source of the next list from the stored state. A model of zeros is ignored. */
export function sourceBy({ gate, weights, shared }: Stored, mayInterleave: boolean, random: () => number): Source {
  return weights?.some(Boolean) ? sourceOfNext(gate ?? NEW_GATE, mayInterleave, random, shared) : "base";
}

/**
 * Return which order gets the credit for a click at each position of an interleaved list: 1 the model, -1 the base.
 *
 * 0 for the documents that both orders begin with, in the same places: a click there shows no preference.
 *
 * @param byModel whether the document at each position was placed by the model.
 * @param base at least as many of the best of both orders.
 */
export function interleavingCredits(
  byModel: readonly boolean[],
  base: readonly number[],
  model: readonly number[],
): number[] {
  const first = byModel.findIndex((_, i) => base[i] !== model[i]);
  return byModel.map((isModels, i) => (first < 0 || i < first ? 0 : isModels ? 1 : -1));
}

function withCredit(
  gate: Gate,
  toCredit: readonly number[] | undefined,
  clicks: readonly boolean[],
  shared: Credits | null,
): Gate {
  const credit = creditOf(clicks, toCredit);
  // A stake must not forget its losses.
  const decay = gate.isOpen ? CREDIT_DECAY : 1;
  if (credit !== 0) gate = { ...gate, credits: withNext(gate.credits, Math.sign(credit), decay, Math.abs(credit)) };
  gate = openedIfBetter(gate, shared);
  return credit !== 0 && gate.isOpen && creditScore(gate) < CLOSES_BELOW ? closed(gate) : gate;
}

/** Open the gate if the credits say that the model is better: the own ones, or once those of all users. */
function openedIfBetter(gate: Gate, shared: Credits | null): Gate {
  if (gate.isOpen || !(growth(gate) >= OPENS_AT || isOpenedBy(shared, gate))) return gate;
  return { ...gate, isOpen: true, ofModel: NO_NUMBERS };
}

function isOpenedBy(shared: Credits | null, gate: Gate): boolean {
  if (shared === null || wasOpen(gate) || gate.ofBase.weight < FEWEST_BASE_LISTS) return false;
  return creditScore(gate) >= OBJECTS_BELOW && growthBy(shared) >= OPENS_AT;
}

/** Close the gate if the model's lists perform worse. */
function afterListOfModel(gate: Gate): Gate {
  return gate.isOpen && modelScore(gate) < -WORSE_BY ? closed(gate) : gate;
}

/** Return the gate closed, without the credits that opened it: they were another model's. */
function closed(gate: Gate): Gate {
  return { ...gate, isOpen: false, credits: NO_NUMBERS, ofModel: NO_NUMBERS };
}

/** Return the mean with one more number, after the decay of earlier ones. */
function withNext(mean: FadingMean, number: number, decay: number, weight = 1): FadingMean {
  return {
    weight: mean.weight * decay + weight,
    weightSquares: mean.weightSquares * decay * decay + weight * weight,
    total: mean.total * decay + weight * number,
    squares: mean.squares * decay + weight * number * number,
  };
}

/** Return the mean with another number in place of one, after which `nSince` more came; unchanged if it is not in it. */
function replacing(mean: FadingMean, number: number, by: number, nSince: number, decay: number): FadingMean {
  const weight = decay ** nSince;
  // With n numbers the weight is (1 - decay**n) / (1 - decay); the number is in it if n > nSince.
  if (1 - (1 - decay) * mean.weight > (weight * (1 + decay)) / 2) return mean;
  const { total, squares } = mean;
  return {
    ...mean,
    total: total + weight * (by - number),
    squares: squares + weight * (by * by - number * number),
  };
}

function meanOf({ weight, total }: FadingMean): number {
  return total / weight;
}

function varianceOf(of: FadingMean): number {
  return of.squares / of.weight - meanOf(of) ** 2;
}

/** Return the variance of the mean, in variances of one number. */
function shareOfVariance({ weight, weightSquares }: FadingMean): number {
  return weightSquares / weight ** 2;
}

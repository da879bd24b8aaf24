// Reports whether a search became better: the application's order against the model's, by the clicks on one device.
//
// edge_client/report.py is the same. All numbers are the gate's; nothing is counted for a report. This module is loaded
// with the first report.

import type { Exploration } from "./learning/display.js";
import {
  FEWEST_CREDITS,
  NEW_GATE,
  OPENS_AT,
  growth,
  rewardDifference,
  shareInterleaved,
  sourceBy,
  type FadingMean,
  type Gate,
  type ShownCount,
  type Source,
} from "./learning/gate.js";
import type { RankingState } from "./serps.js";

/** An estimate, and the 95 % interval around it. */
export interface Interval {
  readonly estimate: number;
  readonly low: number;
  readonly high: number;
}

/** Whose order the next list has, and the share of the next lists that mix both. */
export interface ListOrder {
  readonly source: "base" | "model";
  readonly shareInterleaved: number;
}

const Z = 1.96;
const WHOSE = { base: "the application's", model: "the model's" };

/** What the user's clicks say of both orders; its text is for people. */
export class Report {
  constructor(
    /** Whose order is shown, and why. */
    readonly order: ListOrder,
    readonly cause: string,
    /** Recorded lists, and those with a click; null without a gate, which counts them. */
    readonly nLists: number | null,
    readonly nClicked: number | null,
    /** By source, its lists, how many were clicked, and the first clicks as reciprocal ranks. */
    readonly shown: Readonly<Record<Source, ShownCount>>,
    /** The share of mixed lists in which clicks preferred the model's order; null: too few to tell. */
    readonly preference: Interval | null,
    /** The reciprocal rank of the first click, in the model's newest lists less in the base's; null: too few to tell. */
    readonly rewardDifference: Interval | null,
    /** By source, how many lists these two are of in effect: the newest weigh most, old ones nothing. */
    readonly inEffect: Readonly<Record<Source, number>>,
  ) {}

  toString(): string {
    const { source, shareInterleaved: share } = this.order;
    const other = WHOSE[source === "base" ? "model" : "base"];
    const mixed = share === 0 ? "" : `, ${Math.round(100 * share)} in 100 mixed with ${other}`;
    const parts = [`Lists are in ${WHOSE[source]} order${mixed}: ${this.cause}`];
    if (this.nLists === null) return `${parts[0]}.`;
    const were = this.nLists === 1 ? "1 list was" : `${this.nLists} lists were`;
    parts.push(`${were} recorded, ${this.nClicked} with a click`);
    if (this.preference === null) {
      parts.push("Is the model's order better than the application's: too few to tell");
    } else {
      const [estimate, low, high] = partsOf(this.preference).map((part) => Math.round(100 * part));
      parts.push(`Of 100 mixed lists ${estimate} favour the model's order (95 % interval ${low} to ${high})`);
    }
    if (this.rewardDifference !== null) {
      const signed = (part: number) => `${part < 0 ? "" : "+"}${part.toFixed(3)}`;
      const [estimate, low, high] = partsOf(this.rewardDifference).map(signed);
      const interval = `(95 % interval ${low} to ${high})`;
      const { base, model } = this.inEffect;
      const newest = `The model's newest ${model} lists have more reward than the application's newest ${base}`;
      parts.push(`${newest} by ${estimate} ${interval}`);
    }
    return `${parts.join(". ")}.`;
  }
}

/**
 * Return the report of a device in this state.
 *
 * @param exploration of its lists as the application asked; null: the federation's.
 * @param isGated false if it has no gate, and counts nothing.
 */
export function reportOf(state: RankingState, exploration: Exploration | null, isGated: boolean): Report {
  const gate = state.gate ?? NEW_GATE;
  const order = orderOfNext(state, exploration, gate, isGated);
  const counts = Object.values(gate.counts);
  const rewards = rewardDifference(gate);
  return new Report(
    order,
    causeOf(state, gate, order, isGated, exploration?.kind !== "none"),
    isGated ? counts.reduce((sum, { lists }) => sum + lists, 0) : null,
    isGated ? counts.reduce((sum, { clicked }) => sum + clicked, 0) : null,
    gate.counts,
    preferenceOf(gate),
    rewards && {
      estimate: rewards.difference,
      low: rewards.difference - Z * rewards.error,
      high: rewards.difference + Z * rewards.error,
    },
    { base: inEffect(gate.ofBase), model: inEffect(gate.ofModel), interleaved: inEffect(gate.credits) },
  );
}

function inEffect({ weight, weightSquares }: FadingMean): number {
  return weight === 0 ? 0 : Math.round(weight ** 2 / weightSquares);
}

function partsOf({ estimate, low, high }: Interval): number[] {
  return [estimate, low, high];
}

function orderOfNext(state: RankingState, asked: Exploration | null, gate: Gate, isGated: boolean): ListOrder {
  const { weights } = state;
  const exploration = asked ?? state.exploration;
  if (weights === null || (isGated && !weights.some(Boolean))) return { source: "base", shareInterleaved: 0 };
  const source = isGated ? (sourceBy(state, false, Math.random) as "base" | "model") : "model";
  if (source === "model" && exploration.kind === "interleaving") return { source, shareInterleaved: 1 };
  return {
    source,
    shareInterleaved: isGated && asked?.kind !== "none" ? shareInterleaved(gate, state.shared) : 0,
  };
}

/** @param mixes false if the application asked for lists without exploration, so that none mixes both orders. */
function causeOf(
  { modelVersion }: RankingState,
  gate: Gate,
  { source, shareInterleaved }: ListOrder,
  isGated: boolean,
  mixes: boolean,
): string {
  if (modelVersion === null) return "there is no model yet";
  if (!isGated) return "without a gate nothing is compared";
  if (source === "base" && (gate.isOpen || (mixes && shareInterleaved === 0)))
    return "the model cannot rank these documents, or is empty";
  if (gate.isOpen && gate.credits.weight === 0)
    return "all users' clicks favoured the model's, and this user's have not spoken against it since";
  if (gate.isOpen) return "clicks favoured the model's, and have not spoken against it since";
  const noneMixed = mixes ? "" : ", and without exploration no lists are mixed";
  if (gate.credits.weight < FEWEST_CREDITS)
    return `fewer than ${FEWEST_CREDITS} mixed lists say which order is better${noneMixed}`;
  return `clicks do not favour the model's ${OPENS_AT} to 1, but ${Number(growth(gate).toPrecision(2))} to 1${noneMixed}`;
}

/** Wilson's interval of the share of credits that are the model's. */
function preferenceOf({ credits }: Gate): Interval | null {
  if (credits.weight < FEWEST_CREDITS) return null;
  const share = (1 + credits.total / credits.weight) / 2;
  const n = credits.weight ** 2 / credits.weightSquares;
  const centre = (share + Z ** 2 / (2 * n)) / (1 + Z ** 2 / n);
  const half = (Z * Math.sqrt((share * (1 - share)) / n + Z ** 2 / (4 * n ** 2))) / (1 + Z ** 2 / n);
  return { estimate: share, low: Math.max(0, centre - half), high: Math.min(1, centre + half) };
}

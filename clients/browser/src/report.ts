// Reports whether a search became better, by the clicks on this device: `foltr-browser/report`.
//
// edge_client/report.py is the same, with reasons. A page that does not import it does not load it.

import { FEWEST_CREDITS, NEW_GATE, OPENS_AT, growth, rewardDifference, type Gate } from "./learning/gate.js";

/** An estimate, and the 95 % interval around it. */
export interface Interval {
  readonly estimate: number;
  readonly low: number;
  readonly high: number;
}

/** What the user's clicks say of both orders. */
export interface Report {
  /** Whose order is shown, except for lists that mix both. */
  readonly order: "base" | "model";
  readonly cause: string;
  /** Recorded lists, and those with a click. */
  readonly nLists: number;
  readonly nClicked: number;
  /** The share of mixed lists in which clicks preferred the model's order; null: too few to tell. */
  readonly preference: Interval | null;
  /** The reciprocal rank of the first click, in the model's newest lists less in the base's; null: too few to tell. */
  readonly rewardDifference: Interval | null;
}

const Z = 1.96;

/** Return the report of a client: of its gate, and of the version of its model. */
export function reportOf(client: { readonly gate: Gate | null; readonly modelVersion: number | null }): Report {
  const gate = client.gate ?? NEW_GATE;
  const counts = Object.values(gate.counts);
  const rewards = rewardDifference(gate);
  return {
    order: client.modelVersion !== null && gate.isOpen ? "model" : "base",
    cause: client.modelVersion === null ? "there is no model yet" : causeOf(gate),
    nLists: counts.reduce((sum, { lists }) => sum + lists, 0),
    nClicked: counts.reduce((sum, { clicked }) => sum + clicked, 0),
    preference: preferenceOf(gate),
    rewardDifference: rewards && {
      estimate: rewards.difference,
      low: rewards.difference - Z * rewards.error,
      high: rewards.difference + Z * rewards.error,
    },
  };
}

/** Return a report as text. */
export function inWords({ order, cause, nLists, nClicked, preference, rewardDifference: rewards }: Report): string {
  const of100 = (share: number) => Math.round(100 * share);
  const parts = [
    `Lists are in the ${order === "model" ? "model's" : "application's"} order: ${cause}`,
    `${nLists} lists were recorded, ${nClicked} of them with a click`,
    preference === null
      ? "Is the model's order better than the application's: too few to tell"
      : `Of 100 mixed lists ${of100(preference.estimate)} favour the model's order ` +
        `(95 % interval ${of100(preference.low)} to ${of100(preference.high)})`,
  ];
  if (rewards !== null) {
    const [estimate, low, high] = [rewards.estimate, rewards.low, rewards.high].map((each) => each.toFixed(3));
    parts.push(
      `The model's lists have more reward than the application's by ${estimate} (95 % interval ${low} to ${high})`,
    );
  }
  return `${parts.join(". ")}.`;
}

function causeOf(gate: Gate): string {
  if (gate.isOpen) return `clicks favoured the model's ${OPENS_AT} to 1, and have not spoken against it since`;
  if (gate.credits.weight < FEWEST_CREDITS) return `fewer than ${FEWEST_CREDITS} mixed lists say which order is better`;
  return `clicks do not favour the model's ${OPENS_AT} to 1, but ${Number(growth(gate).toPrecision(2))} to 1`;
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

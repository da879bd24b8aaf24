// Interactions as rows of a device's store.

import type { Source } from "../learning/gate.js";
import { baseOrderReward, creditOf, type ListRewards } from "../learning/rewards.js";
import type { Serp } from "../serps.js";
import { done, type Rows } from "./rows.js";

/** A stored list: the candidates, the ranking, the clicks. */
export interface Interaction {
  /** The device's own number for it, never used again. */
  readonly id: number;
  readonly serpId: string;
  readonly nFeatures: number;
  /** (documents, nFeatures) float32, row by row: all candidates, not only the shown ones. */
  readonly features: Float32Array<ArrayBuffer>;
  readonly ranking: readonly number[];
  readonly clicks: readonly boolean[];
  /** The global model it was shown under; null before the first one. */
  readonly baseVersion: number | null;
  readonly reversals: Float64Array<ArrayBuffer>;
  readonly logProbability: number;
  /** Whose order it was drawn around; the base's if missing. */
  readonly source?: Source;
  /** Milliseconds since the epoch. */
  readonly recordedAt?: number;
  /** Of the application's features when it was shown; empty if none were declared. */
  readonly schemaHash: string;
  /** Of its `ListRewards`; missing if they are not kept, or the list is of an earlier version. */
  readonly baseReward?: number;
  readonly credit?: number;
  /** Number of unlearning steps that used it; 0 if missing. */
  readonly relearned?: number;
}

/**
 * Return what an evaluation needs of a list with all its clicks; nothing if its base order is unknown.
 *
 * @param given its credit so far, which stays: the gate has counted it.
 */
export function keptRewards(
  { basePositions, toCredit }: Serp,
  clicks: readonly boolean[],
  given = 0,
): Partial<ListRewards> {
  if (basePositions === undefined) return {};
  return { baseReward: baseOrderReward(basePositions, clicks), credit: given || creditOf(clicks, toCredit) };
}

/** Delete the oldest interactions of a range beyond a number. */
export async function trim(rows: Rows, range: IDBKeyRange, most: number): Promise<void> {
  const excess = (await done(rows.interactions.count(range))) - most;
  if (excess > 0) await remove(rows, await done(rows.interactions.getAllKeys(range, excess)));
}

export async function remove(rows: Rows, ids: readonly IDBValidKey[]): Promise<void> {
  await Promise.all(ids.map((id) => done(rows.interactions.delete(id))));
}

/** Number all interactions higher. */
export async function raiseNumbers(rows: Rows, by: number): Promise<void> {
  const all: Interaction[] = await done(rows.interactions.getAll());
  await done(rows.interactions.clear());
  for (const interaction of all) await done(rows.interactions.add({ ...interaction, id: interaction.id + by }));
}

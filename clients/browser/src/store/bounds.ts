// A device's interaction counts, is spent, is on its way or waits: its number says which, between these bounds.

import { DataError } from "../errors.js";
import type { Bytes } from "../protocol/fields.js";

/** An update that has no receipt yet, as the bytes that are sent until it has one. */
export interface PendingUpdate {
  readonly updateId: string;
  readonly round: number;
  /** It covers the interactions above the one and up to the other. */
  readonly after: number;
  readonly through: number;
  readonly payload: Bytes;
}

/** The interactions that an update covers which counts. */
export interface CountedUpdate {
  readonly after: number;
  readonly through: number;
}

/** Bounds say what becomes of an interaction, by its number. */
export interface Bounds {
  /** The last one that counts; null before the federation has told it. */
  readonly watermark: number | null;
  /** The last one that is spent: sent before the device came under a policy, and never learned again. */
  readonly floor: number;
  /** The last number that was given to any. */
  readonly newest: number;
  readonly pending: PendingUpdate | null;
  /** The newest updates that count, the oldest first. */
  readonly counted: readonly CountedUpdate[];
}

/** What an answer of the federator has changed in the store. */
export interface Settlement {
  readonly watermarkBefore: number | null;
  readonly watermark: number;
  /** The pending update counts, and is pending no more. */
  readonly counted: boolean;
  /** The pending update does not count, and is pending no more. */
  readonly givenUp: boolean;
  /** The federation has lost updates that counted: its database was restored, or replaced by an empty one. */
  readonly lost: boolean;
}

// The watermark goes back by one update, or as far as a database that was restored.
const REMEMBERED_UPDATES = 4;

// No device has so many interactions, and a message has numbers up to 2^48: a device that believed a watermark up there could
// never again number what it has above it.
const FURTHEST_WATERMARK = 2 ** 47;

export const NO_BOUNDS: Bounds = { watermark: null, floor: 0, newest: 0, pending: null, counted: [] };

/** Return the last interaction that counts, is spent, or is in the pending update; those above it wait. */
export function learnedThrough(bounds: Bounds): number {
  return Math.max(bounds.watermark ?? 0, bounds.floor, bounds.pending?.through ?? 0);
}

export function isChanged(settlement: Settlement): boolean {
  return settlement.watermark !== settlement.watermarkBefore || settlement.counted || settlement.givenUp;
}

/** Return whether something that was learned is to be learned again. */
export function isTakenBack({ watermarkBefore, watermark, givenUp }: Settlement): boolean {
  return givenUp || (watermarkBefore !== null && watermark < watermarkBefore);
}

/**
 * Take the watermark of an answer: what is up to it counts, and what is above it is to be learned.
 *
 * The pending update goes if it counts. What it covers waits again if it does not, and has its answer. DataError where
 * no device can have got as far as the watermark.
 *
 * @param answered the update's id that the answer settles for good, if it does that.
 * @returns what has changed, the new bounds, and by how much every interaction's number is raised: one that was
 *   recorded before the federation has told a watermark counted nowhere, and is numbered above it.
 */
export function settle(
  bounds: Bounds,
  watermark: number,
  answered: string | null,
): { settlement: Settlement; bounds: Bounds; raisedBy: number } {
  const { watermark: before, pending } = bounds;
  if (watermark > Math.max(FURTHEST_WATERMARK, before ?? 0, bounds.newest, pending?.through ?? 0))
    throw new DataError(`no device can have watermark ${watermark}`);
  const counted = pending !== null && watermark >= pending.through;
  const givenUp = !counted && pending !== null && pending.updateId === answered;
  const lost = before !== null && watermark < before && watermark < newestBegan(bounds, before);
  const raisedBy = before === null ? watermark : 0;
  const remembered = pending !== null && counted ? remember(bounds.counted, pending) : bounds.counted;
  return {
    settlement: { watermarkBefore: before, watermark, counted, givenUp, lost },
    bounds: {
      watermark,
      floor: bounds.floor,
      newest: before === null ? bounds.newest + watermark : Math.max(bounds.newest, watermark),
      pending: counted || givenUp ? null : pending,
      counted: remembered,
    },
    raisedBy,
  };
}

/** Return the watermark before the newest update that counts: no federation that lost nothing has a lower one. */
function newestBegan(bounds: Bounds, watermark: number): number {
  return bounds.counted.filter((update) => update.through <= watermark).at(-1)?.after ?? 0;
}

function remember(counted: readonly CountedUpdate[], { after, through }: PendingUpdate): CountedUpdate[] {
  // What counted above where it begins was taken back before.
  return [...counted.filter((update) => update.through <= after), { after, through }].slice(-REMEMBERED_UPDATES);
}

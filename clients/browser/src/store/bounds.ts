// Bounds on a device's interaction numbers: they tell whether one counts, is spent, is in an update or waits.

import { DataError } from "../errors.js";
import type { Bytes } from "../protocol/fields.js";

/** An update without a receipt, in the bytes that are sent. */
export interface PendingUpdate {
  readonly updateId: string;
  readonly round: number;
  /** It covers the interactions above `after`, up to `through`. */
  readonly after: number;
  readonly through: number;
  readonly payload: Bytes;
}

/** The interactions covered by a counted update. */
export interface CountedUpdate {
  readonly after: number;
  readonly through: number;
}

/** The round of the last settled update and when it opened: a second update would not count, also after a reload. */
export interface SettledRound {
  readonly round: number;
  readonly openedAt: number;
}

/** The state of interactions, by number. */
export interface Bounds {
  /** The last counted interaction; null before the federation has reported it. */
  readonly watermark: number | null;
  /** The last spent one: sent before the device came under a policy, and never learned again. */
  readonly floor: number;
  /** The newest number in use. */
  readonly newest: number;
  readonly pending: PendingUpdate | null;
  /** The newest counted updates, oldest first. */
  readonly counted: readonly CountedUpdate[];
  readonly settled?: SettledRound;
}

/** The change of the store by an answer of the federator. */
export interface Settlement {
  readonly watermarkBefore: number | null;
  readonly watermark: number;
  /** The pending update counts, and is no longer pending. */
  readonly counted: boolean;
  /** The pending update does not count, and is no longer pending. */
  readonly givenUp: boolean;
  /** The federation has lost counted updates: its database was restored, or replaced by an empty one. */
  readonly lost: boolean;
}

// The watermark goes back by one update, or further with a restored database.
const REMEMBERED_UPDATES = 4;

// No device has so many interactions, and a message has numbers up to 2^48. A device that accepted such a watermark
// could not number interactions above it.
const FURTHEST_WATERMARK = 2 ** 47;

export const NO_BOUNDS: Bounds = { watermark: null, floor: 0, newest: 0, pending: null, counted: [] };

/** Return the last interaction that counts, is spent, or is in the pending update. Those above it wait. */
export function learnedThrough(bounds: Bounds): number {
  return Math.max(bounds.watermark ?? 0, bounds.floor, bounds.pending?.through ?? 0);
}

export function isChanged(settlement: Settlement): boolean {
  return settlement.watermark !== settlement.watermarkBefore || settlement.counted || settlement.givenUp;
}

/** Return whether learned interactions have to be learned again. */
export function isTakenBack({ watermarkBefore, watermark, givenUp }: Settlement): boolean {
  return givenUp || (watermarkBefore !== null && watermark < watermarkBefore);
}

/**
 * Take the watermark of an answer: interactions up to it count, those above are to be learned.
 *
 * A counted pending update is removed. An answered one that does not count is removed, too, and its interactions wait
 * again. DataError for a watermark that no device can have reached.
 *
 * @param answered the id of the update that the answer settles for good, if any.
 * @param ends the round that then gets no other update, if known.
 * @returns the change, the new bounds, and by how much interaction numbers rise: interactions recorded before the first
 *   watermark are numbered above it.
 */
export function settle(
  bounds: Bounds,
  watermark: number,
  answered: string | null,
  ends?: SettledRound,
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
      settled: lost ? undefined : counted || givenUp ? ends : bounds.settled, // a restored database reuses numbers
    },
    raisedBy,
  };
}

/** Return the watermark before the newest counted update. A federation without losses never reports a lower one. */
function newestBegan(bounds: Bounds, watermark: number): number {
  return bounds.counted.filter((update) => update.through <= watermark).at(-1)?.after ?? 0;
}

function remember(counted: readonly CountedUpdate[], { after, through }: PendingUpdate): CountedUpdate[] {
  // Updates counted above this one's start were taken back before.
  return [...counted.filter((update) => update.through <= after), { after, through }].slice(-REMEMBERED_UPDATES);
}

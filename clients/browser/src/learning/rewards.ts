// The reward of a shown list: how far up its user clicked, there and in the application's order.
//
// core/learning/rewards.py is the same, with reasons; credits are in core/learning/gate.py.

/** The rewards of one list. */
export interface ListRewards {
  /** 1 / rank of the first click as it was shown; 0 without one. */
  readonly reward: number;
  /** 1 / rank of the best clicked document in the application's order; 0 without one. */
  readonly baseReward: number;
  /** See `creditOf`. */
  readonly credit: number;
}

/** Return the reciprocal rank of the first click; 0 without clicks. */
export function firstClickReward(clicks: readonly boolean[]): number {
  const first = clicks.indexOf(true);
  return first < 0 ? 0 : 1 / (1 + first);
}

/**
 * Return the reciprocal rank of the best clicked document in the application's order; 0 without clicks.
 *
 * @param basePositions of each shown document in the application's order, from 0.
 */
export function baseOrderReward(basePositions: readonly number[], clicks: readonly boolean[]): number {
  const clicked = basePositions.filter((_, i) => clicks[i]);
  return clicked.length === 0 ? 0 : 1 / (1 + Math.min(...clicked));
}

/**
 * Return the credit of an interleaved list's last click: above 0 for the model, below for the base; 0 for neither.
 *
 * A coin decided each two positions; a credit by the i-th coin is 1 / i.
 *
 * @param toCredit see `interleavingCredits`; undefined of other lists.
 */
export function creditOf(clicks: readonly boolean[], toCredit: readonly number[] | undefined): number {
  const last = clicks.lastIndexOf(true);
  return last < 0 ? 0 : (toCredit?.[last] ?? 0) / (1 + Math.floor(last / 2));
}

/** Return the share of clicked lists, at least one being given, and their mean rewards, each from 0 to 1. */
export function meanOfLists(lists: readonly ListRewards[]): { clicked: number; reward: number; baseReward: number } {
  const mean = (of: (each: ListRewards) => number) => lists.reduce((sum, each) => sum + of(each), 0) / lists.length;
  return {
    clicked: mean(({ reward }) => Number(reward > 0)),
    reward: mean(({ reward }) => reward),
    baseReward: mean(({ baseReward }) => baseReward),
  };
}

// The state of a device: what its application and its other tabs see.

import type { RankingState } from "./serps.js";

/** Progress of a request to be forgotten; see `ForgetResult`. */
export type ForgetState = "asked" | "sent" | "erasing" | "forgetting" | "forgotten";

/** The outcome of a request to be forgotten. */
export interface ForgetResult {
  /**
   * `asked`: stored in this browser, not yet at a broker; `sent`: the federator has not answered; `erasing`: stored
   * data is being deleted; `forgetting`: erased except for the model's part; `forgotten`: that too.
   */
  readonly state: ForgetState;
  /** The federation's signed proof for `foltr erasure verify`, once the client is forgotten. */
  readonly receipt: string | null;
}

/** The federation published an entry, and later that its log ends with a different one that is not above it. */
export interface AuditLogCut {
  readonly before: number;
  readonly after: number;
}

/** The state of a device, including what lists are made from. */
export interface DeviceState extends RankingState {
  readonly connected: boolean;
  /** Time of the next visit in seconds since the epoch, if the federation uses visits; null during a visit. */
  readonly nextVisitAt: number | null;
  readonly round: number | null;
  /** The last counted interaction of this device, by the federation's newest answer; null before the first. */
  readonly countedThrough: number | null;
  /** Interactions on the device that are in no update yet. */
  readonly nWaiting: number;
  /** How many more of them make an update; null before the first round that this client can learn for. */
  readonly nMissing: number | null;
  /** How many of them wait for more clicks (`clickWindowS`). */
  readonly nOpen: number;
  readonly isUpdatePending: boolean;
  readonly nUpdatesCounted: number;
  readonly receipts: Readonly<Record<string, number>>;
  readonly isQuarantined: boolean;
  /** Progress of a request to be forgotten, also from an earlier run; null without a request or an erasure. */
  readonly forgetState: ForgetState | null;
  /** The newest known entry of the federation's audit log; null before the first. */
  readonly newestAuditEntry: number | null;
  /** Evidence that the audit log was cut or restored from a backup; null without any. */
  readonly auditLogCut: AuditLogCut | null;
}

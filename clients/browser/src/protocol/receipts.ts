// The meaning of the federator's answers for a device: what happens to the pending update, by code.
//
// For every code, the answer's watermark says which of the device's interactions count: those up to it.

/**
 * `settle`: answered; interactions above the watermark go into a later update. `send_again`: undecided; send the same
 * bytes again. `stop`: the client is to be forgotten. null: it answers no update.
 */
export type DeviceReaction = "settle" | "send_again" | "stop" | null;

const REACTIONS = {
  accepted: "settle",
  duplicate: "settle",
  already_contributed: "settle",
  overlaps: "settle",
  late: "settle",
  stale: "settle",
  unknown_round: "settle",
  unknown_client: "send_again",
  client_mismatch: "settle",
  wrong_federation: "settle",
  malformed: "settle",
  wrong_shape: "settle",
  out_of_range: "settle",
  misplaced: "settle",
  not_finite: "settle",
  too_large: "settle",
  unsupported_version: "send_again",
  bad_signature: "settle",
  not_enrolled: "send_again",
  revoked: "settle",
  quarantined: "settle",
  replayed: "settle",
  round_abandoned: "settle",
  not_selected: "settle",
  incomplete: "send_again",
  busy: "send_again",
  erasing: "stop",
  forgetting: "stop",
  forgotten: "stop",
  unknown_job: null,
  joined: null,
  left: null,
} as const satisfies Record<string, DeviceReaction>;

export type ReceiptCode = keyof typeof REACTIONS;

export const RECEIPT_CODES = Object.keys(REACTIONS) as ReceiptCode[];

export function reactionTo(code: ReceiptCode): DeviceReaction {
  return REACTIONS[code];
}

/** Return whether a device that gets this code joins again before anything else. */
export function joinsFirst(code: ReceiptCode): boolean {
  return code === "unknown_client" || code === "not_enrolled";
}

/** Return whether this code says that the federation has erased the client. */
export function isErased(code: ReceiptCode): boolean {
  return REACTIONS[code] === "stop";
}

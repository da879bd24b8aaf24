// Every message that a device sends or receives, field by field in the order of the wire.
//
// The field names are those of the protocol (docs/protocol.md). A device ignores other kinds.

import {
  boolean,
  bytes,
  count,
  detail,
  dim,
  integer,
  listOf,
  literal,
  map,
  watermark,
  MAX_DIM,
  MAX_MESSAGE_BYTES,
  modelHash,
  name,
  nothing,
  number,
  optional,
  publicKey,
  rate,
  sequenceNumber,
  sha256,
  text,
  timestamp,
  union,
  updateId,
  type Check,
  type Fields,
  type Shape,
  isMap,
} from "./fields.js";
import { MessageError } from "../errors.js";
import { SAFE } from "../learning/display.js";
import { RECEIPT_CODES } from "./receipts.js";

/** A kind of message: its name on the wire, and the form of its body. */
export interface MessageType<S extends Shape> {
  readonly kindName: string;
  readonly shape: S;
  /** Checks across fields: a complaint, or null. */
  readonly problem: (fields: Fields<S>) => string | null;
}

export type Of<T> = T extends MessageType<infer S> ? Fields<S> : never;

function message<S extends Shape>(
  kindName: string,
  shape: S,
  problem: (fields: Fields<S>) => string | null = () => null,
): MessageType<S> {
  return { kindName, shape, problem };
}

const whoIs = { federation: name, client_id: name };
const anyBytes = bytes(0, MAX_MESSAGE_BYTES);
const receiptCode = literal(...RECEIPT_CODES);

// --- of models and methods: what this device cannot use, it passes over as a `kind` --------------------------------

const unusable: Check<{ kind: "unusable"; of: string }> = (value, place) => {
  if (!isMap(value) || typeof value["kind"] !== "string")
    throw new MessageError("malformed", `${place}: it has no kind`);
  return { kind: "unusable", of: text(64)(value["kind"], `${place}.kind`) };
};

const ranker = union({ linear: map({ kind: literal("linear"), n_features: dim }) }, unusable);

const noneOther: Check<never> = (_value, place) => {
  throw new MessageError("malformed", `${place}: unknown kind`);
};
const temperature = number(0.001, 1000);
const exploration = union(
  {
    none: map({ kind: literal("none") }),
    share: map({ kind: literal("share"), share: number(Number.MIN_VALUE, 1), temperature }),
    swaps: map({ kind: literal("swaps"), probability: number(Number.MIN_VALUE, 0.5) }),
    interleaving: map({ kind: literal("interleaving") }),
    sampling: map({ kind: literal("sampling"), temperature: optional(temperature, null) }),
  },
  noneOther,
);

const training = union(
  {
    pdgd: map({
      serp_length: integer(1, 1000),
      min_interactions: integer(1, 100_000),
      max_interactions: integer(1, 100_000),
      exploration: optional(exploration, SAFE),
      kind: literal("pdgd"),
      learning_rate: rate,
    }),
  },
  unusable,
);

export type RankerSpec = ReturnType<typeof ranker>;
export type Training = ReturnType<typeof training>;
export type PdgdTraining = Extract<Training, { kind: "pdgd" }>;

const share = number(0, 1);
const evaluation = map({
  clicked: share,
  reward: share,
  base_reward: share,
  credit_total: optional(number(-1e5, 1e5), 0 as number),
  credit_squares: optional(number(0, 1e5), 0 as number),
});

export type Evaluation = ReturnType<typeof evaluation>;

const updateBody = union({ dense: map({ kind: literal("dense"), dim, values: anyBytes }) }, noneOther);

// --- announcements -------------------------------------------------------------------------------------------------

function weightsProblem(fields: { ranker: RankerSpec; n_auxiliary: number; weights: Uint8Array }): string | null {
  if (fields.ranker.kind !== "linear") return null;
  const expected = 4 * (fields.ranker.n_features + fields.n_auxiliary);
  return fields.weights.length === expected ? null : `weights: ${fields.weights.length} bytes; expected ${expected}`;
}

export const ModelAnnouncement = message(
  "model",
  {
    federation: name,
    version: count,
    ranker,
    n_auxiliary: optional(integer(0, MAX_DIM), 0 as number),
    weights: anyBytes,
    schema_hash: optional(sha256, null),
  },
  (model) => weightsProblem(model),
);

export const RoundAnnouncement = message(
  "round",
  {
    federation: name,
    round: count,
    open: boolean,
    last: optional(boolean, false as boolean),
    base_version: count,
    base_hash: modelHash,
    withdraws_below: count,
    opened_at: timestamp,
    closes_at: timestamp,
    training,
    selection: optional(map({ first_seed: sha256, cutoff: bytes(8, 8), n_selected: count, n_eligible: count }), null),
    secure: optional(map({ policy_hash: sha256, clip_norm: number(Number.MIN_VALUE, 1e6) }), null),
    schema_hash: optional(sha256, null),
  },
  (round) => (round.open && round.last ? "an open round cannot be marked last" : null),
);

export const UnlearningRound = message(
  "unlearning_round",
  {
    federation: name,
    job: count,
    step: count,
    open: boolean,
    ranker,
    n_auxiliary: optional(integer(0, MAX_DIM), 0 as number),
    weights: anyBytes,
    local_interactions: integer(1, 100_000),
    erasures: listOf(map({ audit_seq: integer(1, 2 ** 31 - 1), audit_hash: sha256 }), 32),
    closes_at: timestamp,
    training,
    schema_hash: optional(sha256, null),
  },
  (model) => weightsProblem(model),
);

export const AuditHead = message("audit_head", { federation: name, seq: count, hash: sha256, at: timestamp });

/** From a second to thirty days, in seconds. */
export const Pace = message("pace", { federation: name, period_s: number(1, 2_592_000) });

export const EvaluationRequest = message("evaluation_request", {
  federation: name,
  credits_since: optional(count, 0 as number),
  credit_total: optional(number(-1e15, 1e15), 0 as number),
  credit_squares: optional(number(0, 1e15), 0 as number),
});

// --- of a device ---------------------------------------------------------------------------------------------------

export const Join = message("join", {
  ...whoIs,
  sdk_version: text(64),
  enrolment: optional(bytes(0, 1024), null),
});
export const Leave = message("leave", { ...whoIs });
export const Status = message("status", { ...whoIs, online: boolean });
export const Forget = message("forget", { ...whoIs });

export const ModelUpdate = message(
  "update",
  {
    ...whoIs,
    update_id: updateId,
    round: count,
    base_version: count,
    after: watermark,
    through: watermark,
    base_hash: modelHash,
    n_interactions: integer(1, 100_000),
    body: updateBody,
    vote: nothing, // this client compares no models
    evaluation: optional(evaluation, null),
  },
  ({ n_interactions: n, after, through, evaluation }) => {
    if (n > through - after) return `${n} interactions above ${after} up to ${through}`;
    const earned = evaluation === null ? 0 : Math.max(evaluation.reward, evaluation.base_reward);
    return earned > (evaluation?.clicked ?? 0) ? "more was earned than there were lists with a click" : null;
  },
);

export const UnlearningUpdate = message("unlearning_update", {
  ...whoIs,
  job: count,
  step: count,
  n_interactions: integer(1, 100_000),
  body: updateBody,
});

// --- answers -------------------------------------------------------------------------------------------------------

export const UpdateReceipt = message("update_receipt", {
  ...whoIs,
  update_id: optional(updateId, null),
  payload_digest: optional(bytes(16, 16), null),
  code: receiptCode,
  detail: optional(detail, "" as string),
  counted_through: optional(watermark, null),
  retry_after_s: optional(number(0, 86_400), null),
  missing: optional(listOf(integer(0, 999), 1000), null),
});

export const MembershipReceipt = message("membership_receipt", {
  ...whoIs,
  code: receiptCode,
  payload_digest: optional(bytes(16, 16), null),
  newest_sequence: optional(sequenceNumber, null),
  counted_through: optional(watermark, null),
  detail: optional(detail, "" as string),
});

export const ErasureNotice = message("erasure_notice", {
  ...whoIs,
  code: receiptCode,
  receipt: optional(bytes(0, 65_536), null),
  detail: optional(detail, "" as string),
});

// --- of the operator -----------------------------------------------------------------------------------------------

export const Enrolment = message("enrolment", {
  ...whoIs,
  public_key: publicKey,
  serial: integer(1, 2 ** 31 - 1),
  issued_at: timestamp,
  secure: optional(boolean, false as boolean),
});

export const FederatorKey = message("federator_key", {
  federation: name,
  sequence: integer(1, 2 ** 31 - 1),
  old_key: publicKey,
  new_key: publicKey,
});

export type ModelAnnouncement = Of<typeof ModelAnnouncement>;
export type RoundAnnouncement = Of<typeof RoundAnnouncement>;
export type UnlearningRound = Of<typeof UnlearningRound>;
export type AuditHead = Of<typeof AuditHead>;
export type Pace = Of<typeof Pace>;
export type EvaluationRequest = Of<typeof EvaluationRequest>;
export type ModelUpdate = Of<typeof ModelUpdate>;
export type UnlearningUpdate = Of<typeof UnlearningUpdate>;
export type UpdateReceipt = Of<typeof UpdateReceipt>;
export type MembershipReceipt = Of<typeof MembershipReceipt>;
export type ErasureNotice = Of<typeof ErasureNotice>;
export type Enrolment = Of<typeof Enrolment>;
export type FederatorKey = Of<typeof FederatorKey>;

const TYPES = [
  ...[
    ModelAnnouncement,
    RoundAnnouncement,
    UnlearningRound,
    AuditHead,
    Pace,
    EvaluationRequest,
    Join,
    Leave,
    Status,
    Forget,
    ModelUpdate,
  ],
  ...[UnlearningUpdate, UpdateReceipt, MembershipReceipt, ErasureNotice, Enrolment, FederatorKey],
];

/** By name on the wire. */
export const MESSAGE_TYPES: ReadonlyMap<string, MessageType<Shape>> = new Map(
  TYPES.map((type) => [type.kindName, type as unknown as MessageType<Shape>]),
);

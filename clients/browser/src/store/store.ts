// A device remembers across restarts its clicks, its unsent update and the newest model; every change is one
// transaction.
//
// Interactions are numbered, and no number is used twice; what one is follows from numbers alone (`bounds`). So a click
// is in no two updates that count, as far as the device can tell; that it never is, the federator's database sees to.

import { DataError } from "../errors.js";
import type { Gate } from "../learning/gate.js";
import { concat, sameBytes, sha256Of, type Bytes } from "../protocol/fields.js";
import type { KeptPace } from "../visits.js";
import {
  isChanged,
  learnedThrough,
  NO_BOUNDS,
  settle,
  type Bounds,
  type PendingUpdate,
  type Settlement,
} from "./bounds.js";
import { Database, done, type Rows } from "./rows.js";

const SALT_BYTES = 16;

/** What a device keeps of one shown list: the candidates, the ranking, the clicks. */
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
  /** Of the application's features when it was shown; empty where they were not declared. */
  readonly schemaHash: string;
  /** In so many steps of unlearning jobs it was learned; none where this is missing. */
  readonly relearned?: number;
}

/** How much a store holds. */
export interface Limits {
  /** When this many wait, the oldest not yet in an update makes room for a new one. */
  readonly maxInteractions: number;
  /** Of the interactions that count, how many are kept; the oldest go. */
  readonly maxKept: number;
}

/** What a list is recorded with; the store knows the rest. */
export type Recorded = Omit<Interaction, "id" | "schemaHash" | "relearned">;

/** How far the wish to be forgotten is; `ForgetResult` says what each means. */
export type ForgetState = "asked" | "sent" | "erasing" | "forgetting" | "forgotten";

/** How many steps were answered on the newest day that there was one, by the device's clock, since the epoch. */
interface Answered {
  readonly day: number;
  readonly steps: number;
}

/** The store of one client, in one database; tabs may have it open together. */
export class DeviceStore {
  private constructor(
    private readonly database: Database,
    private readonly owner: string,
    private readonly limits: Limits,
    private readonly schemaHash: string,
  ) {}

  /**
   * Open the store of a client.
   *
   * @param schemaHash of the application's features; empty where it has not declared them. What was recorded under
   *   another schema is kept and not learned, in case that one comes back.
   */
  static async open(
    federation: string,
    clientId: string,
    limits: Limits,
    factory: IDBFactory,
    schemaHash = "",
  ): Promise<DeviceStore> {
    const owner = `${federation}/${clientId}`;
    return new DeviceStore(await Database.open(`foltr:${owner}`, factory), owner, limits, schemaHash);
  }

  close(): void {
    this.database.close();
  }

  // --- interactions -----------------------------------------------------------------------------------------------

  /**
   * Store an interaction, and return its number; null if this list is stored already, or the client was forgotten.
   *
   * @param judge makes of the gate, undefined before the first, that after this list; both are stored, or neither is.
   */
  addInteraction(interaction: Recorded, judge?: (before: Gate | undefined) => Gate): Promise<number | null> {
    return this.database.write(async (rows) => {
      if ((await rows.get("forgotten")) !== undefined) return null;
      const { interactions } = rows;
      if ((await done(interactions.index("serpId").getKey(interaction.serpId))) !== undefined) return null;
      const bounds = await boundsIn(rows);
      const id = bounds.newest + 1;
      await done(interactions.add({ ...interaction, id, schemaHash: this.schemaHash }));
      await putBounds(rows, { ...bounds, newest: id });
      // When too many wait, the oldest make room.
      await trim(rows, IDBKeyRange.bound(learnedThrough(bounds), id, true), this.limits.maxInteractions);
      if (judge) await rows.put("gate", judge(await rows.get("gate"))); // perhaps another tab's
      return id;
    });
  }

  /** Return the gate after all lists so far; null before one was judged by. */
  gate(): Promise<Gate | null> {
    return this.database.read(async (rows) => (await rows.get<Gate>("gate")) ?? null);
  }

  /** Return the numbers of the oldest interactions that wait to be learned. */
  waitingIds(limit: number): Promise<number[]> {
    return this.database.read(async (rows) => {
      return this.mine(rows, learnedThrough(await boundsIn(rows)), Infinity, limit);
    });
  }

  /** Return the interactions of these numbers, those that are there. */
  interactions(ids: readonly number[]): Promise<Interaction[]> {
    return this.database.read(async (rows) => {
      const found = await Promise.all(ids.map((id) => done(rows.interactions.get(id))));
      return found.filter((interaction) => interaction !== undefined);
    });
  }

  /** Delete interactions that can never be used, e.g. with other features than the ranker's. */
  discard(ids: readonly number[]): Promise<void> {
    return this.database.write((rows) => remove(rows, ids));
  }

  nWaiting(): Promise<number> {
    return this.database.read(async (rows) => {
      return (await this.mine(rows, learnedThrough(await boundsIn(rows)), Infinity)).length;
    });
  }

  /** Return how many features the newest interaction has that waits to be learned; null without one. */
  newestWaitingWidth(): Promise<number | null> {
    return this.database.read(async (rows) => {
      const newest = (await this.mine(rows, learnedThrough(await boundsIn(rows)), Infinity)).at(-1);
      return newest === undefined ? null : (await done<Interaction>(rows.interactions.get(newest))).nFeatures;
    });
  }

  /** Return the numbers of the interactions that count and are kept, the oldest first. */
  keptIds(): Promise<number[]> {
    return this.database.read(async (rows) => {
      const { watermark } = await boundsIn(rows);
      return this.mine(rows, 0, watermark ?? 0);
    });
  }

  // --- unlearning ---------------------------------------------------------------------------------------------------

  /** Count the steps that were answered on a day, or on the newest one where the clock was set back behind it. */
  answeredOn(day: number): Promise<number> {
    return this.database.read(async (rows) => {
      const newest = await rows.get<Answered>("answered");
      return newest !== undefined && newest.day >= day ? newest.steps : 0;
    });
  }

  /** Return the jobs that an erasure stood for, in the order in which they were answered. */
  jobsOf(erasure: string): Promise<readonly number[]> {
    return this.database.read(async (rows) => (await rows.get<number[]>(`erasure:${erasure}`)) ?? []);
  }

  /** Count an answer before it may be sent: for the day, each interaction it was learned from, the job's erasures. */
  countAnswer(day: number, ids: readonly number[], job: number, erasures: readonly string[]): Promise<void> {
    return this.database.write(async (rows) => {
      for (const erasure of erasures) {
        const jobs = (await rows.get<number[]>(`erasure:${erasure}`)) ?? [];
        if (!jobs.includes(job)) await rows.put(`erasure:${erasure}`, [...jobs, job]);
      }
      const newest = await rows.get<Answered>("answered");
      const isNew = newest === undefined || day > newest.day;
      await rows.put("answered", isNew ? { day, steps: 1 } : { day: newest.day, steps: newest.steps + 1 });
      for (const id of ids) {
        const interaction: Interaction = await done(rows.interactions.get(id));
        await done(rows.interactions.put({ ...interaction, relearned: (interaction.relearned ?? 0) + 1 }));
      }
    });
  }

  // --- what counts ------------------------------------------------------------------------------------------------

  bounds(): Promise<Bounds> {
    return this.database.read(boundsIn);
  }

  /** Take the watermark of an answer, as `bounds.settle` says. */
  settle(watermark: number, answered: string | null = null): Promise<Settlement> {
    return this.database.write(async (rows) => {
      const settled = settle(await boundsIn(rows), watermark, answered);
      if (!isChanged(settled.settlement)) return settled.settlement;
      if (settled.raisedBy > 0) await raiseNumbers(rows, settled.raisedBy);
      await putBounds(rows, settled.bounds);
      await trim(rows, IDBKeyRange.upperBound(watermark), this.limits.maxKept);
      return settled.settlement;
    });
  }

  // --- the unsent update ------------------------------------------------------------------------------------------

  /**
   * Make an update the pending one. DataError where these are not the interactions that wait, or the watermark is another.
   */
  putUpdate(update: PendingUpdate, interactionIds: readonly number[]): Promise<void> {
    return this.database.write(async (rows) => {
      const bounds = await boundsIn(rows);
      const learned = learnedThrough(bounds);
      const waiting = await this.mine(rows, learned, update.through);
      const isSame = waiting.length === interactionIds.length && waiting.every((id, i) => id === interactionIds[i]);
      if (!isSame || bounds.watermark !== update.after || bounds.pending !== null) {
        throw new DataError(
          `update ${update.updateId}: its interactions are not those that wait up to ${update.through}`,
        );
      }
      if ((await rows.get("policy")) !== undefined)
        throw new DataError("this device is under a policy: nothing is sent raw");
      await putBounds(rows, { ...bounds, pending: update });
      // Those of another schema in between are in no update.
      const covered = await done(rows.interactions.getAllKeys(IDBKeyRange.bound(learned, update.through, true)));
      await remove(
        rows,
        covered.filter((id) => !waiting.includes(id as number)),
      );
    });
  }

  /** Keep the pending update in other bytes: signed with another key. */
  replacePayload(payload: Bytes): Promise<void> {
    return this.database.write(async (rows) => {
      const bounds = await boundsIn(rows);
      if (bounds.pending !== null) await putBounds(rows, { ...bounds, pending: { ...bounds.pending, payload } });
    });
  }

  // --- what was heard ---------------------------------------------------------------------------------------------

  newestSession(): Promise<bigint> {
    return this.database.read(async (rows) => (await rows.get<bigint>("session")) ?? 0n);
  }

  /** Remember a session before anything is sent in it: later ones must be higher, whatever the clock says. */
  putSession(session: bigint): Promise<void> {
    return this.database.write((rows) => rows.put("session", session));
  }

  /** Return the highest sequence number that was believed on a topic; 0 before the first. */
  newestBelieved(topic: string): Promise<bigint> {
    return this.database.read(async (rows) => (await rows.get<bigint>(`believed:${topic}`)) ?? 0n);
  }

  /** Remember what was believed: nothing older is, whoever repeats it, also after a restart. */
  noteBelieved(topic: string, sequence: bigint): Promise<void> {
    return this.database.write((rows) => rows.put(`believed:${topic}`, sequence));
  }

  /** Return what was kept of the operator or the federator: its newest key, model or policy, as it is signed. */
  heard(what: "federator_key" | "model" | "policy"): Promise<Bytes | null> {
    return this.database.read(async (rows) => (await rows.get<Bytes>(what)) ?? null);
  }

  putHeard(what: "federator_key" | "model", payload: Bytes): Promise<void> {
    return this.database.write((rows) => rows.put(what, payload.slice()));
  }

  /** Keep when the device comes by again; null: it stays connected. Of who was forgotten it would say when it was there. */
  putPace(pace: KeptPace | null): Promise<void> {
    return this.database.write(async (rows) => {
      if (pace === null) await rows.delete("pace");
      else if ((await rows.get("forgotten")) === undefined) await rows.put("pace", pace);
    });
  }

  pace(): Promise<KeptPace | null> {
    return this.database.read(async (rows) => (await rows.get<KeptPace>("pace")) ?? null);
  }

  /** Keep the version below which no model is to be used, and no model where the one there was is such a one. */
  putWithdrawal(below: number, removesModel: boolean): Promise<void> {
    return this.database.write(async (rows) => {
      await rows.put("withdrawn_below", below);
      if (removesModel) await rows.delete("model");
    });
  }

  withdrawnBelow(): Promise<number> {
    return this.database.read(async (rows) => (await rows.get<number>("withdrawn_below")) ?? 0);
  }

  /** Keep the newest message about the log of erasures; with the one that it contradicts, also as evidence. */
  putAuditHead(head: Bytes, contradicted: Bytes | null): Promise<void> {
    return this.database.write(async (rows) => {
      await rows.put("audit_head", head);
      if (contradicted === null) return;
      await rows.put("audit_head_before", contradicted);
      await rows.put("audit_head_after", head);
    });
  }

  /** Return the newest message about the log of erasures, then the last two that contradict each other, if any. */
  auditHeads(): Promise<Bytes[]> {
    return this.database.read(async (rows) => {
      const keys = ["audit_head", "audit_head_before", "audit_head_after"];
      const kept = await Promise.all(keys.map((key) => rows.get<Bytes>(key)));
      return kept.filter((payload) => payload !== undefined);
    });
  }

  /** Come under a policy: what is pending is given up, and all that was ever sent raw is spent and deleted. */
  putPolicy(signed: Bytes): Promise<void> {
    return this.database.write(async (rows) => {
      const bounds = await boundsIn(rows);
      const floor = learnedThrough(bounds);
      await done(rows.interactions.delete(IDBKeyRange.upperBound(floor)));
      await putBounds(rows, { ...bounds, watermark: null, floor, pending: null, counted: [] });
      await rows.put("policy", signed.slice());
    });
  }

  // --- being forgotten --------------------------------------------------------------------------------------------

  async isForgotten(): Promise<boolean> {
    const watermark = await this.database.read((rows) => rows.get<Bytes>("forgotten"));
    return watermark !== undefined && sameBytes(watermark, await this.markOf(watermark.slice(0, SALT_BYTES)));
  }

  /** Delete everything for good, and leave a mark: that this client was forgotten, as a salted hash of who it was. */
  async forget(): Promise<void> {
    const watermark = await this.markOf(crypto.getRandomValues(new Uint8Array(SALT_BYTES)));
    await this.database.write(async (rows) => {
      await done(rows.interactions.clear());
      // How far the wish is, in a word, stays: until there is a receipt it is sent at every start.
      for (const key of await rows.keys()) if (key !== "forget_state") await rows.delete(key);
      await rows.put("forgotten", watermark);
    });
  }

  /** Keep the user's wish to be forgotten, before anything of it is sent: whichever tab leads sends it, and no more. */
  askToBeForgotten(): Promise<void> {
    return this.database.write(async (rows) => {
      if ((await rows.get("forget_state")) !== undefined) return;
      await rows.put("forget_state", (await rows.get("forgotten")) === undefined ? "asked" : "erasing");
    });
  }

  /** Return how far the wish is, as far as it was stored; null where nobody asked in this browser. */
  forgetState(): Promise<ForgetState | null> {
    return this.database.read(async (rows) => (await rows.get<ForgetState>("forget_state")) ?? null);
  }

  /** Keep how far the wish is; null: it was refused, and the device goes on. */
  putForgetState(state: ForgetState | null): Promise<void> {
    return this.database.write((rows) => {
      return state === null ? rows.delete("forget_state") : rows.put("forget_state", state);
    });
  }

  private async markOf(salt: Bytes): Promise<Bytes> {
    return concat(salt, await sha256Of(concat(salt, new TextEncoder().encode(this.owner))));
  }

  // --- rows -------------------------------------------------------------------------------------------------------

  /** Return the numbers above the one and up to the other of interactions with the application's features of today. */
  private mine(rows: Rows, above: number, through: number, limit?: number): Promise<number[]> {
    if (!(through > above)) return Promise.resolve([]);
    const range = IDBKeyRange.bound([this.schemaHash, above], [this.schemaHash, through], true);
    return done(rows.interactions.index("schema").getAllKeys(range, limit)) as Promise<number[]>;
  }
}

/** Delete the oldest interactions of a range until there are no more than so many. */
async function trim(rows: Rows, range: IDBKeyRange, most: number): Promise<void> {
  const excess = (await done(rows.interactions.count(range))) - most;
  if (excess > 0) await remove(rows, await done(rows.interactions.getAllKeys(range, excess)));
}

async function remove(rows: Rows, ids: readonly IDBValidKey[]): Promise<void> {
  await Promise.all(ids.map((id) => done(rows.interactions.delete(id))));
}

async function boundsIn(rows: Rows): Promise<Bounds> {
  return (await rows.get<Bounds>("bounds")) ?? NO_BOUNDS;
}

function putBounds(rows: Rows, bounds: Bounds): Promise<void> {
  return rows.put("bounds", bounds);
}

async function raiseNumbers(rows: Rows, by: number): Promise<void> {
  const all: Interaction[] = await done(rows.interactions.getAll());
  await done(rows.interactions.clear());
  for (const interaction of all) await done(rows.interactions.add({ ...interaction, id: interaction.id + by }));
}

// The persistent state of a device: clicks, the unsent update and the newest model. Every change is one transaction.
//
// Interactions are numbered, and no number is used twice. Their state follows from numbers alone (`bounds`), so the
// device puts each click into at most one counted update. The federator's database guarantees it.

import { DataError } from "../errors.js";
import type { Gate, JudgedList } from "../learning/gate.js";
import { concat, sameBytes, sha256Of, type Bytes } from "../protocol/fields.js";
import { clicksOn, type Serp } from "../serps.js";
import {
  isChanged,
  learnedThrough,
  NO_BOUNDS,
  settle,
  type Bounds,
  type PendingUpdate,
  type SettledRound,
  type Settlement,
} from "./bounds.js";
import { keptRewards, raiseNumbers, remove, trim, type Interaction } from "./interactions.js";
import { KnowledgeStore, type Answered } from "./knowledge.js";
import { RecentLists, type Clicked, type RecentList } from "./recent_lists.js";
import { Database, done, type Rows } from "./rows.js";

/** Users read for minutes before they come back to a list; a later update costs only its delay. */
export const CLICK_WINDOW_S = 300;
const SALT_BYTES = 16;

/** Capacity limits of a store. */
export interface Limits {
  /** When this many wait, the oldest not yet in an update makes room for a new one. */
  readonly maxInteractions: number;
  /** Number of counted interactions to keep; the oldest are deleted. */
  readonly maxKept: number;
  /** Number of shown lists to keep for their clicks. */
  readonly maxRecent: number;
}

/** Makes the gate after a list from that before (undefined at first). */
export type Judge = (
  gate: Gate | undefined,
  list: JudgedList,
  clicks: readonly boolean[],
  before: Clicked | null,
) => Gate;

/** The store of one client, in one database; tabs may open it together. */
export class DeviceStore extends KnowledgeStore {
  /** The lists shown lately. */
  readonly recent: RecentLists;
  /** Whether interactions have what `Evaluator` reports of them. */
  keepsRewards = true;
  /** How long an interaction waits for more clicks before it is learned, in seconds; see `EdgeClientOptions`. */
  clickWindowS = 0;

  private constructor(
    database: Database,
    private readonly owner: string,
    private readonly limits: Limits,
    private readonly schemaHash: string,
  ) {
    super(database);
    this.recent = new RecentLists(database, schemaHash, limits.maxRecent);
  }

  /**
   * Open the store of a client.
   *
   * @param schemaHash of the application's features; empty if none are declared. Interactions recorded under another
   *   schema are kept but not learned, in case that schema returns.
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
   * Record clicks on a shown list, given as it was made or by its id, and return its interaction's number.
   *
   * Clicks add up. More of them replace the interaction, under a new number: an update that is being made of the other
   * is refused by `putUpdate`. Null if they change nothing. "lost" if they are new, and the list is in an update already
   * or made room for newer ones, or the client was forgotten.
   *
   * DataError: the list is not known (`RecentLists.find`), or a click is no position of it.
   *
   * @param judge of the gate, if there is one. The gate is stored with the list, or neither.
   */
  async record(shown: Serp | string, clicked: readonly number[], judge?: Judge): Promise<number | "lost" | null> {
    const recorded = await this.database.write(async (rows) => {
      if ((await rows.get("forgotten")) !== undefined) return "lost";
      const list = await this.recent.find(rows, shown);
      const { serp, before } = list;
      const clicks = clicksOn(serp, clicked).map((isNew, i) => isNew || (before?.clicks[i] ?? false));
      if (clicks.length === 0 || before?.clicks.join() === clicks.join()) return null;
      const bounds = await boundsIn(rows);
      const interaction = await this.interactionOf(rows, list, learnedThrough(bounds));
      if (interaction === null || interaction === "lost") return interaction;
      const id = bounds.newest + 1;
      const { credit, baseReward: _before, ...unrewarded } = interaction;
      const rewards = this.keepsRewards ? keptRewards(serp, clicks, credit) : {};
      await done(rows.interactions.add({ ...unrewarded, ...rewards, clicks, id, recordedAt: Date.now() }));
      await putBounds(rows, { ...bounds, newest: id });
      // When too many wait, the oldest make room.
      await trim(rows, IDBKeyRange.bound(learnedThrough(bounds), id, true), this.limits.maxInteractions);
      const gate = judge?.(await rows.get("gate"), serp, clicks, before); // the stored gate may be another tab's
      if (gate !== undefined) await rows.put("gate", gate);
      const nth = before?.nth ?? gate?.counts[serp.source].lists ?? null;
      await this.recent.putRecorded(rows, list, { clicks, nth });
      return { id, serpId: serp.serpId };
    });
    if (recorded === null || recorded === "lost") return recorded;
    this.recent.noteRecorded(recorded.serpId, shown);
    return recorded.id;
  }

  /** Return a list's interaction, taken out of the store if it was recorded before; null if it has another one. */
  private async interactionOf(
    rows: Rows,
    { serp, before }: RecentList,
    learned: number,
  ): Promise<Partial<Interaction> | "lost" | null> {
    const { serpId, ranking, reversals, logProbability, modelVersion: baseVersion, features, source } = serp;
    const stored: Interaction | undefined = await done(rows.interactions.index("serpId").get(serpId));
    if (before === null) {
      const { nFeatures, values } = features;
      const shown = { serpId, ranking, reversals, logProbability, baseVersion, nFeatures, features: values, source };
      return stored === undefined ? { ...shown, schemaHash: this.schemaHash } : null;
    }
    if (stored === undefined || stored.id <= learned) return "lost";
    await done(rows.interactions.delete(stored.id));
    return stored;
  }

  /** Return the gate after all lists so far; null before the first judged list. */
  gate(): Promise<Gate | null> {
    return this.database.read(async (rows) => (await rows.get<Gate>("gate")) ?? null);
  }

  /** Return the numbers of the oldest interactions that wait to be learned, and not for more clicks. */
  waitingIds(limit: number): Promise<number[]> {
    return this.database.read(async (rows) => {
      const firstOpen = ((await this.firstOpen(rows))?.primaryKey as number | undefined) ?? Infinity;
      return this.mine(rows, learnedThrough(await boundsIn(rows)), firstOpen - 1, limit);
    });
  }

  /** Return after how many seconds the next interaction no longer waits for clicks; infinity if none does. */
  nextWindowEndsInS(): Promise<number> {
    return this.database.read(async (rows) => {
      const first = await this.firstOpen(rows);
      return first === null ? Infinity : ((first.key as number) - Date.now()) / 1000 + this.clickWindowS;
    });
  }

  /** Return the first interaction that waits for more clicks; null without one. Those after it wait, too. */
  private async firstOpen(rows: Rows): Promise<IDBCursor | null> {
    if (this.clickWindowS === 0) return null;
    const now = Date.now(); // one that was set back ends the wait, so that none is longer than the window
    const range = IDBKeyRange.bound(now - 1000 * this.clickWindowS, now, true);
    return done(rows.interactions.index("recordedAt").openKeyCursor(range));
  }

  /** Return the interactions of these numbers, if they exist. */
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

  /** Count those of them that wait for more clicks. */
  nOpen(): Promise<number> {
    return this.database.read(async (rows) => {
      const first = (await this.firstOpen(rows))?.primaryKey as number | undefined;
      if (first === undefined) return 0;
      return (await this.mine(rows, Math.max(first - 1, learnedThrough(await boundsIn(rows))), Infinity)).length;
    });
  }

  /** Return the number of features of the newest waiting interaction; null without one. */
  newestWaitingWidth(): Promise<number | null> {
    return this.database.read(async (rows) => {
      const newest = (await this.mine(rows, learnedThrough(await boundsIn(rows)), Infinity)).at(-1);
      return newest === undefined ? null : (await done<Interaction>(rows.interactions.get(newest))).nFeatures;
    });
  }

  /** Return the numbers of counted interactions that are kept, oldest first. */
  keptIds(): Promise<number[]> {
    return this.database.read(async (rows) => {
      const { watermark } = await boundsIn(rows);
      return this.mine(rows, 0, watermark ?? 0);
    });
  }

  // --- unlearning ---------------------------------------------------------------------------------------------------

  /** Count an answer before it may be sent: for the day, for each interaction used, and for the job's erasures. */
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

  /** Take the watermark of an answer, see `bounds.settle`. */
  settle(watermark: number, answered: string | null = null, ends?: SettledRound): Promise<Settlement> {
    return this.database.write(async (rows) => {
      const settled = settle(await boundsIn(rows), watermark, answered, ends);
      if (!isChanged(settled.settlement)) return settled.settlement;
      if (settled.raisedBy > 0) await raiseNumbers(rows, settled.raisedBy);
      await putBounds(rows, settled.bounds);
      await trim(rows, IDBKeyRange.upperBound(watermark), this.limits.maxKept);
      return settled.settlement;
    });
  }

  // --- the unsent update ------------------------------------------------------------------------------------------

  /** Make an update the pending one. DataError if the waiting interactions or the watermark have changed. */
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
        throw new DataError("this device is under a policy: it sends no unmasked update");
      await putBounds(rows, { ...bounds, pending: update });
      // Interactions of another schema in between are in no update.
      const covered = await done(rows.interactions.getAllKeys(IDBKeyRange.bound(learned, update.through, true)));
      await remove(
        rows,
        covered.filter((id) => !waiting.includes(id as number)),
      );
    });
  }

  /** Replace the bytes of the pending update, signed with another key. */
  replacePayload(payload: Bytes): Promise<void> {
    return this.database.write(async (rows) => {
      const bounds = await boundsIn(rows);
      if (bounds.pending !== null) await putBounds(rows, { ...bounds, pending: { ...bounds.pending, payload } });
    });
  }

  /** Come under a policy: discard the pending update, and mark all interactions sent raw as spent and delete them. */
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

  /** Delete everything for good. Only a mark remains that this client was forgotten: a salted hash of its name. */
  async forget(): Promise<void> {
    const watermark = await this.markOf(crypto.getRandomValues(new Uint8Array(SALT_BYTES)));
    await this.database.write(async (rows) => {
      await done(rows.interactions.clear());
      await done(rows.lists.clear());
      // The progress stays: until a receipt comes the request is sent at every start.
      for (const key of await rows.keys()) if (key !== "forget_state") await rows.delete(key);
      await rows.put("forgotten", watermark);
    });
  }

  private async markOf(salt: Bytes): Promise<Bytes> {
    return concat(salt, await sha256Of(concat(salt, new TextEncoder().encode(this.owner))));
  }

  // --- rows -------------------------------------------------------------------------------------------------------

  /** Return the numbers above one and up to the other of interactions with the application's present features. */
  private mine(rows: Rows, above: number, through: number, limit?: number): Promise<number[]> {
    if (!(through > above)) return Promise.resolve([]);
    const range = IDBKeyRange.bound([this.schemaHash, above], [this.schemaHash, through], true);
    return done(rows.interactions.index("schema").getAllKeys(range, limit)) as Promise<number[]>;
  }
}

async function boundsIn(rows: Rows): Promise<Bounds> {
  return (await rows.get<Bounds>("bounds")) ?? NO_BOUNDS;
}

function putBounds(rows: Rows, bounds: Bounds): Promise<void> {
  return rows.put("bounds", bounds);
}

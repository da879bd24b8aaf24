// A device keeps the lists that it has shown lately, so that their clicks can be recorded by id, also after a reload.
//
// edge_client/store/recent_lists.py is the same. A list is written right after it was shown; ranking does not wait. A
// list without clicks is kept for a day, and only if it is one of the newest. A recorded list is an interaction; its row
// here has the clicks, so that a repetition is recognised and later clicks are added.

import { DataError } from "../errors.js";
import { causeOf, type Log } from "../log.js";
import type { Serp } from "../serps.js";
import { done, type Database, type Rows } from "./rows.js";

export const KEPT_LISTS = 1000;
const KEPT_MS = 24 * 3600 * 1000;

/** What was recorded of a list so far. */
export interface Clicked {
  readonly clicks: readonly boolean[];
  /** Which of its source's lists it was for the gate, from 1; null if no gate has judged it. */
  readonly nth: number | null;
}

/** A list that may get clicks. */
export interface RecentList {
  /** Of the stored ones, the later the higher. */
  readonly number?: number;
  readonly serpId: string;
  /** Without its features once it is recorded: its interaction has them. */
  readonly serp: Serp;
  /** Milliseconds since the epoch. */
  readonly shownAt: number;
  readonly schemaHash: string;
  /** Null before its first clicks. */
  readonly before: Clicked | null;
}

/** The newest lists of one device. */
export class RecentLists {
  /** Of the application's lists; null if it did not say. */
  nFeatures: number | null = null;
  log: Log = () => undefined;
  private readonly unsaved = new Map<string, RecentList>();
  // Made here and not recorded yet: an application may hold such a list for longer than it is kept.
  private readonly fresh = new WeakSet<Serp>();
  private saving: Promise<void> | null = null;

  /** @param most how many are kept. */
  constructor(
    private readonly database: Database,
    private readonly schemaHash: string,
    private readonly most: number,
  ) {}

  /** Keep a list that is about to be shown. */
  remember(serp: Serp): void {
    this.fresh.add(serp);
    this.unsaved.set(serp.serpId, this.rowOf(serp));
    if (this.unsaved.size > this.most) this.unsaved.delete(this.unsaved.keys().next().value!);
    this.saving ??= this.save().finally(() => (this.saving = null));
  }

  /** Await the lists that are being written. */
  async saved(): Promise<void> {
    await this.saving;
  }

  /**
   * Return a list, given as it was made or by its id.
   *
   * DataError: it is not kept: another client's, or too old; or of other features than the application's.
   */
  async find(rows: Rows, shown: Serp | string): Promise<RecentList> {
    const serpId: unknown = typeof shown === "string" ? shown : shown?.serpId;
    if (typeof serpId !== "string") throw new DataError("serp: expected what `rank` returned, or its serpId");
    const held = this.fresh.has(shown as Serp) ? this.rowOf(shown as Serp) : undefined;
    // The stored one first: another tab may have recorded it.
    const found =
      (await done<RecentList | undefined>(rows.lists.index("serpId").get(serpId))) ?? this.unsaved.get(serpId) ?? held;
    const named = `list ${serpId.slice(0, 40)}`;
    if (found === undefined) {
      throw new DataError(
        `serp: no ${named} is known: another client made it, or it was shown more than a day or ${this.most} lists ` +
          "ago. Rank again, and show the new list",
      );
    }
    if (found.schemaHash !== this.schemaHash)
      throw new DataError(`serp: ${named} has the features of another schema; rank again`);
    const { nFeatures } = found.serp.features;
    if (this.nFeatures !== null && nFeatures > 0 && nFeatures !== this.nFeatures)
      throw new DataError(`serp: it has ${nFeatures} features, but this application set nFeatures=${this.nFeatures}`);
    return found;
  }

  /** Store in the transaction of its interaction that a list was recorded. */
  async putRecorded(rows: Rows, list: RecentList, before: Clicked): Promise<void> {
    const features = { ...list.serp.features, values: new Float32Array() };
    await done(rows.lists.put({ ...list, serp: { ...list.serp, features }, before }));
    await this.trim(rows);
  }

  /** Keep a list only in the database: its interaction is stored. */
  noteRecorded(serpId: string, shown: Serp | string): void {
    this.unsaved.delete(serpId);
    this.fresh.delete(shown as Serp);
  }

  private rowOf(serp: Serp): RecentList {
    return { serpId: serp.serpId, serp, shownAt: Date.now(), schemaHash: this.schemaHash, before: null };
  }

  /** Save what was not saved yet, and delete what is too old. A full disk is logged: clicks come first. */
  private async save(): Promise<void> {
    while (this.unsaved.size > 0) {
      const lists = [...this.unsaved.values()];
      try {
        await this.database.write(async (rows) => {
          if ((await rows.get("forgotten")) !== undefined) return;
          for (const list of lists) {
            // It may be recorded by now.
            if ((await done(rows.lists.index("serpId").getKey(list.serpId))) === undefined)
              await done(rows.lists.add(list));
          }
          await this.trim(rows);
        });
      } catch (error) {
        return this.log("warning", "lists_not_saved", { n: lists.length, cause: causeOf(error) });
      }
      for (const { serpId } of lists) this.unsaved.delete(serpId);
    }
  }

  /** Delete the oldest lists beyond so many, and those that were shown more than a day ago. */
  private async trim({ lists }: Rows): Promise<void> {
    const excess = (await done(lists.count())) - this.most;
    const many = excess > 0 ? await done(lists.getAllKeys(null, excess)) : [];
    const old = await done(lists.index("shownAt").getAllKeys(IDBKeyRange.upperBound(Date.now() - KEPT_MS)));
    await Promise.all([...many, ...old].map((number) => done(lists.delete(number))));
  }
}

// A device's store is an IndexedDB database: its object stores, its transactions, and promises in place of events.

import { DataError } from "../errors.js";

const VERSION = 1;

/**
 * What is in the database: `meta` has one value for each key, `interactions` the lists with their clicks, by number.
 */
type StoreName = "meta" | "interactions";

/** The rows within one transaction. It ends by itself once nothing is asked of it: await nothing else in between. */
export class Rows {
  constructor(private readonly transaction: IDBTransaction) {}

  get<T>(key: string): Promise<T | undefined> {
    return done(this.store("meta").get(key));
  }

  async put(key: string, value: unknown): Promise<void> {
    await done(this.store("meta").put(value, key));
  }

  async delete(key: string): Promise<void> {
    await done(this.store("meta").delete(key));
  }

  keys(): Promise<string[]> {
    return done(this.store("meta").getAllKeys()) as Promise<string[]>;
  }

  get interactions(): IDBObjectStore {
    return this.store("interactions");
  }

  private store(name: StoreName): IDBObjectStore {
    return this.transaction.objectStore(name);
  }
}

/** Await a request. */
export function done<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** The database of one client; every tab of an origin may have it open. */
export class Database {
  private constructor(
    private readonly db: IDBDatabase,
    readonly name: string,
  ) {}

  /** Open the database, made where it is missing. DataError where the browser keeps none, say in a private window. */
  static async open(name: string, factory: IDBFactory): Promise<Database> {
    try {
      const request = factory.open(name, VERSION);
      request.onupgradeneeded = () => {
        request.result.createObjectStore("meta");
        const interactions = request.result.createObjectStore("interactions", { keyPath: "id" });
        interactions.createIndex("serpId", "serpId", { unique: true });
        interactions.createIndex("schema", ["schemaHash", "id"]);
      };
      return new Database(await done(request as IDBRequest<IDBDatabase>), name);
    } catch (error) {
      throw new DataError(
        `device store ${name}: ${(error as Error).message}. Does this browser keep data for the page?`,
      );
    }
  }

  /** Read, by one view of all rows. */
  read<T>(body: (rows: Rows) => Promise<T>): Promise<T> {
    return this.run("readonly", body);
  }

  /** Change rows in one transaction, on disk when it returns; or nothing happened, and DataError says why. */
  write<T>(body: (rows: Rows) => Promise<T>): Promise<T> {
    return this.run("readwrite", body);
  }

  close(): void {
    this.db.close();
  }

  private async run<T>(mode: IDBTransactionMode, body: (rows: Rows) => Promise<T>): Promise<T> {
    try {
      // A browser may else say that it is done before the disk has it.
      const transaction = this.db.transaction(["meta", "interactions"], mode, { durability: "strict" });
      const ended = new Promise<void>((resolve, reject) => {
        transaction.oncomplete = () => resolve();
        transaction.onabort = () => reject(transaction.error ?? new Error("the transaction was aborted"));
      });
      const result = await body(new Rows(transaction)).catch((error: unknown) => {
        ended.catch(() => undefined); // the cause is thrown in its place
        abort(transaction);
        throw error;
      });
      await ended;
      return result;
    } catch (error) {
      if (error instanceof DataError) throw error;
      throw new DataError(`device store ${this.name}: ${(error as Error).message}. Nothing was changed`);
    }
  }
}

function abort(transaction: IDBTransaction): void {
  try {
    transaction.abort();
  } catch {
    // It was aborted by what failed in it.
  }
}

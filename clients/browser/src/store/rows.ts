// The IndexedDB database of a device's store: object stores, transactions, and promises instead of events.

import { DataError } from "../errors.js";

const VERSION = 3;

/** `meta` has one value for each key, `interactions` recorded lists by number, `lists` the lists shown lately. */
type StoreName = "meta" | "interactions" | "lists";

/** The rows within one transaction. It ends when no request is pending, so await nothing else in between. */
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

  get lists(): IDBObjectStore {
    return this.store("lists");
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

/** The database of one client; every tab of an origin may open it. */
export class Database {
  private constructor(
    private readonly db: IDBDatabase,
    readonly name: string,
  ) {}

  /** Open the database, creating it if needed. DataError if the browser keeps none, for example in a private window. */
  static async open(name: string, factory: IDBFactory): Promise<Database> {
    try {
      const request = factory.open(name, VERSION);
      request.onupgradeneeded = ({ oldVersion }) => {
        if (oldVersion < 1) {
          request.result.createObjectStore("meta");
          const interactions = request.result.createObjectStore("interactions", { keyPath: "id" });
          interactions.createIndex("serpId", "serpId", { unique: true });
          interactions.createIndex("schema", ["schemaHash", "id"]);
        }
        if (oldVersion < 2) {
          const lists = request.result.createObjectStore("lists", { keyPath: "number", autoIncrement: true });
          lists.createIndex("serpId", "serpId", { unique: true });
          lists.createIndex("shownAt", "shownAt");
        }
        request.transaction!.objectStore("interactions").createIndex("recordedAt", "recordedAt");
      };
      const db = await done(request as IDBRequest<IDBDatabase>);
      db.onversionchange = () => db.close(); // a tab with a newer version of this client must not wait for this one
      return new Database(db, name);
    } catch (error) {
      throw new DataError(
        `device store ${name}: ${(error as Error).message}. Does this browser keep data for the page?`,
      );
    }
  }

  /** Read from a consistent view of all rows. */
  read<T>(body: (rows: Rows) => Promise<T>): Promise<T> {
    return this.run("readonly", body);
  }

  /** Change rows in one transaction, on disk when it returns. On DataError nothing has changed. */
  write<T>(body: (rows: Rows) => Promise<T>): Promise<T> {
    return this.run("readwrite", body);
  }

  close(): void {
    this.db.close();
  }

  private async run<T>(mode: IDBTransactionMode, body: (rows: Rows) => Promise<T>): Promise<T> {
    try {
      // Otherwise a browser may report success before the data is on disk.
      const transaction = this.db.transaction(["meta", "interactions", "lists"], mode, { durability: "strict" });
      const ended = new Promise<void>((resolve, reject) => {
        transaction.oncomplete = () => resolve();
        transaction.onabort = () => reject(transaction.error ?? new Error("the transaction was aborted"));
      });
      const result = await body(new Rows(transaction)).catch((error: unknown) => {
        ended.catch(() => undefined); // the cause is thrown instead
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
    // The failure aborted it already.
  }
}

// IndexedDB for Node.js that survives the process: writes are in a file before `Database.write` returns.
//
// Browsers are as durable. fake-indexeddb is in memory only, and a test that kills a device needs a disk.

import { closeSync, existsSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import { deserialize, serialize } from "node:v8";

import "fake-indexeddb/auto";

import { Database, done, type Rows } from "../../src/store/rows.js";

interface Snapshot {
  readonly meta: [string, unknown][];
  readonly interactions: unknown[];
  readonly lists: unknown[];
}

/** Keep the database of one client in a file from its opening on, and return it. */
export async function persistIn(path: string, databaseName: string): Promise<Database> {
  const database = await Database.open(databaseName, indexedDB);
  if (existsSync(path)) await restore(database, deserialize(readFileSync(path)) as Snapshot);
  const write = Database.prototype.write;
  let last: Promise<unknown> = Promise.resolve();
  Database.prototype.write = async function <T>(body: (rows: Rows) => Promise<T>): Promise<T> {
    const result = await write.call(this, body);
    last = last.then(async () => save(path, await snapshotOf(database)));
    await last;
    return result as T;
  };
  return database;
}

function restore(database: Database, snapshot: Snapshot): Promise<void> {
  return database.write(async (rows) => {
    for (const [key, value] of snapshot.meta) await rows.put(key, value);
    for (const interaction of snapshot.interactions) await done(rows.interactions.put(interaction));
    for (const list of snapshot.lists) await done(rows.lists.put(list));
  });
}

function snapshotOf(database: Database): Promise<Snapshot> {
  return database.read(async (rows) => {
    const meta: [string, unknown][] = [];
    for (const key of await rows.keys()) meta.push([key, await rows.get(key)]);
    return {
      meta,
      interactions: await done(rows.interactions.getAll()),
      lists: await done(rows.lists.getAll()),
    };
  });
}

function save(path: string, snapshot: Snapshot): void {
  const file = openSync(`${path}.new`, "w");
  writeSync(file, serialize(snapshot));
  fsyncSync(file);
  closeSync(file);
  renameSync(`${path}.new`, path);
}

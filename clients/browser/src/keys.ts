// A device's key is made in the browser and stays there; the operator enrols its public half.

import { done } from "./store/rows.js";
import { generateKey, hasEd25519, type KeptKey } from "./protocol/signing.js";
import { toHex } from "./protocol/fields.js";

const DATABASE = "foltr-keys";
const STORE = "keys";

/** The public facts about a device's key. */
export interface DeviceKey {
  /** 64 hexadecimal digits, for `foltr device enrol NAME --public-key`. */
  readonly publicKey: string;
  /** Whether scripts of the page can read the private key: only if the browser's WebCrypto has no Ed25519. */
  readonly isExtractable: boolean;
}

/** Return this browser's key of a label, made on the first call. */
export async function deviceKey(label = "device", factory: IDBFactory = indexedDB): Promise<DeviceKey> {
  const key = await keptKey(label, factory);
  return { publicKey: toHex(key.publicKey), isExtractable: key.kind === "portable" };
}

/** Return the key itself. If two tabs make one at once, both get the one stored first. */
export async function keptKey(label: string, factory: IDBFactory): Promise<KeptKey> {
  const db = await open(factory);
  try {
    const stored = await read(db, label);
    if (stored !== undefined) return stored;
    const made = await generateKey(await hasEd25519());
    try {
      await done(db.transaction(STORE, "readwrite", { durability: "strict" }).objectStore(STORE).add(made, label));
    } catch (error) {
      if ((error as Error).name !== "ConstraintError") throw error;
    }
    return (await read(db, label))!;
  } finally {
    db.close();
  }
}

async function open(factory: IDBFactory): Promise<IDBDatabase> {
  const request = factory.open(DATABASE, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE);
  return done(request as IDBRequest<IDBDatabase>);
}

function read(db: IDBDatabase, label: string): Promise<KeptKey | undefined> {
  return done(db.transaction(STORE, "readonly").objectStore(STORE).get(label));
}

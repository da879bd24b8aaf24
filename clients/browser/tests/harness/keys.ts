// A device's key for tests in Node.js: kept as a seed in a file, used as the CryptoKey that a browser would have.

import { fromHex, type Bytes } from "../../src/protocol/fields.js";
import type { KeptKey } from "../../src/protocol/signing.js";

/** Return the key of a seed, not extractable. */
export async function keyOf(seed: Bytes, publicKey: Bytes): Promise<KeptKey> {
  const pkcs8 = Uint8Array.from([...fromHex("302e020100300506032b657004220420"), ...seed]);
  const privateKey = await crypto.subtle.importKey("pkcs8", pkcs8, "Ed25519", false, ["sign"]);
  return { kind: "webcrypto", privateKey, publicKey };
}

/** Put a key where `deviceKey` finds it. */
export async function keep(key: KeptKey, label = "device"): Promise<void> {
  const request = indexedDB.open("foltr-keys", 1);
  request.onupgradeneeded = () => request.result.createObjectStore("keys");
  const db = await new Promise<IDBDatabase>((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  await new Promise<void>((resolve, reject) => {
    const transaction = db.transaction("keys", "readwrite");
    transaction.objectStore("keys").put(key, label);
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error);
  });
  db.close();
}

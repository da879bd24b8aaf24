// Ed25519 keys: a device's key signs what it sends; those of the federator and the operator are trusted.
//
// WebCrypto signs and verifies if the browser supports Ed25519, with a private key that no script can read. Otherwise
// @noble/ed25519 is loaded for both, and the private key is 32 bytes that scripts of the page can read.

import { concat, type Bytes } from "./fields.js";

export const KEY_BYTES = 32;
export const SIGNATURE_BYTES = 64;
const DOMAIN = new TextEncoder().encode("foltr message 1\n");
const NEWLINE = new Uint8Array([10]);
// Steps within one session. The last one is for the last will, which is signed when the session begins.
export const SESSION_STEPS = 1n << 16n;
// Sessions are milliseconds, so this is the year 2248.
const LATEST_SESSION = 1n << 43n;
const EPOCH_BITS = 30n;

/** A device's key as stored in IndexedDB, which keeps a CryptoKey without exposing it. */
export type KeptKey = { readonly publicKey: Bytes } & (
  { readonly kind: "webcrypto"; readonly privateKey: CryptoKey } | { readonly kind: "portable"; readonly seed: Bytes }
);

const noble = () => import("@noble/ed25519");

/** Return whether this browser signs with keys that no script can read. */
export async function hasEd25519(): Promise<boolean> {
  try {
    await crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"]);
    return true;
  } catch {
    return false;
  }
}

/** Make a key, not exportable if the browser supports that. */
export async function generateKey(native: boolean): Promise<KeptKey> {
  if (!native) {
    const { secretKey, publicKey } = await (await noble()).keygenAsync();
    return { kind: "portable", seed: secretKey, publicKey };
  }
  const pair = (await crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"])) as CryptoKeyPair;
  const publicKey = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  return { kind: "webcrypto", privateKey: pair.privateKey, publicKey };
}

export async function sign(key: KeptKey, data: Bytes): Promise<Bytes> {
  if (key.kind === "portable") return (await noble()).signAsync(data, key.seed);
  return new Uint8Array(await crypto.subtle.sign("Ed25519", key.privateKey, data));
}

/** Return whether `signature` is this key's for `data`; false for invalid input of any length. */
export type Verify = (publicKey: Bytes, data: Bytes, signature: Bytes) => Promise<boolean>;

export const verifyNatively = falseForWrong(async (publicKey, data, signature) => {
  const key = await crypto.subtle.importKey("raw", publicKey, "Ed25519", false, ["verify"]);
  return crypto.subtle.verify("Ed25519", key, signature, data);
});

export const verifyPortably = falseForWrong(async (publicKey, data, signature) => {
  // The rules of RFC 8032, like the federator's library; the default here is laxer.
  return (await noble()).verifyAsync(signature, data, publicKey, { zip215: false });
});

function falseForWrong(verify: Verify): Verify {
  return async (publicKey, data, signature) => {
    if (publicKey.length !== KEY_BYTES || signature.length !== SIGNATURE_BYTES) return false;
    return verify(publicKey, data, signature).catch(() => false);
  };
}

/** Return the bytes that are signed. No topic or kind holds a line break, so no two messages share these bytes. */
export function signedBytes(topic: string, kind: string, sequence: bigint, body: Bytes): Bytes {
  const encoder = new TextEncoder();
  const number = new Uint8Array(8);
  new DataView(number.buffer).setBigUint64(0, sequence);
  return concat(DOMAIN, encoder.encode(topic), NEWLINE, encoder.encode(kind), NEWLINE, number, body);
}

/** Split a federator's sequence number into the federation's epoch and the message's number. */
export function epochAndNumber(sequence: bigint): [bigint, bigint] {
  return [sequence >> EPOCH_BITS, sequence & ((1n << EPOCH_BITS) - 1n)];
}

/** A device's sequence number rises within a session, and every session begins above the one before. */
export class SessionSequence {
  private step = 0n;

  /** @param session the newest one; the next begins above it. If the store was lost, the clock replaces it. */
  constructor(public session = 0n) {}

  /** Begin a session. Returns it, to be stored before anything is sent. */
  beginSession(): bigint {
    const now = BigInt(Date.now());
    this.session = this.session + 1n > now ? this.session + 1n : now;
    this.step = 0n;
    return this.session;
  }

  /**
   * Make the next session begin above `seen`, which the federator has received from this client.
   *
   * A number that no real session can have is ignored: there might be no room above it.
   */
  beginAbove(seen: bigint): void {
    const session = seen / SESSION_STEPS;
    if (session < LATEST_SESSION && session > this.session) this.session = session;
  }

  next(): bigint {
    // A session that lasts for years stays below its own last will.
    this.step = this.step + 1n < SESSION_STEPS - 2n ? this.step + 1n : SESSION_STEPS - 2n;
    return this.session * SESSION_STEPS + this.step;
  }

  /** Above everything else this session sends, below the next session. */
  lastWill(): bigint {
    return this.session * SESSION_STEPS + SESSION_STEPS - 1n;
  }
}

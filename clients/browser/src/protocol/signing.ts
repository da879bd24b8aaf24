// Ed25519 keys tell who is who. A device's key signs what it sends; the federator's and the operator's are believed.
//
// WebCrypto signs and verifies where the browser has Ed25519 there, with a private key that no script can read. Where
// it has not, @noble/ed25519 does both, and the private key is 32 bytes that scripts of the page can read. It is loaded
// only there.

import { concat, type Bytes } from "./fields.js";

export const KEY_BYTES = 32;
export const SIGNATURE_BYTES = 64;
const DOMAIN = new TextEncoder().encode("foltr message 1\n");
const NEWLINE = new Uint8Array([10]);
// Steps within one session; the last one is for the last will, which is signed when the session begins.
export const SESSION_STEPS = 1n << 16n;
// Sessions are milliseconds: the year 2248.
const LATEST_SESSION = 1n << 43n;
const EPOCH_BITS = 30n;

/** A device's key as it is kept in IndexedDB, which stores a CryptoKey without ever showing it. */
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

/** Make a key: one that cannot be exported, where the browser can. */
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

/** Return whether `signature` is this key's for `data`; false for anything else, whatever its length. */
export type Verify = (publicKey: Bytes, data: Bytes, signature: Bytes) => Promise<boolean>;

export const verifyNatively = falseForWrong(async (publicKey, data, signature) => {
  const key = await crypto.subtle.importKey("raw", publicKey, "Ed25519", false, ["verify"]);
  return crypto.subtle.verify("Ed25519", key, signature, data);
});

export const verifyPortably = falseForWrong(async (publicKey, data, signature) => {
  // The rules of RFC 8032, as the federator's library has them; not the laxer ones that are the default here.
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

/** Take apart a federator's sequence number: the claim of the federation, and which of its messages. */
export function epochAndNumber(sequence: bigint): [bigint, bigint] {
  return [sequence >> EPOCH_BITS, sequence & ((1n << EPOCH_BITS) - 1n)];
}

/** A device's sequence rises within a session, and every session begins above the one before. */
export class SessionSequence {
  private step = 0n;

  /** @param session the newest one, to begin above; a store that was lost is made up for by the clock. */
  constructor(public session = 0n) {}

  /** Begin a session; returns it, to be stored before anything is sent. */
  beginSession(): bigint {
    const now = BigInt(Date.now());
    this.session = this.session + 1n > now ? this.session + 1n : now;
    this.step = 0n;
    return this.session;
  }

  /**
   * Let the next session begin above `seen`, which the federator has seen from this client.
   *
   * One that no session of ours can have had is passed over: above it there may be no room, for ever.
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

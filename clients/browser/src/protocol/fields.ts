// The fields of messages: checks of values from the wire, and the wire form of a vector.
//
// A `Check` returns the value in this side's form, or throws a MessageError that names the field without the value.

import { MessageError } from "../errors.js";

export type Bytes = Uint8Array<ArrayBuffer>;
export type Check<T> = (value: unknown, place: string) => T;
export type Shape = Record<string, Check<unknown>>;
export type Fields<S extends Shape> = { [K in keyof S]: ReturnType<S[K]> };

export const MAX_ABS_DELTA = 1e6;
export const MAX_MESSAGE_BYTES = 256 * 1024;
export const MAX_DIM = 4_000_000;
const NAME_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const UPDATE_ID_PATTERN = /^[0-9a-f]{32}$/;
const UNPRINTABLE = /[\x00-\x1f\x7f-\x9f\u2028\u2029]/;

function wrong(place: string, expected: string): MessageError {
  return new MessageError("malformed", `${place}: it is not ${expected}`);
}

/** Integers that a double holds exactly: counts, watermarks, lengths. */
export function integer(low: number, high: number): Check<number> {
  return (value, place) => {
    const number = typeof value === "bigint" ? Number(value) : value;
    if (typeof number !== "number" || !Number.isInteger(number) || number < low || number > high) {
      throw wrong(place, `an integer from ${low} to ${high}`);
    }
    return number;
  };
}

/** A sender's sequence number, up to 2^63 - 1, which a double cannot hold. */
export const sequenceNumber: Check<bigint> = (value, place) => {
  if (typeof value !== "bigint" && !(typeof value === "number" && Number.isSafeInteger(value))) {
    throw wrong(place, "a sequence number");
  }
  const number = BigInt(value);
  if (number < 0n || number >= 1n << 63n) throw wrong(place, "an integer from 0 to 2^63 - 1");
  return number;
};

export function number(low: number, high: number): Check<number> {
  return (value, place) => {
    const double = typeof value === "bigint" ? Number(value) : value;
    if (typeof double !== "number" || !(double >= low && double <= high)) {
      throw wrong(place, `a number from ${low} to ${high}`);
    }
    return double;
  };
}

export const boolean: Check<boolean> = (value, place) => {
  if (typeof value !== "boolean") throw wrong(place, "true or false");
  return value;
};

export function text(longest: number): Check<string> {
  return (value, place) => {
    if (typeof value !== "string" || [...value].length > longest || UNPRINTABLE.test(value)) {
      throw wrong(place, `printable text of at most ${longest} characters`);
    }
    return value;
  };
}

function matching(pattern: RegExp, what: string): Check<string> {
  return (value, place) => {
    if (typeof value !== "string" || !pattern.test(value)) throw wrong(place, what);
    return value;
  };
}

export function bytes(shortest: number, longest: number): Check<Bytes> {
  return (value, place) => {
    if (!(value instanceof Uint8Array) || value.length < shortest || value.length > longest) {
      throw wrong(place, `${shortest} to ${longest} bytes`);
    }
    return value as Bytes;
  };
}

/** Absent and null both become `otherwise`, like the default of a Python field. */
export function optional<T, D extends T | null | undefined>(check: Check<T>, otherwise: D): Check<T | D> {
  return (value, place) => (value === undefined || value === null ? otherwise : check(value, place));
}

/** A field that this side never sets, but the federation's own software may. */
export const nothing: Check<null> = (value, place) => {
  if (value !== undefined && value !== null) throw wrong(place, "null");
  return null;
};

export function literal<L extends string>(...allowed: L[]): Check<L> {
  return (value, place) => {
    if (!allowed.includes(value as L)) throw wrong(place, `one of ${allowed.join(", ")}`);
    return value as L;
  };
}

export function listOf<T>(check: Check<T>, longest: number): Check<T[]> {
  return (value, place) => {
    if (!Array.isArray(value) || value.length > longest) throw wrong(place, `a list of at most ${longest} items`);
    return value.map((item, i) => check(item, `${place}.${i}`));
  };
}

/** A map of exactly these fields; missing ones get their default. */
export function map<S extends Shape>(shape: S): Check<Fields<S>> {
  return (value, place) => {
    if (!isMap(value)) throw wrong(place, "a map");
    const unknown = Object.keys(value).find((key) => !(key in shape));
    if (unknown !== undefined)
      throw new MessageError("malformed", `${place}: a field is unknown here: ${shown(unknown)}`);
    const entries = Object.entries(shape).map(([key, check]) => [key, check(value[key], `${place}.${key}`)]);
    return Object.fromEntries(entries) as Fields<S>;
  };
}

/** One of several maps, distinguished by `kind`; `others` handles unknown ones. */
export function union<U extends Record<string, Check<{ kind: string }>>, O>(
  members: U,
  others: Check<O>,
): Check<ReturnType<U[keyof U]> | O> {
  return (value, place) => {
    const kind = isMap(value) ? value["kind"] : undefined;
    const known = typeof kind === "string" && Object.hasOwn(members, kind) ? members[kind] : undefined;
    return (known ?? others)(value, place) as ReturnType<U[keyof U]> | O;
  };
}

export function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}

/** The beginning of a peer's name for something, made safe to store and show. */
export function shown(name: string): string {
  return [...name.slice(0, 40)].map((letter) => (UNPRINTABLE.test(letter) ? "?" : letter)).join("");
}

export const name = matching(NAME_PATTERN, "a name");
export const updateId = matching(UPDATE_ID_PATTERN, "an update's id: 32 hexadecimal digits");
export const count = integer(0, 2 ** 31 - 1);
export const watermark = integer(0, 2 ** 48);
export const dim = integer(1, MAX_DIM);
export const timestamp = number(0, 1e11);
export const detail = text(500);
export const rate = number(Number.MIN_VALUE, 100);
export const publicKey = bytes(32, 32);
export const sha256 = bytes(32, 32);
export const modelHash = bytes(16, 16);

/** Return the wire form of a vector: little-endian float32. */
export function packVector(values: ArrayLike<number>): Bytes {
  const packed = new Uint8Array(4 * values.length);
  const view = new DataView(packed.buffer);
  for (let i = 0; i < values.length; i++) view.setFloat32(4 * i, values[i], true);
  return packed;
}

/** Return a copy of a wire vector. */
export function unpackVector(data: Bytes): Float32Array<ArrayBuffer> {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  return Float32Array.from({ length: data.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

export async function sha256Of(data: Bytes): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", data));
}

/** Return the first 16 bytes of the SHA-256, which identify a message or a model's weights. */
export async function shortHash(data: Bytes): Promise<Bytes> {
  return (await sha256Of(data)).slice(0, 16);
}

export function sameBytes(left: Uint8Array, right: Uint8Array): boolean {
  return left.length === right.length && left.every((byte, i) => byte === right[i]);
}

export function concat(...parts: ArrayLike<number>[]): Bytes {
  const whole = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export function toHex(data: Uint8Array): string {
  return [...data].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function fromHex(hex: string): Bytes {
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** Decode a base64 text. Null for invalid text. */
export function fromBase64(encoded: string): Bytes | null {
  try {
    return Uint8Array.from(atob(encoded.trim()), (letter) => letter.charCodeAt(0));
  } catch {
    return null;
  }
}

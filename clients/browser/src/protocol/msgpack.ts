// The subset of MessagePack that messages use: no extensions, text keys, each key once.
//
// A complete package would be a fifth of what a page loads; tests compare with one.

import { concat, isMap, type Bytes } from "./fields.js";

const MAX_FIELDS = 64;
const MAX_LIST = 1000;
const MAX_DEPTH = 16;

/**
 * Pack a value as Python does: integers in as few bytes as possible, for any JavaScript type.
 *
 * A key whose value is undefined is left out.
 */
export function pack(value: unknown): Bytes {
  const parts: ArrayLike<number>[] = [];
  put(value, parts);
  return concat(...parts);
}

/** Return the value in `data`. Throws for invalid MessagePack, trailing bytes, or features that messages do not use. */
export function unpack(data: Bytes): unknown {
  const reader = new Reader(data);
  const value = reader.read(MAX_DEPTH);
  if (reader.at < data.length) throw new RangeError("extra bytes follow it");
  return value;
}

function put(value: unknown, parts: ArrayLike<number>[]): void {
  if (typeof value === "string") {
    const text = new TextEncoder().encode(value);
    parts.push(headOf(text.length, 0xa0, 32, 0xd9), text);
  } else if (value instanceof Uint8Array) parts.push(headOf(value.length, 0, 0, 0xc4), value);
  else if (Array.isArray(value)) {
    parts.push(headOf(value.length, 0x90, 16, 0xdb, 1));
    for (const each of value) put(each, parts);
  } else if (isMap(value)) {
    const entries = Object.entries(value).filter(([, each]) => each !== undefined);
    parts.push(headOf(entries.length, 0x80, 16, 0xdd, 1));
    for (const [key, each] of entries) (put(key, parts), put(each, parts));
  } else if (typeof value === "bigint" || Number.isSafeInteger(value)) parts.push(integerOf(BigInt(value as number)));
  else if (typeof value === "number") parts.push([0xcb, ...new Uint8Array(Float64Array.of(value).buffer).reverse()]);
  else parts.push([value === null ? 0xc0 : value ? 0xc3 : 0xc2]);
}

/**
 * Return the header of a text, byte string, list or map of a length.
 *
 * @param short the byte that holds a length below `limit` too.
 * @param tag precedes a length of 1 byte; the next two those of 2 and 4.
 * @param least 1 if a length of 1 byte does not exist.
 */
function headOf(length: number, short: number, limit: number, tag: number, least = 0): number[] {
  if (length < limit) return [short | length];
  const power = Math.max(least, length < 0x100 ? 0 : length < 0x10000 ? 1 : 2);
  return [tag + power, ...bigEndian(BigInt(length), power)];
}

function integerOf(value: bigint): number[] {
  if (value >= -32n && value < 128n) return bigEndian(value, 0);
  const [tag, cut] = value < 0n ? [0xd0, BigInt.asIntN] : [0xcc, BigInt.asUintN];
  const power = [0, 1, 2, 3].find((each) => cut(8 << each, value) === value);
  if (power === undefined) throw new RangeError("an integer has at most 64 bits");
  return [tag + power, ...bigEndian(value, power)];
}

/** Return the 2 ** power bytes of an integer. */
function bigEndian(value: bigint, power: number): number[] {
  const bytes = Array.from({ length: 1 << power }, (_, i) => Number((value >> BigInt(8 * i)) & 255n));
  return bytes.reverse();
}

class Reader {
  at = 0;

  constructor(private readonly data: Bytes) {}

  /** @param depth remaining levels of nested maps and lists. */
  read(depth: number): unknown {
    const first = this.bytes(1)[0];
    if (first < 0x80) return first;
    if (first < 0x90) return this.map(first & 15, depth);
    if (first < 0xa0) return this.list(first & 15, depth);
    if (first < 0xc0) return this.text(first & 31);
    if (first >= 0xe0) return first - 0x100;
    switch (first) {
      case 0xc0:
        return null;
      case 0xc2:
      case 0xc3:
        return first === 0xc3;
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return this.bytes(this.length(first - 0xc4));
      case 0xca:
        return this.number(4).getFloat32(0);
      case 0xcb:
        return this.number(8).getFloat64(0);
      case 0xcc:
      case 0xcd:
      case 0xce:
        return this.length(first - 0xcc);
      case 0xcf:
        return this.number(8).getBigUint64(0);
      case 0xd0:
        return this.number(1).getInt8(0);
      case 0xd1:
        return this.number(2).getInt16(0);
      case 0xd2:
        return this.number(4).getInt32(0);
      case 0xd3:
        return this.number(8).getBigInt64(0);
      case 0xd9:
      case 0xda:
      case 0xdb:
        return this.text(this.length(first - 0xd9));
      case 0xdc:
      case 0xdd:
        return this.list(this.length(first - 0xdb), depth);
      case 0xde:
      case 0xdf:
        return this.map(this.length(first - 0xdd), depth);
    }
    throw new TypeError("an extension or an unknown type");
  }

  private bytes(size: number): Bytes {
    const found = this.data.subarray(this.at, (this.at += size));
    if (found.length < size) throw new RangeError("it ends too early");
    return found;
  }

  private number(size: number): DataView {
    const { buffer, byteOffset } = this.bytes(size);
    return new DataView(buffer, byteOffset);
  }

  /** Read an unsigned number of 2 ** power bytes. */
  private length(power: number): number {
    return this.bytes(1 << power).reduce((total, byte) => total * 256 + byte, 0);
  }

  private text(size: number): string {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.bytes(size));
  }

  private list(size: number, depth: number): unknown[] {
    if (size > MAX_LIST || depth === 0) throw new RangeError("a list is too long, or too deep");
    return Array.from({ length: size }, () => this.read(depth - 1));
  }

  private map(size: number, depth: number): Record<string, unknown> {
    if (size > MAX_FIELDS || depth === 0) throw new RangeError("a map is too large, or too deep");
    const entries = Array.from({ length: size }, () => [this.key(), this.read(depth - 1)]);
    const made = Object.fromEntries(entries) as Record<string, unknown>;
    // Otherwise two readers could see two different messages.
    if (Object.keys(made).length < size) throw new TypeError("a map has the same key twice");
    return made;
  }

  private key(): string {
    const key = this.read(0);
    if (typeof key !== "string") throw new TypeError("a key is not text");
    return key;
  }
}

// Packing and reading agree with the reference package for JavaScript, and through the vectors with Python's.

import assert from "node:assert/strict";
import test from "node:test";

import { decode, encode } from "@msgpack/msgpack";

import { fromHex, toHex, type Bytes } from "../src/protocol/fields.js";
import { pack, unpack } from "../src/protocol/msgpack.js";

const read = (data: Uint8Array) => decode(data, { useBigInt64: true });
/** A map that contains a key twice. */
const TWICE = "82a16101a16102";

/** Numbers in [0, 1), the same in each run (mulberry32). */
function randomOf(state: number): () => number {
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const LENGTHS = [0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536];
const EDGES = [0, 31, 32, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2 ** 31, 2 ** 32 - 1];
const scalars = [null, true, false, 0.5, -0.1, 1e300, Infinity, ...EDGES, ...EDGES.map((edge) => -edge)];
const texts = [...LENGTHS.map((n) => "x".repeat(n)), "größer 😀", "\ufeff", "__proto__"];
const lists = LENGTHS.filter((n) => n <= 1000).map((n) => Array.from({ length: n }, (_, i) => i));
const mapOf = (n: number) => Object.fromEntries(Array.from({ length: n }, (_, i) => [`k${i}`, i]));
const maps = [0, 1, 15, 16, 64].map(mapOf);
const values: unknown[] = [...scalars, ...texts, ...lists, ...maps, ...LENGTHS.map((n) => new Uint8Array(n))];

test("what is packed is what the reference packs, and is read again", () => {
  for (const value of [...values, { a: { b: [values.slice(0, 20)] } }]) {
    const packed = pack(value);
    assert.equal(toHex(packed), toHex(encode(value)));
    assert.deepEqual(unpack(packed), read(packed));
  }
});

test("integers above what a double holds are packed in as few bytes as they take, and read to the last digit", () => {
  for (const [value, hex] of [
    [2n ** 63n - 1n, "cf7fffffffffffffff"],
    [2n ** 64n - 1n, "cfffffffffffffffff"],
    [-(2n ** 63n), "d38000000000000000"],
    [2n ** 32n, "cf0000000100000000"],
    [-(2n ** 31n) - 1n, "d3ffffffff7fffffff"],
  ] as const) {
    assert.equal(toHex(pack(value)), hex);
    assert.equal(unpack(fromHex(hex)), value);
  }
  assert.equal(toHex(pack(7n)), "07");
  assert.equal(toHex(pack(2 ** 40)), "cf0000010000000000");
  assert.throws(() => pack(2n ** 64n), RangeError);
});

const refused = {
  nothing: "",
  "an end too early": "92c0",
  "text that ends too early": "a361",
  "more behind it": "c0c0",
  "no type": "c1",
  "an extension": "d40100",
  "a time": "d6ff00000000",
  "a key twice": TWICE,
  "a key that is no text": "8101c0",
  "a list as a key": "8190c0",
  "letters that are none": "a2c328",
  "a list longer than any message's": "dc03e9" + "c0".repeat(1001),
  "a map larger than any message's": toHex(encode(mapOf(65))),
  "a promise of four thousand million items": "ddffffffff",
  "lists within lists": "91".repeat(200_000) + "c0",
};
for (const [what, hex] of Object.entries(refused)) {
  test(`refused: ${what}`, () => assert.throws(() => unpack(fromHex(hex)), /Error/));
}

test("what is undefined is left out of a map", () => {
  assert.deepEqual(unpack(pack({ a: undefined, b: null })), { b: null });
});

test("a key called __proto__ is a key like others", () => {
  const made = unpack(pack(JSON.parse('{"__proto__": {"is": true}}'))) as Record<string, unknown>;
  assert.deepEqual(Object.keys(made), ["__proto__"]);
  assert.equal(({} as Record<string, unknown>)["is"], undefined);
  assert.equal(made["is"], undefined);
});

test("of bytes that are changed by chance the reference reads what this reads, and the same", () => {
  const random = randomOf(1);
  const whole = pack({
    v: 4,
    kind: "join",
    sequence: 2n ** 60n,
    body: new Uint8Array(9),
    list: [1, -2, 0.5, null, "ä"],
  });
  let nRead = 0;
  for (let i = 0; i < 5_000; i++) {
    const changed: Bytes = whole.slice(0, random() < 0.1 ? Math.floor(random() * whole.length) : whole.length);
    for (let n = 0; n < 1 + 3 * random(); n++) changed[Math.floor(random() * changed.length)] = 256 * random();
    let value: unknown;
    try {
      value = unpack(changed);
    } catch {
      continue; // it may refuse what the reference accepts: extensions, repeated keys, invalid text
    }
    nRead += 1;
    assert.deepEqual(value, read(changed));
  }
  assert.ok(nRead > 500, `${nRead}`);
});

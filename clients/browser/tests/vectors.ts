// The conformance vectors made by Python (clients/vectors/generate.py).

import { readFileSync } from "node:fs";

import { fromHex, isMap } from "../src/protocol/fields.js";

export function vectorsOf(name: string): any {
  const path = new URL(`../../../vectors/${name}.json`, import.meta.url);
  return JSON.parse(readFileSync(path, "utf8"));
}

/** Convert the vectors' JSON form to a value: bytes, and integers that JSON cannot hold. */
export function valueOf(json: unknown): unknown {
  if (Array.isArray(json)) return json.map(valueOf);
  if (!isMap(json)) return json;
  if (typeof json["bytes"] === "string") return fromHex(json["bytes"]);
  if (typeof json["integer"] === "string") return BigInt(json["integer"]);
  return Object.fromEntries(Object.entries(json).map(([key, value]) => [key, valueOf(value)]));
}

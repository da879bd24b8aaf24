// A feature schema has the same hash and scaling as in Python.

import assert from "node:assert/strict";
import test from "node:test";

import { DataError, SettingsError } from "../src/errors.js";
import { FeatureSchema } from "../src/schema.js";
import { vectorsOf } from "./vectors.js";

for (const { schema, hash, candidates, scaled } of vectorsOf("schemas")) {
  test(`schema ${schema.name}: its hash and its scaling are Python's`, async () => {
    const read = await FeatureSchema.of(JSON.stringify(schema));
    assert.equal(read.hash, hash);
    assert.equal((await FeatureSchema.of(schema)).hash, hash);
    const { nDocuments, nFeatures, values } = read.normalise(candidates);
    assert.deepEqual([nDocuments, nFeatures], [candidates.length, schema.features.length]);
    scaled.flat().forEach((value: number, i: number) => assert.ok(Math.abs(values[i] - value) <= 1e-6));
    assert.deepEqual(
      read.normalise({ nDocuments, nFeatures, values: Float32Array.from(candidates.flat()) }).nFeatures,
      nFeatures,
    );
  });
}

test("no candidates are none, and a value that is none is named", async () => {
  const schema = await FeatureSchema.of({
    name: "shop",
    version: 1,
    features: [{ name: "bm25", scaling: "log", high: 4 }],
  });
  assert.deepEqual(schema.normalise([]), { nDocuments: 0, nFeatures: 1, values: new Float32Array() });
  assert.throws(() => schema.normalise([[1], [NaN]]), /'bm25' of document 1 is NaN/);
  assert.throws(() => schema.normalise([[1e300]]), DataError);
  assert.throws(() => schema.normalise([[1, 2]]), /has 1 columns, not 2/);
});

const FEATURE = { name: "age", scaling: "ratio" };
for (const wrong of [
  null,
  [],
  { name: "shop", version: 1 },
  { name: "a shop", version: 1, features: [FEATURE] },
  { name: "shop", version: 0, features: [FEATURE] },
  { name: "shop", version: 1, features: [] },
  { name: "shop", version: 1, features: [FEATURE, FEATURE] },
  { name: "shop", version: 1, features: [FEATURE], more: 1 },
  { name: "shop", version: 1, features: [{ ...FEATURE, more: 1 }] },
  { name: "shop", version: 1, features: [{ ...FEATURE, high: 1 }] },
  { name: "shop", version: 1, features: [{ name: "age", scaling: "log" }] },
  { name: "shop", version: 1, features: [{ name: "age", scaling: "log", high: 0 }] },
  { name: "shop", version: 1, features: [{ name: "age", scaling: "min_max", low: 2, high: 1 }] },
  { name: "shop", version: 1, features: [{ name: "age", scaling: "min_max", low: "0", high: "x" }] },
  { name: "shop", version: 1, features: [{ name: " age", scaling: "ratio" }] },
  { name: "shop", version: 1, features: [{ name: "age", scaling: "toString" }] },
]) {
  test(`no schema: ${JSON.stringify(wrong)}`, async () => {
    await assert.rejects(FeatureSchema.of(wrong), SettingsError);
  });
}

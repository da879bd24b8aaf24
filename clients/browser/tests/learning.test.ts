// A step of PDGD ends in the weights that Python's ends in.

import assert from "node:assert/strict";
import test from "node:test";

import { DataError } from "../src/errors.js";
import { rankByScore, samplePlackettLuce, score, type Features } from "../src/learning/linear.js";
import { pdgdStep, scoreGradient } from "../src/learning/pdgd.js";
import { vectorsOf } from "./vectors.js";

export function featuresOf(rows: number[][]): Features {
  return { nDocuments: rows.length, nFeatures: rows[0].length, values: Float32Array.from(rows.flat()) };
}

vectorsOf("learning").forEach((vector: any, i: number) => {
  test(`step ${i} ends where Python's does, to 1e-6`, () => {
    const shown = { ranking: vector.ranking, clicks: vector.clicks, drawnBy: vector.drawn_by };
    const stepped = pdgdStep(Float64Array.from(vector.base), featuresOf(vector.features), shown, vector.learning_rate);
    stepped.forEach((weight, w) => {
      assert.ok(Math.abs(weight - vector.weights[w]) <= 1e-6, `${weight} where ${vector.weights[w]} belongs`);
    });
  });
});

test("documents of equal score keep their order", () => {
  assert.deepEqual(rankByScore([1, 3, 3, 2], 3), [1, 2, 3]);
  assert.deepEqual(rankByScore([1, 3], 10), [1, 0]);
  assert.throws(() => rankByScore([1, NaN], 2), DataError);
});

test("a list is drawn in proportion to exp(score)", () => {
  const counts = [0, 0, 0];
  for (let i = 0; i < 6000; i++) counts[samplePlackettLuce([0, Math.log(2), Math.log(3)], 1, Math.random)[0]]++;
  counts.forEach((count, d) => assert.ok(Math.abs(count / 6000 - (d + 1) / 6) < 0.05, `${counts}`));
});

test("scores are the dot products in float32", () => {
  assert.deepEqual([...score([0.5, -1], featuresOf([[1, 0.5], [0.1, 0.2]]))], [0, Math.fround(0.05 - 0.2)].map(Math.fround));
});

test("what cannot be learned is refused", () => {
  const shown = { ranking: [0, 1], clicks: [true, false], drawnBy: [1, 2] };
  assert.throws(() => scoreGradient([1, NaN], shown), DataError);
  assert.throws(() => scoreGradient([1, 2], { ...shown, clicks: [true] }), DataError);
  assert.throws(() => scoreGradient([1, 2], { ...shown, ranking: [0, 0] }), DataError);
  assert.throws(() => scoreGradient([1, 2], { ...shown, ranking: [0, 7] }), DataError);
});

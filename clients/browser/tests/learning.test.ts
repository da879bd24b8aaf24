// A step of PDGD ends in the weights that Python's ends in, and lists are drawn with the probability that is stored.

import assert from "node:assert/strict";
import test from "node:test";

import { DataError } from "../src/errors.js";
import { drawList, logProbabilityOf, withReversals, type Exploration } from "../src/learning/display.js";
import { rankByScore, score, type Features } from "../src/learning/linear.js";
import { pdgdStep, scoreGradient } from "../src/learning/pdgd.js";
import { vectorsOf } from "./vectors.js";

function featuresOf(rows: number[][]): Features {
  return { nDocuments: rows.length, nFeatures: rows[0].length, values: Float32Array.from(rows.flat()) };
}

const SAMPLING = { kind: "sampling", temperature: null } as const;

vectorsOf("learning").forEach((vector: any, i: number) => {
  test(`step ${i} ends where Python's does, to 1e-6`, () => {
    const { reversals } = withReversals(
      vector.ranking,
      logProbabilityOf(SAMPLING, vector.drawn_by, [], vector.ranking.length),
    );
    const list = { ranking: vector.ranking, clicks: vector.clicks, reversals };
    const stepped = pdgdStep(Float64Array.from(vector.base), featuresOf(vector.features), list, vector.learning_rate);
    stepped.forEach((weight, w) => {
      assert.ok(Math.abs(weight - vector.weights[w]) <= 1e-6, `${weight} where ${vector.weights[w]} belongs`);
    });
  });
});

vectorsOf("lists").forEach(({ exploration, scores, base, ranking, ...drawn }: any, i: number) => {
  test(`list ${i}, by ${exploration.kind}, is as likely as Python says, and so are its reversals`, () => {
    const shown = withReversals(ranking, logProbabilityOf(exploration, scores, base, ranking.length));
    assert.ok(Math.abs(shown.logProbability - drawn.log_probability) <= 1e-6, `${shown.logProbability}`);
    assert.equal(shown.reversals.length, drawn.reversals.length);
    shown.reversals.forEach((reversal, pair) => assert.ok(Math.abs(reversal - drawn.reversals[pair]) <= 1e-6));
  });
});

test("documents of equal score keep their order", () => {
  assert.deepEqual(rankByScore([1, 3, 3, 2], 3), [1, 2, 3]);
  assert.deepEqual(rankByScore([1, 3], 10), [1, 0]);
  assert.throws(() => rankByScore([1, NaN], 2), DataError);
});

test("scores are the dot products in float32", () => {
  assert.deepEqual(
    [
      ...score(
        [0.5, -1],
        featuresOf([
          [1, 0.5],
          [0.1, 0.2],
        ]),
      ),
    ],
    [0, Math.fround(0.05 - 0.2)].map(Math.fround),
  );
});

test("what cannot be learned is refused", () => {
  const list = { ranking: [0, 1], clicks: [true, false], reversals: new Float64Array([0.5]) };
  assert.throws(() => scoreGradient([1, NaN], list), DataError);
  assert.throws(() => scoreGradient([1, 2], { ...list, clicks: [true] }), DataError);
  assert.throws(() => scoreGradient([1, 2], { ...list, reversals: new Float64Array(3) }), DataError);
  assert.throws(() => scoreGradient([1, 2], { ...list, ranking: [0, 7] }), DataError);
});

/** Numbers that are the same with every run (mulberry32). */
function generator(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), seed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const EXPLORATIONS: Exploration[] = [
  { kind: "none" },
  { kind: "share", share: 0.3, temperature: 0.5 },
  { kind: "swaps", probability: 0.2 },
  { kind: "interleaving" },
  { kind: "sampling", temperature: null },
  { kind: "sampling", temperature: 0.7 },
];
for (const exploration of EXPLORATIONS) {
  test(`lists by ${JSON.stringify(exploration)} come as often as is stored, and reversals follow from that`, () => {
    const [scores, base, nDrawn, random] = [[0.4, 1.2, 0.1, 0.9], [4, 3, 2, 1], 20_000, generator(16)];
    const counts = new Map<string, number>();
    const probabilities = new Map<string, number>();
    const reversals = new Map<string, Float64Array>();
    for (let i = 0; i < nDrawn; i++) {
      const shown = drawList(exploration, scores, base, 4, random);
      const list = shown.ranking.join();
      counts.set(list, (counts.get(list) ?? 0) + 1);
      probabilities.set(list, Math.exp(shown.logProbability));
      reversals.set(list, shown.reversals);
    }
    const total = [...probabilities.values()].reduce((sum, each) => sum + each, 0);
    assert.ok(Math.abs(total - 1) < 0.005, `probabilities sum to ${total}`);
    for (const [list, probability] of probabilities) {
      const error = 5 * Math.sqrt((probability * (1 - probability)) / nDrawn) + 1e-9;
      assert.ok(
        Math.abs(counts.get(list)! / nDrawn - probability) <= error,
        `${list}: ${counts.get(list)} ${probability}`,
      );
      let pair = 0;
      for (let i = 0; i < 4; i++) {
        for (let j = i + 1; j < 4; j++) {
          const exchanged = list.split(",");
          [exchanged[i], exchanged[j]] = [exchanged[j], exchanged[i]];
          const other = probabilities.get(exchanged.join());
          const stored = reversals.get(list)![pair++];
          // A list that was never drawn is rare, or impossible.
          if (other === undefined) assert.ok((stored * probability) / (1 - stored) < 10 / nDrawn);
          else assert.ok(Math.abs(stored - other / (probability + other)) < 1e-9);
        }
      }
    }
  });
}

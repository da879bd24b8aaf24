// A step of PDGD gives the same weights as Python's, and lists are drawn with the stored probability.

import assert from "node:assert/strict";
import test from "node:test";

import { DataError } from "../src/errors.js";
import { drawList, logProbabilityOf, SAFE, withReversals, type Exploration } from "../src/learning/display.js";
import type { Source } from "../src/learning/gate.js";
import { imitationStep } from "../src/learning/imitation.js";
import { rankByScore, score, type Features } from "../src/learning/linear.js";
import { pdgdStep, scoreGradient } from "../src/learning/pdgd.js";
import { DEFAULT_SERP_LENGTH, makeSerp } from "../src/serps.js";
import { CLICK_WINDOW_S } from "../src/store/store.js";
import { WorkingModel } from "../src/training/working_model.js";
import { vectorsOf } from "./vectors.js";

function featuresOf(rows: number[][]): Features {
  return { nDocuments: rows.length, nFeatures: rows[0].length, values: Float32Array.from(rows.flat()) };
}

const SAMPLING = { kind: "sampling", temperature: null } as const;

const [ofClicks, ofOrder] = [false, true].map((is) =>
  vectorsOf("learning").filter((one: any) => is === !!one.imitated),
);

ofOrder.forEach((vector: any, i: number) => {
  test(`imitation ${i} ends where Python's does, to 1e-6`, () => {
    let weights = Float64Array.from(vector.base as number[]);
    for (let n = 0; n < vector.imitated; n++)
      weights = imitationStep(weights, featuresOf(vector.features), vector, vector.learning_rate);
    weights.forEach((weight, w) => assert.ok(Math.abs(weight - vector.weights[w]) <= 1e-6));
  });
});

test("a list is imitated only if it shows the application's order, with a model of zeros", () => {
  const [features, ranking] = [Float32Array.from([0, 1, 2]), [2, 0, 1]];
  const shown = {
    id: 1,
    nFeatures: 1,
    features,
    ranking,
    clicks: [false, false, false],
    reversals: new Float64Array(3),
  };
  const learned = (source: Source | undefined, mayImitate = true, base = 0, exploration: Exploration = SAFE) => {
    const model = new WorkingModel(Float64Array.of(base), { learning_rate: 3, exploration } as any, mayImitate);
    model.learn({ ...shown, source } as any); // without a click PDGD learns nothing
    return model.weights[0] !== base;
  };
  assert.deepEqual([learned("base"), learned(undefined)], [true, true]);
  assert.deepEqual(
    [
      learned("model"),
      learned("interleaved"),
      learned("base", false),
      learned("base", true, 1),
      learned("base", true, 0, SAMPLING),
    ],
    Array(5).fill(false),
  );
});

ofClicks.forEach((vector: any, i: number) => {
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

test("before anybody says otherwise, lists are as Python's, and wait as long for more clicks", () => {
  const { exploration, serp_length, click_window_s } = vectorsOf("defaults");
  assert.deepEqual([SAFE, DEFAULT_SERP_LENGTH, CLICK_WINDOW_S], [exploration, serp_length, click_window_s]);
});

const NO_STATE = {
  ...{ serpLength: 10, exploration: SAFE, isForgotten: false, hasOtherFeatures: false },
  ...{ modelVersion: null, gate: null },
};

test("of documents that a model scores alike the application's order decides", () => {
  const state = { ...NO_STATE, weights: new Float64Array([1, 0]), modelVersion: 3 };
  const rows = [
    [0.5, 1],
    [0.5, 2],
    [0.9, 3],
  ];
  const serp = makeSerp(rows, 10, [1, 2, 0], state, { kind: "none" });
  assert.deepEqual([serp.ranking, serp.source], [[2, 1, 0], "model"]);
});

test("scores that are not finite show the application's order", () => {
  const state = { ...NO_STATE, weights: new Float64Array([3e38, 3e38]), modelVersion: 3 };
  const serp = makeSerp(
    [
      [1e38, 1],
      [1, 1],
    ],
    10,
    [1, 2],
    state,
    { kind: "none" },
  );
  assert.deepEqual([serp.ranking, serp.source, serp.modelVersion], [[1, 0], "base", null]);
});

test("around the application's order, sampling is of scores of one scale, and interleaving shows that order", () => {
  const state = { ...NO_STATE, weights: null };
  for (const base of [
    [1, 2],
    [1e6, 2e6],
  ]) {
    const { logProbability } = makeSerp(
      [[1], [1]],
      1,
      base,
      state,
      { kind: "sampling", temperature: null },
      null,
      () => 0.5,
    );
    assert.ok(Math.abs(logProbability + Math.log1p(Math.exp(-2))) < 1e-9, `${logProbability}`);
  }
  assert.deepEqual(makeSerp([[1], [1]], 2, [1, 2], state, { kind: "interleaving" }).ranking, [1, 0]);
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

/** Random numbers that are the same in every run (mulberry32). */
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

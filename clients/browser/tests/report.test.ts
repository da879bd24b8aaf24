// A report says whether the model's order is better, with Python's intervals and text, or that there are too few lists.

import assert from "node:assert/strict";
import test from "node:test";

import type { FadingMean, Gate } from "../src/learning/gate.js";
import { reportOf, type Interval } from "../src/report.js";
import type { RankingState } from "../src/serps.js";
import { vectorsOf } from "./vectors.js";

function gateOf({ is_open, credits, of_base, of_model, counts }: any): Gate {
  const mean = ({ weight, weight_squares, total, squares }: any): FadingMean => {
    return { weight, weightSquares: weight_squares, total, squares };
  };
  const count = ({ lists, clicked, reciprocal_ranks }: any) => ({ lists, clicked, reciprocalRanks: reciprocal_ranks });
  const { base, model, interleaved } = counts;
  return {
    isOpen: is_open,
    ...{ credits: mean(credits), ofBase: mean(of_base), ofModel: mean(of_model) },
    counts: { base: count(base), model: count(model), interleaved: count(interleaved) },
  };
}

function near(actual: Interval | null, expected: readonly number[] | null): void {
  if (actual === null || expected === null) return assert.equal(actual, expected);
  const parts = [actual.estimate, actual.low, actual.high];
  parts.forEach((part, i) => assert.ok(Math.abs(part - expected[i]) < 1e-6, `${parts} is not ${expected}`));
}

const STATE = { serpLength: 10, isForgotten: false, hasOtherFeatures: false };

test("a report has the numbers and the text of a Python device in the same state", () => {
  for (const vector of vectorsOf("reports")) {
    const state: RankingState = {
      ...{ ...STATE, exploration: vector.exploration, modelVersion: vector.model_version },
      weights: vector.weights && Float64Array.from(vector.weights),
      gate: gateOf(vector.gate),
    };
    const report = reportOf(state, vector.exploration, vector.is_gated);
    assert.equal(String(report), vector.text);
    assert.deepEqual([report.order.source, report.nLists, report.nClicked], vector.says);
    near(report.preference, vector.preference);
    near(report.rewardDifference, vector.reward_difference);
    assert.equal(report.shown, state.gate!.counts);
  }
});

test("a device that has recorded nothing says so", () => {
  const report = reportOf(
    { ...STATE, exploration: { kind: "none" }, weights: null, modelVersion: null, gate: null },
    null,
    true,
  );
  assert.deepEqual([report.order.source, report.cause, report.nLists], ["base", "there is no model yet", 0]);
});

test("a federation without exploration still mixes lists of a gated device, and a report says how many", () => {
  const state: RankingState = {
    ...STATE,
    exploration: { kind: "none" },
    weights: new Float64Array([1]),
    modelVersion: 3,
    gate: null,
  };
  const ofFederation = reportOf(state, null, true);
  assert.deepEqual(ofFederation.order, { source: "base", shareInterleaved: 0.05 });
  assert.equal(ofFederation.cause, "fewer than 10 mixed lists say which order is better");
  const asked = reportOf(state, { kind: "none" }, true);
  assert.deepEqual(asked.order, { source: "base", shareInterleaved: 0 });
  assert.match(asked.cause, /, and without exploration no lists are mixed$/);
});

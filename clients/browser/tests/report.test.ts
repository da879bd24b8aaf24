// A report says whether the model's order is better, with Python's intervals, or that there is too little to tell.

import assert from "node:assert/strict";
import test from "node:test";

import { NEW_GATE, withList, type Gate } from "../src/learning/gate.js";
import { inWords, reportOf } from "../src/report.js";

function ofCredits(...signs: number[]): Gate {
  const listOf = (sign: number) => ({ source: "interleaved" as const, toCredit: [sign, sign] });
  return signs.reduce((gate: Gate, sign) => withList(gate, listOf(sign), [true, false]), NEW_GATE);
}

function near(actual: number, expected: number): void {
  assert.ok(Math.abs(actual - expected) < 1e-3, `${actual} is not ${expected}`);
}

test("few lists are too few to tell, and a page without a model says so", () => {
  const report = reportOf({ gate: ofCredits(1, 1, 1, 1), modelVersion: 3 });
  assert.deepEqual([report.order, report.nLists, report.nClicked], ["base", 4, 4]);
  assert.deepEqual([report.preference, report.rewardDifference], [null, null]);
  assert.match(inWords(report), /^Lists are in the application's order: fewer than 10 mixed .*: too few to tell\.$/);
  assert.equal(reportOf({ gate: null, modelVersion: null }).cause, "there is no model yet");
});

test("mixed lists say which order is better, and how sure that is", () => {
  const report = reportOf({ gate: ofCredits(...Array(30).fill(1)), modelVersion: 3 });
  assert.equal(report.order, "model");
  near(report.preference!.estimate, 1);
  near(report.preference!.low, 0.8857); // as in tests/edge_client/test_report.py
  near(report.preference!.high, 1);
  assert.match(inWords(report), /Of 100 mixed lists 100 favour the model's order \(95 % interval 89 to 100\)\.$/);
});

test("rewards of both orders are compared", () => {
  const mean = (n: number, total: number) => ({ weight: n, weightSquares: n, total, squares: total });
  const gate = { ...NEW_GATE, isOpen: true, ofBase: mean(100, 50), ofModel: mean(10, 8) };
  const { estimate, low, high } = reportOf({ gate, modelVersion: 3 }).rewardDifference!;
  const half = 1.96 * Math.sqrt(0.25 / 100 + 0.25 / 10);
  near(estimate, 0.3);
  near(low, 0.3 - half);
  near(high, 0.3 + half);
});

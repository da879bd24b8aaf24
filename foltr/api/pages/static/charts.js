// Charts by round, drawn by uPlot: counts as bars from 0 on axes of whole numbers, measures as lines.

import { at, fine, share, whole } from "./dom.js";

const STEPS = [1, 2, 5].flatMap((n) => [0, 1, 2, 3, 4, 5, 6, 7].map((power) => n * 10 ** power)).sort((a, b) => a - b);
const charts = new Map();

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const axis = (more) => ({
  stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), size: 4 },
  font: "12px system-ui, sans-serif", ...more,
});
const wide = (_chart, labels) => 14 + 7.5 * Math.max(1, ...(labels ?? []).map((label) => String(label ?? "").length));

const counts = (_chart, ticks) => ticks.map((value) => whole.format(value));
// Values of a scale that fits both a few and 20,000: from 10 on each step is ten times the last.
const powers = (_chart, _axis, _min, max) => [0, ...[max < 500 ? 1 : 10, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7]].filter((value, i, all) => value <= max && value !== all[i - 1]);

const bars = (label, name, values, more = {}) => ({
  label, stroke: colour(name), fill: colour(name), width: 0, points: { show: false },
  paths: window.uPlot.paths.bars({ size: [0.75, 26, 1] }),
  value: (_chart, _value, _series, i) => (i === null || i === undefined || values[i] === null ? "" : whole.format(values[i])), ...more,
});
const line = (label, name, format, dash) => ({
  label, stroke: colour(name), width: 2, dash, spanGaps: false, points: { size: 5, fill: colour(name) },
  value: (_chart, value) => (value === null || value === undefined ? "" : format.format(value)),
});

// Parts of a count, one above the other; `erased` is what a part was before, as an empty bar with a broken line.
export function drawParts(id, rounds, parts, erased) {
  const sums = parts.map((_, i) => rounds.map((_row, at_) => parts.slice(0, i + 1).reduce((sum, part) => sum + part.values[at_], 0)));
  const total = sums[sums.length - 1];
  const series = parts.map((part) => bars(part.label, part.colour, part.values));
  const drawn = [...series.keys()].reverse();
  const ghost = erased.some((n) => n > 0)
    ? [bars("erased since", "--faint", erased.map((n) => n || null), { fill: "transparent", width: 1.5, dash: [4, 3] })] : [];
  const values = [...(ghost.length ? [erased.map((n, i) => (n ? total[i] + n : null))] : []), ...drawn.map((i) => sums[i])];
  plot(id, rounds, [...ghost, ...drawn.map((i) => series[i])], values, { range: (_c, _min, max) => [0, Math.max(1, max) * 1.08] },
    axis({ incrs: STEPS, size: wide, values: counts }));
}

// One count, on a scale that a flood does not flatten.
export function drawFlood(id, rounds, label, name, values) {
  plot(id, rounds, [bars(label, name, values)], [values], { distr: 4, asinh: 1, range: (_c, _min, max) => [0, Math.max(10, max) * 1.3] },
    axis({ splits: powers, filter: (_c, ticks) => ticks, size: wide, values: counts }));
}

export function drawLines(id, rounds, lines, { fromZero }) {
  const format = fromZero ? fine : share;
  const scale = fromZero ? { range: (_c, _min, max) => [0, Math.max(1, max) * 1.08] } : {};
  const ticks = fromZero ? { incrs: STEPS, values: counts }
    : { values: (_c, all) => all.map((value) => share.format(value)) };
  plot(id, rounds, lines.map((each) => line(each.label, each.colour, format, each.dash)), lines.map((each) => each.values),
    scale, axis({ size: wide, ...ticks }));
}

// A chart in the place of the one before: its colours and its width may be others.
function plot(id, rounds, series, values, scale, yAxis) {
  const place = at(id);
  charts.get(id)?.destroy();
  const options = {
    width: place.clientWidth, height: 200, scales: { x: { time: false, range: (_c, min, max) => [min - 0.6, max + 0.6] }, y: scale },
    axes: [axis({ incrs: STEPS, space: 40, size: 28, values: counts }), yAxis],
    series: [{ label: "Round", value: (_c, value) => (value === null || value === undefined ? "" : whole.format(value)) }, ...series],
    cursor: { y: false, drag: { x: false, y: false } },
  };
  const chart = new window.uPlot(options, [rounds, ...values], place);
  chart.over.addEventListener("click", () => {
    if (chart.cursor.idx !== null && chart.cursor.idx !== undefined) location.href = `/rounds/${rounds[chart.cursor.idx]}`;
  });
  charts.set(id, chart);
}

// The overview: its figures follow the stream, its charts and its table the rounds.

import { onEvent } from "./band.js";
import { drawFlood, drawLines, drawParts } from "./charts.js";
import { ask, at, cell, fill, fine, item, link, row, say, share, time, whole, words } from "./dom.js";

const NEWEST = 200;
const SHOWN = 8;
const AGAIN_MS = 10000;
const ENDED = ["completed", "abandoned"];

let rounds = null;
let loadedAt = 0;
let newestRound = 0;
let erasures = null;

function showStatus(status) {
  const round = status.round;
  const isOpen = round !== null && !ENDED.includes(round.state);
  fill(at("waits"), status.waits_for);
  figure("online", round && round.period_s !== null ? "–" : whole.format(status.members.n_online), `of ${whole.format(status.members.n_members)}`);
  at("to-round").href = round ? `/rounds/${round.number}` : "/rounds";
  say("which", isOpen ? `round ${round.number}` : "the open round");
  if (isOpen) figure("updates", whole.format(round.n_contributed), `of ${round.min_clients}`);
  else say("updates", "–");
  say("quorum", isOpen ? `needed, at most ${round.max_clients}` : "no round is open");
  const rate = status.activity.completed_per_hour;
  say("rate", rate === null ? "–" : fine.format(rate));
  say("ended", `${status.activity.n_completed} made a model, ${status.activity.n_abandoned} did not`);
  showReward(status.effectiveness);
  showRefusals(status.refusals.by_reason);
  showCounts(status);
  const number = round ? round.number : 0;
  const known = JSON.stringify(status.erasures);
  // Rounds come with the events. What is missing was told while this page could not listen; an erasure lowers past counts.
  const isNew = rounds === null || number < newestRound || (hasGap(number) && Date.now() - loadedAt > AGAIN_MS);
  if (isNew || (erasures !== null && erasures !== known)) void loadRounds();
  newestRound = number;
  erasures = known;
}

// A number, and in smaller type what it is compared with.
function figure(id, number, beside) {
  if (at(id).textContent !== `${number} ${beside}`) at(id).replaceChildren(`${number} `, item("i", beside));
}

function showReward(effectiveness) {
  if (!effectiveness) return;
  const newest = effectiveness.newest;
  figure("reward", share.format(newest.reward), share.format(newest.base_reward));
  say("rewarded", `in round ${newest.round}`);
  at("to-reward").href = `/rounds/${newest.round}`;
}

// Rows keep what the server says of their reason; docs/errors.md explains one that is new.
function showRefusals(byReason) {
  const reasons = Object.entries(byReason).sort((a, b) => b[1] - a[1]);
  at("refusals").hidden = reasons.length === 0;
  at("no-refusals").hidden = reasons.length > 0;
  const place = document.querySelector(".refusals");
  const known = new Map([...place.rows].map((each) => [each.dataset.code, each]));
  if ([...known.keys()].join() === reasons.map(([code]) => code).join()) {
    for (const [code, n] of reasons) say(known.get(code).querySelector("a"), whole.format(n));
    return;
  }
  place.replaceChildren(...reasons.map(([code, n]) => {
    const meaning = known.get(code)?.cells[2].textContent ?? "docs/errors.md explains it.";
    const path = `/events?${new URLSearchParams({ code, refused: "true" })}`;
    const line = row(cell(words(code)), cell(link(path, whole.format(n)), "number"), cell(meaning, "text"));
    line.dataset.code = code;
    return line;
  }));
}

function showCounts(status) {
  const { members, erasures: counts } = status;
  say("n-quarantined", members.n_quarantined);
  say("n-suspects", status.n_suspects);
  say("n-revoked", members.n_revoked);
  say("n-left", members.n_left);
  say("n-erasures", counts.n_erasing + counts.n_waiting + counts.n_unlearning);
  say("n-erased", counts.n_done);
  if (status.round) say("rule", status.round.aggregation);
  if (status.model) say("model", status.model.version);
}

function hasGap(newest) {
  const end = rounds.length - 1;
  return (end < 0 ? 0 : rounds[end].round) < newest
    || rounds.some((each, i) => i < end && (each.closed_at === null || rounds[i + 1].round !== each.round + 1));
}

async function loadRounds() {
  loadedAt = Date.now();
  const found = await ask(`/api/v1/rounds?limit=${NEWEST}`);
  if (found) showRounds(found.items.reverse());
}

// Rows that are there already are replaced: a round that was open has ended.
function addRounds(changed) {
  if (rounds === null) return;
  const first = changed[changed.length - 1].round;
  if (rounds.length && first > rounds[rounds.length - 1].round + 1) return;
  showRounds([...rounds.filter((each) => each.round < first), ...changed.reverse()].slice(-NEWEST));
}

function showRounds(found) {
  rounds = found;
  at("rounds")?.replaceChildren(...rounds.slice(-SHOWN).reverse().map(roundRow));
  draw();
}

// As the server writes it: macros.html, rounds_table.
function roundRow(round) {
  const updates = cell(link(`/rounds/${round.round}#contributions`, whole.format(round.n_updates)), "number");
  if (round.n_erased) updates.append(" ", item("span", `of ${whole.format(round.n_updates + round.n_erased)}`, "note"));
  const refused = round.n_rejected ? link(`/events?round=${round.round}&refused=true`, whole.format(round.n_rejected)) : 0;
  return row(
    cell(link(`/rounds/${round.round}`, round.round)), cell(round.reason ? `${round.state}: ${words(round.reason)}` : round.state, "state"),
    updates, cell(refused, "number"), cell(round.n_dropped, "number wide"), cell(round.n_clipped, "number wide"),
    cell(round.duration_s === null ? "–" : `${fine.format(round.duration_s)} s`, "number wide"),
    cell(round.model_version ?? "–", "number wide"), cell(time(round.opened_at), "wide"),
  );
}

function draw() {
  if (rounds === null) return;
  const ended = rounds.filter((each) => each.closed_at !== null);
  at("no-rounds").hidden = ended.length > 0;
  at("charts").hidden = ended.length === 0;
  if (ended.length === 0) return;
  const numbers = ended.map((each) => each.round);
  const made = (each) => each.model_version !== null;
  drawParts("chart-updates", numbers, [
    { label: "in the model", colour: "--series-1", values: ended.map((each) => (made(each) ? each.n_updates - each.n_dropped - each.n_clipped : 0)) },
    { label: "shortened", colour: "--series-2", values: ended.map((each) => (made(each) ? each.n_clipped : 0)) },
    { label: "not used", colour: "--series-3", values: ended.map((each) => (made(each) ? each.n_dropped : each.n_updates)) },
  ], ended.map((each) => each.n_erased));
  drawFlood("chart-refused", numbers, "refused", "--series-4", ended.map((each) => each.n_rejected));
  drawLines("chart-seconds", numbers, [{ label: "seconds", colour: "--series-1", values: ended.map((each) => each.duration_s) }], { fromZero: true });
  drawRewards(ended, numbers);
  showErased(ended.filter((each) => each.n_erased > 0).length);
}

// Rounds without a report leave a gap. Means with noise may be below 0 and above 1; they are shown as they are.
function drawRewards(ended, numbers) {
  const newest = ended.findLast((each) => each.reward !== null);
  at("no-rewards").hidden = newest !== undefined;
  at("chart-rewards").hidden = newest === undefined;
  if (newest === undefined) return;
  const noise = newest.evaluation_deviation;
  at("reward-noise").hidden = noise === null;
  say("reward-noise", noise === null ? "" : `Each has noise, in round ${newest.round} with a standard deviation of ${share.format(noise)}.`);
  drawLines("chart-rewards", numbers, [
    { label: "as shown", colour: "--series-1", values: ended.map((each) => each.reward) },
    { label: "own order", colour: "--series-2", values: ended.map((each) => each.base_reward), dash: [6, 4] },
  ], { fromZero: false });
}

function showErased(n) {
  at("erased").hidden = n === 0;
  const are = n === 1 ? "The count of 1 round is lower than it was" : `Counts of ${n} rounds are lower than they were`;
  if (n) at("erased").replaceChildren(`${are}: a client was `, link("/erasures", "erased"), ". A broken line shows what they were.");
}

window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
let width = window.innerWidth;
window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; draw(); } });
onEvent("status", showStatus);
onEvent("rounds", addRounds);

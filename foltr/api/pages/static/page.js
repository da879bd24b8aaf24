// Shows what /api/v1/stream tells and what the lists of the API have. What comes from there is set as text, never as markup.

const NEWEST = 200;
const SHOWN = 12;
const SILENT_MS = 15000;
const AGAIN_MS = 10000;

const at = (id) => document.getElementById(id);
const number = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0, signDisplay: "negative" });
const share = new Intl.NumberFormat(undefined, { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });
const say = (id, text) => { const place = at(id); if (place.textContent !== text) place.textContent = text; };
const told = (value) => (value === null || value === undefined ? "–" : typeof value === "number" ? number.format(value) : String(value));
const when = (text) => (text ? moment.format(new Date(text)) : "–");

let heardAt = 0;
let loadedAt = 0;
let newestRound = 0;
let erasuresKnown = "";
let rounds = null;
let present = [];
const charts = new Map();

function showStatus(status) {
  heardAt = Date.now();
  at("away").hidden = true;
  say("waits", status.waits_for[0] ?? "Nothing to tell yet.");
  fill("more", status.waits_for.slice(1).map((sentence) => item("li", sentence)));
  at("asof").dateTime = status.as_of;
  say("asof", when(status.as_of));
  say("link", "");
  const round = status.round;
  say("federator", status.last_activity ? status.federator : "not seen");
  say("round", round ? `${round.number}, ${round.state}` : "none");
  say("updates", round ? `${round.n_contributed} of ${round.min_clients} to ${round.max_clients}` : "–");
  say("online", round && round.period_s !== null ? `${status.members.n_members} by turns`
    : `${status.members.n_online} of ${status.members.n_members}`);
  say("rounds-rate", told(status.activity.completed_per_hour));
  say("updates-rate", told(status.activity.updates_per_hour));
  say("model", status.model ? String(status.model.version) : "none");
  addPresent({ at: status.as_of, n_members: status.members.n_members, n_online: status.members.n_online });
  showDefence(status);
  showErasures(status);
  const budget = status.budget;
  at("budget").hidden = !budget;
  if (budget) {
    say("budget-words", `Policy ${budget.policy_version}: epsilon ${number.format(budget.epsilon)} at delta ${budget.delta} for `
      + `${budget.max_participations} participations; there were ${budget.n_spent} rounds under it.`);
    at("budget-spent").max = budget.max_participations;
    at("budget-spent").value = budget.n_spent;
  }
  const newest = round ? round.number : 0;
  // Rounds come with the events; missing ones ended while this page could not listen.
  if (rounds === null || newest < newestRound || (hasGap(newest) && Date.now() - loadedAt > AGAIN_MS)) void loadRounds();
  newestRound = newest;
}

function hasGap(newest) {
  const last = rounds.length - 1;
  return (last < 0 ? 0 : rounds[last].round) < newest
    || rounds.some((row, i) => i < last && (row.closed_at === null || rounds[i + 1].round !== row.round + 1));
}

function showDefence(status) {
  const reasons = Object.entries(status.refusals.by_reason).sort((a, b) => b[1] - a[1]);
  say("refused", told(reasons.reduce((sum, [, n]) => sum + n, 0)));
  say("rule", status.round ? status.round.aggregation : "–");
  say("quarantined", told(status.members.n_quarantined));
  say("suspects", told(status.n_suspects));
  say("revoked", told(status.members.n_revoked));
  at("no-refusals").hidden = reasons.length > 0;
  at("refusals").hidden = reasons.length === 0;
  rows("refusals", reasons.map(([reason, n]) => [reason, told(n)]));
}

function showErasures(status) {
  const counts = status.erasures;
  for (const state of ["erasing", "waiting", "unlearning", "done", "overdue"]) say(`e-${state}`, told(counts[`n_${state}`]));
  at("held").hidden = !status.held;
  say("held", status.held ?? "");
  const job = status.job;
  at("job").hidden = !job || job.closed_at !== null;
  if (job && job.closed_at === null) {
    say("job-words", `Job ${job.number}, ${job.state}${job.reason ? `: ${job.reason}` : ""}: step ${job.step} of ${job.n_steps}`);
    at("job-steps").max = Math.max(1, job.n_steps);
    at("job-steps").value = job.step;
  }
  const known = JSON.stringify(counts);
  if (known !== erasuresKnown) {
    // What is erased is counted in no round any more.
    if (erasuresKnown !== "") void loadRounds();
    erasuresKnown = known;
    void loadErasures();
  }
}

async function loadRounds() {
  loadedAt = Date.now();
  const found = await ask(`/api/v1/rounds?limit=${NEWEST}`);
  if (found) showRounds(found.reverse());
}

// Rows that are there already are replaced: a round that was open has ended.
function addRounds(changed) {
  if (rounds === null) return;
  const first = changed[changed.length - 1].round;
  if (rounds.length && first > rounds[rounds.length - 1].round + 1) return;
  showRounds([...rounds.filter((row) => row.round < first), ...changed.reverse()].slice(-NEWEST));
}

function showRounds(found) {
  rounds = found;
  rows("rounds", rounds.slice(-SHOWN).reverse().map((row) => [
    row.round, row.reason ? `${row.state}: ${row.reason}` : row.state, when(row.opened_at),
    row.duration_s === null ? "–" : `${number.format(row.duration_s)} s`, row.n_updates, row.n_rejected, row.n_dropped, row.n_clipped,
    votes(row), told(row.model_version),
  ]));
  drawRounds();
  drawRewards();
}

// As `foltr rounds list` has them: of secure sums a tally, with the standard deviation of its noise.
function votes(row) {
  if (row.tally_worse !== null) return `${whole.format(row.tally_worse)}/${whole.format(row.tally_better)} ± ${whole.format(row.tally_deviation)}`;
  return row.n_worse + row.n_none + row.n_better === 0 ? "–" : `${row.n_worse}/${row.n_better}`;
}

async function loadErasures() {
  const found = await ask("/api/v1/erasures?limit=100");
  if (!found) return;
  at("no-erasures").hidden = found.length > 0;
  at("erasures").hidden = found.length === 0;
  rows("erasures", found.reverse().map((row) => {
    const receipt = row.receipt ? item("a", "receipt") : "–";
    if (row.receipt) {
      receipt.href = `/api/v1/receipts/${row.pseudonym}`;
      receipt.download = `${row.pseudonym}.jws`;
      receipt.setAttribute("aria-label", `receipt of ${row.pseudonym}`);
    }
    return [row.pseudonym, row.overdue_at && !row.completed_at ? `overdue, ${row.state}` : row.state, when(row.requested_at),
      row.erased_at ? when(row.erased_at) : row.forget_state, when(row.completed_at), receipt];
  }));
}

// One a minute, a day of them. A tab may be open for longer.
function addPresent(point) {
  const last = present[present.length - 1];
  if (last && new Date(point.at) - new Date(last.at) < 60000) return;
  present = [...present, point].slice(-1440);
  drawPresence();
}

function drawPresence() {
  // Of one moment alone uPlot would show three years.
  const before = { at: new Date(new Date(present[0].at) - 600000), n_online: null, n_members: null };
  const points = present.length > 1 ? present : [before, ...present];
  plot("chart-presence", points.map((point) => new Date(point.at) / 1000), true, [line("online", "--series-1"), line("members", "--series-2")],
    [points.map((point) => point.n_online), points.map((point) => point.n_members)]);
}

function drawRounds() {
  if (rounds === null) return;
  const ended = rounds.filter((row) => row.closed_at !== null);
  at("no-rounds").hidden = ended.length > 0;
  at("rounds").hidden = rounds.length === 0;
  at("charts").hidden = ended.length === 0;
  if (ended.length === 0) return;
  const numbers = ended.map((row) => row.round);
  plot("chart-updates", numbers, false, [line("in the model", "--series-1"), line("left out or shortened", "--series-2"), line("refused", "--series-3")], [
    ended.map((row) => (row.model_version === null ? 0 : row.n_updates - row.n_dropped)),
    ended.map((row) => row.n_dropped + row.n_clipped),
    ended.map((row) => row.n_rejected),
  ]);
  plot("chart-seconds", numbers, false, [line("seconds", "--series-1")], [ended.map((row) => row.duration_s)]);
}

// Means with noise may be below 0 and above 1; they are shown as they are.
function drawRewards() {
  if (rounds === null) return;
  const judged = rounds.filter((row) => row.closed_at !== null && row.reward !== null);
  const newest = judged[judged.length - 1];
  at("no-rewards").hidden = judged.length > 0;
  at("rewards").hidden = judged.length === 0;
  say("reward", newest ? `${share.format(newest.reward)}, ${share.format(newest.base_reward)}` : "–");
  if (!newest) return;
  const noise = newest.evaluation_deviation;
  say("reward-noise", noise === null ? "" : `Each has noise, in round ${newest.round} with a standard deviation of ${share.format(noise)}. `);
  plot("chart-rewards", judged.map((row) => row.round), false, [line("as shown", "--series-1"), line("own order", "--series-2")],
    [judged.map((row) => row.reward), judged.map((row) => row.base_reward)]);
}

function draw() {
  drawRounds();
  drawRewards();
  drawPresence();
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const line = (label, name) => ({ label, stroke: colour(name), width: 2, points: { size: 5, fill: colour(name) } });

// A chart in the place of the one before: its colours and its width may be others.
function plot(id, xs, isTime, series, values) {
  const place = at(id);
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const options = { width: place.clientWidth, height: 220, scales: { x: { time: isTime } }, axes: [axis, axis], series: [{ label: isTime ? "Time" : "Round" }, ...series] };
  charts.get(id)?.destroy();
  charts.set(id, new window.uPlot(options, [xs, ...values], place));
}

// Who leaves asks nothing more: without the cookie each question would be an error.
const leaving = new AbortController();

async function ask(path) {
  try {
    const answer = await fetch(path, { signal: leaving.signal });
    if (answer.status === 401 || answer.status === 403) location.reload();
    return answer.ok ? await answer.json() : null;
  } catch {
    return null; // the stream says that the server is away
  }
}

function rows(id, lines) {
  at(id).tBodies[0].replaceChildren(...lines.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((cell) => (cell instanceof Node ? wrapped(cell) : item("td", String(cell)))));
    return row;
  }));
}

function wrapped(node) {
  const cell = document.createElement("td");
  cell.append(node);
  return cell;
}

function item(name, text) {
  const element = document.createElement(name);
  element.textContent = text;
  return element;
}

function fill(id, elements) {
  const place = at(id);
  if ([...place.children].map((one) => one.textContent).join("\n") !== elements.map((one) => one.textContent).join("\n")) place.replaceChildren(...elements);
}

function listen() {
  if (leaving.signal.aborted) return;
  const stream = new EventSource("/api/v1/stream");
  leaving.signal.addEventListener("abort", () => stream.close());
  stream.addEventListener("status", (event) => showStatus(JSON.parse(event.data)));
  stream.addEventListener("rounds", (event) => addRounds(JSON.parse(event.data)));
  stream.addEventListener("away", (event) => {
    heardAt = Date.now();
    at("away").hidden = false;
    say("away", JSON.parse(event.data).detail);
    say("link", "– what stands here is old");
  });
  stream.addEventListener("error", () => {
    say("link", "– the server is not heard; what stands here may be old");
    // Refused, and not only interrupted: the browser does not try that again by itself.
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => { void ask("/api/v1/status"); listen(); }, 10000);
  });
}

document.querySelector("form[action='/logout']")?.addEventListener("submit", () => leaving.abort());
setInterval(() => {
  if (heardAt && Date.now() - heardAt > SILENT_MS) say("link", "– the server is not heard; what stands here may be old");
}, 2000);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
let width = window.innerWidth;
window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; draw(); } });
listen();

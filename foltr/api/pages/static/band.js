// Keeps the status band of every page as /api/v1/stream has it, and hands the events on to the page's own script.

import { ask, at, leaving, moment, say } from "./dom.js";

const SILENT_MS = 15000;
const AGAIN_MS = 10000;
const UNHEARD = "(the server is not heard: this may be old)";

const listeners = { status: [], rounds: [] };
let heardAt = 0;
let last = null;

// Call `listener` with each event of this kind, and at once with the last status.
export function onEvent(kind, listener) {
  listeners[kind].push(listener);
  if (kind === "status" && last) listener(last);
}

function showVerdict(verdict) {
  const band = at("band");
  const before = band.dataset.level;
  band.dataset.level = verdict.level;
  say("level", verdict.level.toUpperCase());
  at("well").hidden = verdict.findings.length > 0;
  showFindings(at("gravest"), verdict.findings.slice(0, 1));
  showFindings(at("further"), verdict.findings.slice(1));
  at("others").hidden = verdict.findings.length < 2;
  say("n-others", verdict.findings.length - 1);
  // A screen reader hears of another level, not of each second that a finding lasts.
  if (before !== verdict.level) say("told", `${verdict.level}: ${verdict.headline}`);
  document.title = document.title.replace(/^(OK|DEGRADED|DOWN)(?=:)/, verdict.level.toUpperCase());
}

// Elements are filled in place, so that a selection and the focus stay.
function showFindings(place, findings) {
  while (place.children.length > findings.length) place.lastElementChild.remove();
  while (place.children.length < findings.length) place.append(at("finding").content.firstElementChild.cloneNode(true));
  findings.forEach((finding, i) => fillFinding(place.children[i], finding));
}

function fillFinding(article, finding) {
  const part = (name) => article.querySelector(`[data-is=${name}]`);
  for (const name of ["sentence", "detail", "command", "reason"]) say(part(name), finding[name]);
  const device = part("device");
  device.hidden = !finding.culprit_is_client;
  if (finding.culprit_is_client) device.href = `/devices/${encodeURIComponent(finding.culprit)}`;
  say(device, finding.culprit_is_client ? finding.culprit : "");
  part("culprit").hidden = finding.culprit_is_client || !finding.culprit;
  say(part("culprit"), finding.culprit_is_client ? "" : finding.culprit);
  part("colon").hidden = !finding.culprit;
  offerCopy(article);
}

// Browsers offer the clipboard to pages from this machine or by TLS alone.
function offerCopy(article) {
  const button = article.querySelector(".copy");
  if (!navigator.clipboard || !button.hidden) return;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(article.querySelector("[data-is=command]").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

function showStatus(status) {
  heardAt = Date.now();
  if (at("away")) location.reload(); // the page had nothing to show, and now has
  at("asof").dateTime = status.as_of;
  say("asof", moment(status.as_of));
  say("link", "");
  showVerdict(status.verdict);
  last = status;
  for (const listener of listeners.status) listener(status);
}

function listen() {
  if (leaving.signal.aborted) return;
  const stream = new EventSource("/api/v1/stream");
  leaving.signal.addEventListener("abort", () => stream.close());
  stream.addEventListener("status", (event) => showStatus(JSON.parse(event.data)));
  stream.addEventListener("rounds", (event) => {
    const changed = JSON.parse(event.data);
    for (const listener of listeners.rounds) listener(changed);
  });
  stream.addEventListener("away", (event) => {
    heardAt = Date.now();
    showVerdict(JSON.parse(event.data).verdict);
    say("link", "(the rest of this page is from then)");
  });
  stream.addEventListener("error", () => {
    say("link", UNHEARD);
    // Refused, and not only interrupted: the browser does not try that again by itself.
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => { void ask("/api/v1/status"); listen(); }, AGAIN_MS);
  });
}

setInterval(() => {
  if (heardAt && Date.now() - heardAt > SILENT_MS) say("link", UNHEARD);
}, 2000);
document.querySelectorAll(".finding").forEach(offerCopy);
listen();

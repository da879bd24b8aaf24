// The feed of events: the newest page with the same filters, asked for again while the page is seen.

import { ask, at, cell, item, link, row, say, time, whole, words } from "./dom.js";

const EVERY_MS = 3000;
const FILTERS = ["kind", "code", "client", "round", "refused"];

const given = new URLSearchParams(location.search);
const asked = new URLSearchParams(FILTERS.filter((name) => given.get(name)).map((name) => [name, given.get(name)]));
asked.set("limit", at("live").dataset.limit);
let shown = "";

// As the server writes it: macros.html, event_rows.
function eventRow(event) {
  const what = cell(words(event.kind), "state");
  if (event.code) what.append(": ", item("span", words(event.code)));
  return row(
    cell(time(event.at), "state"), what, cell(event.client_id ? link(`/devices/${encodeURIComponent(event.client_id)}`, event.client_id) : "–"),
    cell(event.round === null ? "–" : link(`/rounds/${event.round}`, event.round)), cell(whole.format(event.n), "number"),
    cell(event.detail, "text"),
  );
}

async function look() {
  if (document.visibilityState !== "visible") return;
  const found = await ask(`/api/v1/events?${asked}`);
  at("live").hidden = false;
  say("live", found ? "New events appear here by themselves." : "New events cannot be had now.");
  const now = found ? JSON.stringify(found.items) : shown;
  // A table that somebody moves through with the keyboard, or marks text in, stays as it is until that is done.
  const marked = getSelection();
  const isUsed = at("events").contains(document.activeElement) || (!marked.isCollapsed && at("events").contains(marked.anchorNode));
  if (now === shown || isUsed) return;
  shown = now;
  if (at("none")) at("none").hidden = found.items.length > 0;
  at("events").replaceChildren(...found.items.map(eventRow));
}

setInterval(() => void look(), EVERY_MS);
void look();

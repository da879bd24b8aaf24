// The page: a field, a list, and a line with the device's state.

import { deviceKey, EdgeClient } from "../../clients/browser/src/index.js";
import { FeatureSchema } from "../../clients/browser/src/schema.js";
import { DocsSearch, type Found } from "./search.js";

const LONGEST_SNIPPET = 180;
const field = document.querySelector<HTMLInputElement>("#query")!;
const list = document.querySelector<HTMLElement>("#found")!;
const line = document.querySelector<HTMLElement>("#state")!;
const search = new DocsSearch(await (await fetch("index.json")).json());
const schema = await FeatureSchema.of(await (await fetch("features.json")).text());
const opened = new Set<number>();
let shown: Found | null = null;

/** Show the results. When this is done, what was opened in the list before is on disk. */
async function ask(query: string): Promise<void> {
  await finish();
  field.value = query;
  shown = search.find(query);
  list.replaceChildren(...shown.sections.map((_, position) => itemOf(shown!, position)));
}

/** A list ends when the visitor searches again, or says that the search is over. */
async function finish(): Promise<void> {
  const [found, positions] = [shown, [...opened]];
  shown = null;
  opened.clear();
  if (found !== null) await search.opened(found, positions);
}

function itemOf({ sections, places }: Found, position: number): HTMLElement {
  const { id, path, anchor, parents, title, text } = sections[position];
  const item = document.createElement("li");
  const link = Object.assign(document.createElement("a"), { href: `#${path}#${anchor}`, textContent: title });
  link.dataset.section = String(id);
  link.onclick = () => void opened.add(position);
  const where = parents === "" ? path : `${path} · ${parents}`;
  const moved = `MiniSearch: ${places[position]}`;
  item.append(link, textIn("small", where), textIn("span", moved), textIn("p", beginningOf(text)));
  return item;
}

/** About two lines, up to the end of a word. */
function beginningOf(text: string): string {
  return text.length <= LONGEST_SNIPPET ? text : `${text.slice(0, LONGEST_SNIPPET).replace(/\s\S*$/, "")} …`;
}

function textIn(tag: string, textContent: string): HTMLElement {
  return Object.assign(document.createElement(tag), { textContent });
}

/** Take part if the site's server enrols this browser's key; otherwise the order is MiniSearch's. */
async function takePart(): Promise<void> {
  const { publicKey } = await deviceKey();
  const answer = await fetch("enrol", { method: "POST", body: publicKey });
  if (!answer.ok) return void (line.textContent = "MiniSearch's order: there is no federation here.");
  const { credentials, broker } = await answer.json();
  // A list is recorded once, when it ends: it need not wait for more clicks.
  search.client = await EdgeClient.open({ credentials, broker, schema, clickWindowS: 0, onChange: tellState });
}

function tellState({ state }: EdgeClient): void {
  const { modelVersion, gate, countedThrough, nWaiting, nUpdatesCounted } = state;
  const model = modelVersion === null ? "no model yet" : `model ${modelVersion}`;
  const order = gate?.isOpen ? "its order is shown" : "MiniSearch's order is shown";
  const counted = `${countedThrough ?? 0} of your searches count, in ${nUpdatesCounted} updates`;
  line.textContent = `${model}, ${order} · ${counted} · ${nWaiting} wait`;
}

field.form!.onsubmit = (event) => {
  event.preventDefault();
  void ask(field.value);
};
addEventListener("pagehide", () => void finish());
await takePart();
// For the console, and for visit.mjs.
Object.assign(globalThis, { docs: { search, schema, ask, finish } });

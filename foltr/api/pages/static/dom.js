// Makes elements and formats values. What comes from the server is set as text, never as markup.

export const at = (id) => document.getElementById(id);
export const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
export const share = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

export const words = (name) => String(name).replaceAll("_", " ");
export const moment = (text) => new Date(text).toISOString().slice(0, 19).replace("T", " ");

export function say(place, text) {
  const element = typeof place === "string" ? at(place) : place;
  if (element && element.textContent !== String(text)) element.textContent = text;
}

export function item(name, text, classes = "") {
  const element = document.createElement(name);
  if (text !== null) element.textContent = text;
  if (classes) element.className = classes;
  return element;
}

export function link(path, text) {
  const element = item("a", text);
  element.href = path;
  return element;
}

export function time(text) {
  const element = item("time", moment(text));
  element.dateTime = text;
  return element;
}

// A cell of a table: text, or an element in it.
export function cell(content, classes = "") {
  const element = item("td", content instanceof Node ? null : String(content), classes);
  if (content instanceof Node) element.append(content);
  return element;
}

export function row(...cells) {
  const element = document.createElement("tr");
  element.append(...cells);
  return element;
}

// A list of sentences; it is left alone if it has them already.
export function fill(place, sentences) {
  const now = [...place.children].map((one) => one.textContent);
  if (now.join("\n") !== sentences.join("\n")) place.replaceChildren(...sentences.map((sentence) => item("li", sentence)));
}

// A page that is left asks nothing more: without the cookie each question would be an error.
export const leaving = new AbortController();
document.querySelector("form[action='/logout']")?.addEventListener("submit", () => leaving.abort());

// What the API has at this path; null if it cannot answer. A token that is void leads to the form for another one.
export async function ask(path) {
  try {
    const answer = await fetch(path, { signal: leaving.signal });
    if (answer.status === 401 || answer.status === 403) location.reload();
    return answer.ok ? await answer.json() : null;
  } catch {
    return null; // the band says that the server is away
  }
}

// Splits Markdown files at their headings: a section is the unit of search.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export const ROOT = new URL("../..", import.meta.url).pathname;

const BOXES = /[\u2500-\u257f]+/g;

/** Return the sections of the project's documentation, numbered in the order of its files. */
export function readSections() {
  const files = readdirSync(join(ROOT, "docs")).filter((name) => name.endsWith(".md"));
  const paths = ["README.md", ...files.sort().map((name) => `docs/${name}`)];
  const sections = paths.flatMap((path) => sectionsOf(path, readFileSync(join(ROOT, path), "utf8")));
  return sections.map((section, id) => ({ id, ...section }));
}

/** Return the sections of a file, ignoring headings inside fenced code. */
export function sectionsOf(path, markdown) {
  const sections = [];
  const above = [];
  let isCode = false;
  for (const line of markdown.split("\n")) {
    if (line.startsWith("```")) isCode = !isCode;
    const heading = isCode ? null : /^(#{1,6})\s+(.+)$/.exec(line);
    if (heading !== null) {
      const depth = heading[1].length;
      const title = plain(heading[2]);
      above.splice(depth - 1, Infinity, title);
      const parents = above.slice(0, -1).filter((parent) => parent !== undefined);
      sections.push({ path, anchor: anchorOf(title), depth, title, parents: parents.join(" / "), lines: [] });
    } else if (sections.length > 0) sections.at(-1).lines.push(line);
  }
  const written = sections.map(({ lines, ...section }) => ({ ...section, text: plain(lines.join("\n")) }));
  return written.filter(({ text }) => text !== "").map((section) => ({ ...section, lead: leadOf(section.text) }));
}

/** Return the first sentence of a text. */
function leadOf(text) {
  return /^.*?[.:;](?=\s|$)/.exec(text)?.[0] ?? text.slice(0, 200);
}

/** Return Markdown as readers see it: no marks, comments or pictures, cells of tables, and code except boxes. */
function plain(markdown) {
  const parts = markdown.replace(/<!--.*?-->/gs, "").split(/^```.*$/m); // every other one is code
  const read = parts.map((part, i) => (i % 2 === 1 ? part.replace(BOXES, " ") : plainProse(part)));
  return read.join(" ").replace(/\s+/g, " ").trim();
}

function plainProse(markdown) {
  return markdown
    .replace(/^ *\|.*\n *\|[ |:-]+\|$/gm, "") // a table's head, and the rule below it
    .replace(/^ *\|(.*)\|$/gm, (_, row) => cellsOf(row).join(" · "))
    .replace(/!\[[^\]]*\]\([^)]*\)/g, "")
    .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/^\s*([-*>]|\d+\.)\s+/gm, "")
    .replace(/`/g, "")
    .replace(/\*\*?(\w[^*]*)\*\*?/g, "$1")
    .replace(/\\(?=[|*])/g, "");
}

function cellsOf(row) {
  const cells = row.split(/(?<!\\)\|/).map((cell) => cell.trim());
  return cells.filter((cell) => cell !== "");
}

/** Return a heading's anchor as on GitHub. */
function anchorOf(title) {
  return title
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replace(/\s/g, "-");
}

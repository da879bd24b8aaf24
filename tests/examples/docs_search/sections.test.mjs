// Markdown comes apart at its headings, and what is left of it is what a reader sees.

import assert from "node:assert/strict";
import test from "node:test";

import { readSections, sectionsOf } from "../../../examples/docs_search/sections.mjs";

const PAGE = `# Books

<!-- shelf: begin
     and end -->
![A shelf](shelf.png) Read **them** [aloud](aloud.md#how). Then \`close(book)\`:

\`\`\`sh
# no heading
cat a | sort
┌─ a box ──┐
\`\`\`

### Old \`ones\`

| name | price |
|---|---:|
| *one* | 1 |
| two \\| 2 | |

1. First:

   | in a list |
   |---|
   | three |
> Quoted.

## Empty
`;

test("a section is what stands below a heading, with the headings above it", () => {
  const [books, old, ...more] = sectionsOf("docs/books.md", PAGE);
  assert.deepEqual(more, []); // one without a text is none
  assert.deepEqual(books, {
    ...{ path: "docs/books.md", anchor: "books", depth: 1, title: "Books", parents: "", lead: "Read them aloud." },
    text: "Read them aloud. Then close(book): # no heading cat a | sort a box",
  });
  assert.deepEqual(old, {
    ...{ path: "docs/books.md", anchor: "old-ones", depth: 3, title: "Old ones", parents: "Books" },
    ...{ text: "one · 1 two | 2 First: three Quoted.", lead: "one · 1 two | 2 First:" },
  });
});

test("the documentation has sections, and no marks in what is shown of them", () => {
  const sections = readSections();
  assert.ok(sections.length > 100);
  sections.forEach(({ id, title, text }, i) => {
    assert.equal(id, i);
    assert.doesNotMatch(`${title} ${text}`, /<!--|\|---/);
  });
});

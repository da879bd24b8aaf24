// The ranker's features of a result: thirteen numbers, which features.json names and scales.

export interface Section {
  readonly id: number;
  readonly path: string;
  readonly anchor: string;
  readonly depth: number;
  readonly title: string;
  readonly parents: string;
  readonly text: string;
  /** Its first sentence. */
  readonly lead: string;
}

const BEGINNING = 5; // two words with this many first letters in common may be forms of one word
const RECORDS = ["docs/history.md", "docs/decisions.md"];

export function featuresOf(query: string, section: Section, score: number): number[] {
  const asked = wordsOf(query);
  const { title, parents, lead, text, top, pairs, beginnings, length } = knownOf(section);
  const before = Math.min(...asked.map((word) => text.get(word) ?? length));
  return [
    score,
    shareIn(asked, title),
    shareIn([...title], new Set(asked)),
    shareIn(asked, parents),
    shareIn(asked, lead),
    shareIn(asked, text),
    shareIn(asked, top),
    shareIn(pairsOf(asked), pairs),
    shareIn(asked.map(beginningOf), beginnings),
    before,
    length,
    section.depth,
    Number(RECORDS.includes(section.path)),
  ];
}

/** A section's data that does not depend on the query. */
interface Known {
  readonly title: Set<string>;
  readonly parents: Set<string>;
  readonly lead: Set<string>;
  /** Each word, with the number of words before it. */
  readonly text: Map<string, number>;
  /** The words of title and first sentence, and their first letters. */
  readonly top: Set<string>;
  readonly beginnings: Set<string>;
  readonly pairs: Set<string>;
  readonly length: number;
}

const known = new WeakMap<Section, Known>();

function knownOf(section: Section): Known {
  const made = known.get(section) ?? readOf(section);
  known.set(section, made);
  return made;
}

function readOf(section: Section): Known {
  const [title, parents, lead, text] = [section.title, section.parents, section.lead, section.text].map(wordsOf);
  const top = new Set([...title, ...lead]);
  return {
    title: new Set(title),
    parents: new Set(parents),
    lead: new Set(lead),
    text: new Map(text.map((word, i) => [word, i] as const).reverse()), // of equal words the first one is kept
    top,
    beginnings: new Set([...top].map(beginningOf)),
    pairs: new Set([...pairsOf(title), ...pairsOf(text)]),
    length: text.length,
  };
}

function wordsOf(text: string): string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [];
}

function shareIn(words: readonly string[], others: { has(word: string): boolean }): number {
  return words.length === 0 ? 0 : words.filter((word) => others.has(word)).length / words.length;
}

function pairsOf(words: readonly string[]): string[] {
  return words.slice(1).map((word, i) => `${words[i]} ${word}`);
}

function beginningOf(word: string): string {
  return word.slice(0, BEGINNING);
}

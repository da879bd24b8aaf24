// Queries of simulated visitors: for a section that they know, by words of its heading and first sentence.

const STOP = new Set(
  "the a an and or of to in is are it its that this with for by on as at be not from what which no nor has have who".split(
    " ",
  ),
);

/** Return numbers in [0, 1), the same for the same seed (mulberry32). */
export function randomOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Return queries for learning and for evaluation, for different sections: each `{ query, meant }`. */
export function makeQueries(sections, seed, perSection) {
  const random = randomOf(seed);
  const made = { learn: [], judge: [] };
  for (const section of shuffled(sections, random)) {
    const ofSection = random() < 0.5 ? made.learn : made.judge;
    for (let i = 0; i < perSection; i++) {
      const query = queryFor(section, random);
      if (query !== null) ofSection.push({ query, meant: section.id });
    }
  }
  return made;
}

/** Return two to four of its words, one in ten without its last letter. */
function queryFor({ title, lead }, random) {
  const known = [...new Set([...wordsOf(title), ...wordsOf(lead)])];
  if (known.length < 2) return null;
  const words = shuffled(known, random).slice(0, 2 + Math.floor(3 * random()));
  return words.map((word) => (word.length > 4 && random() < 0.1 ? word.slice(0, -1) : word)).join(" ");
}

function wordsOf(text) {
  const words = text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [];
  return words.filter((word) => word.length > 1 && !STOP.has(word));
}

export function shuffled(items, random) {
  const keyed = items.map((item) => [random(), item]);
  return keyed.sort(([one], [other]) => one - other).map(([, item]) => item);
}

// Functions that visit.mjs calls in a page, as text: they can use only their arguments and `docs` (page.ts).

/** Wait for a first model. */
export async function waitForModel(patienceMs) {
  const end = Date.now() + patienceMs;
  while (globalThis.docs?.search.client?.modelVersion == null) {
    if (Date.now() > end) throw new Error(`no model came: ${document.body.textContent}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Return the mean reciprocal rank, among ten, of the intended section: by MiniSearch, and by the model alone. */
export function judge(queries) {
  const { search, schema } = globalThis.docs;
  const { weights } = search.client;
  const reciprocalRank = (ids, meant) => 1 / (1 + ids.slice(0, 10).indexOf(meant) || Infinity);
  const total = { minisearch: 0, model: 0 };
  for (const { query, meant } of queries) {
    const { sections, features } = search.candidatesFor(query);
    const { values, nFeatures } = schema.normalise(features);
    const scores = sections.map((_, row) => weights.reduce((sum, w, f) => sum + w * values[row * nFeatures + f], 0));
    const byModel = [...scores.keys()].sort((one, other) => scores[other] - scores[one] || one - other);
    const ids = sections.map(({ id }) => id);
    total.minisearch += reciprocalRank(ids, meant) / queries.length;
    total.model +=
      reciprocalRank(
        byModel.map((row) => ids[row]),
        meant,
      ) / queries.length;
  }
  return total;
}

/**
 * Search in each round like a person: read from the top, open, and stop at the intended section.
 *
 * Return how much its reciprocal rank exceeds MiniSearch's, for each shown list.
 */
export async function searchInRounds(asked, rounds, searches) {
  const { search, ask, finish } = globalThis.docs;
  const first = search.client.modelVersion;
  const advantages = [];
  for (let round = 1; round <= rounds; round++) {
    for (const { query, meant, slips } of asked.slice((round - 1) * searches, round * searches)) {
      await ask(query);
      let ofShown = 0;
      for (const [position, link] of [...document.querySelectorAll("#found a")].entries()) {
        const isMeant = link.dataset.section === String(meant);
        if (isMeant || slips[position]) link.click();
        if (isMeant) ofShown = 1 / (position + 1);
        if (isMeant) break;
      }
      const ids = search.candidatesFor(query).sections.map(({ id }) => id);
      advantages.push(ofShown - 1 / (1 + ids.slice(0, 10).indexOf(meant) || Infinity));
      await finish();
    }
    while (search.client.modelVersion < first + round) await new Promise((resolve) => setTimeout(resolve, 10));
  }
  return { advantages, isGateOpen: search.client.gate?.isOpen ?? false };
}

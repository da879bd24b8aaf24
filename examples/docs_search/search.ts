// A search of the documentation with MiniSearch, whose order learns from what its visitor opens.
//
// Learning adds only a call to rank and a call to record.

import MiniSearch, { type AsPlainObject, type Options } from "minisearch";

import type { EdgeClient, Serp } from "../../clients/browser/src/index.js";
import { featuresOf, type Section } from "./features.js";

const CANDIDATES = 40;
const SHOWN = 10;

/** The output of build.mjs. */
export interface Site {
  readonly options: Options<Section>;
  readonly sections: readonly Section[];
  readonly index: AsPlainObject;
}

/** The results of MiniSearch, best first: its score of each section, and the ranker's features. */
export interface Candidates {
  readonly sections: readonly Section[];
  readonly scores: readonly number[];
  readonly features: readonly (readonly number[])[];
}

/** Sections as shown, best first. */
export interface Found {
  readonly sections: readonly Section[];
  /** The place of each in MiniSearch's own order, from 1. */
  readonly places: readonly number[];
  /** Null without a client: this is MiniSearch's order. */
  readonly serp: Serp | null;
}

export class DocsSearch {
  /** Null while the page takes no part in a federation: its order is MiniSearch's. */
  client: EdgeClient | null = null;
  private readonly index: MiniSearch<Section>;

  constructor(private readonly site: Site) {
    this.index = MiniSearch.loadJS(site.index, site.options);
  }

  candidatesFor(query: string): Candidates {
    const hits = this.index.search(query).slice(0, CANDIDATES);
    const sections = hits.map(({ id }) => this.site.sections[id]);
    const scores = hits.map(({ score }) => score);
    return { sections, scores, features: sections.map((section, i) => featuresOf(query, section, scores[i])) };
  }

  find(query: string): Found {
    const { sections, scores, features } = this.candidatesFor(query);
    const serp = this.client?.rank(features, { base: scores, k: SHOWN }) ?? null;
    const ranking = serp?.ranking ?? sections.map((_, i) => i).slice(0, SHOWN);
    return { sections: ranking.map((i) => sections[i]), places: ranking.map((i) => i + 1), serp };
  }

  /** Report which of the shown sections were opened, once the visitor is done with the list. */
  async opened(found: Found, positions: readonly number[]): Promise<void> {
    if (this.client !== null && found.serp !== null) await this.client.recordClicks(found.serp, positions);
  }
}

// Lists as a device has shown them, for tests of its store.

import type { Serp } from "../../src/serps.js";
import type { DeviceStore } from "../../src/store/store.js";

export function listOf(serpId: string, more: Partial<Serp> = {}): Serp {
  return {
    serpId,
    ranking: [1, 0],
    source: "base",
    toCredit: undefined,
    modelVersion: null,
    features: { nDocuments: 2, nFeatures: 2, values: Float32Array.from([1, 0, 0, 1]) },
    reversals: new Float64Array([0.5]),
    logProbability: -0.7,
    ...more,
  };
}

/** Record a click on the first document of a list that is shown by this store's device. */
export function clickedFirst(store: DeviceStore, serp: Serp): Promise<number | "lost" | null> {
  store.recent.remember(serp);
  return store.record(serp, [0]);
}

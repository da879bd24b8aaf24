// The working model of a device: a copy of the global model that ranks lists and learns from their clicks.

import { DataError } from "../errors.js";
import { imitationStep } from "../learning/imitation.js";
import type { Features } from "../learning/linear.js";
import { pdgdStep } from "../learning/pdgd.js";
import { MAX_ABS_DELTA, packVector, unpackVector, type Bytes } from "../protocol/fields.js";
import type { ModelAnnouncement, PdgdTraining, RankerSpec, Training } from "../protocol/messages.js";
import type { Interaction } from "../store/interactions.js";

// Half of float32's range: the difference to the global weights, which may be as large, still fits.
const LARGEST_WEIGHT = 3.4028234663852886e38 / 2;

/** An announcement with start weights: a model, or a step of an unlearning job. */
type Announced = Pick<ModelAnnouncement, "ranker" | "n_auxiliary" | "weights">;

/** Return (features,) weights of an announced linear ranker; null for another ranker, which this device cannot use. */
export function linearWeights(announced: Announced): Float64Array<ArrayBuffer> | null {
  const { ranker, weights } = announced;
  if (ranker.kind !== "linear") return null;
  return Float64Array.from(unpackVector(weights).subarray(0, ranker.n_features));
}

/** Return why this device cannot learn from an announcement; null if it can. */
export function whyNotUsable(announced: Announced, training: Training): string | null {
  const { ranker, n_auxiliary } = announced;
  if (ranker.kind !== "linear") return `the ranker is ${(ranker as Extract<RankerSpec, { of: string }>).of}`;
  if (training.kind !== "pdgd") return `the method is ${training.of}`;
  return n_auxiliary === 0 ? null : `the model has ${n_auxiliary} values beside the ranker's`;
}

/** A working copy of a global model on this device. */
export class WorkingModel {
  private learned: Float64Array<ArrayBuffer>;
  /** The learned interactions, in order. */
  readonly interactionIds: number[] = [];

  /** @param mayImitate false without a gate, and in a step of an unlearning job. */
  constructor(
    readonly base: Float64Array<ArrayBuffer>,
    readonly training: PdgdTraining,
    private readonly mayImitate = false,
  ) {
    this.learned = base;
  }

  /** (features,) including what was learned. */
  get weights(): Float64Array<ArrayBuffer> {
    return this.learned;
  }

  /** Learn one interaction. DataError if it cannot be learned; then nothing is changed. */
  learn(interaction: Interaction): void {
    const features = featuresOf(interaction);
    if (features.nFeatures !== this.base.length) {
      throw new DataError(`${features.nFeatures} features; the federation's ranker has ${this.base.length}`);
    }
    const step = this.imitates(interaction) ? imitationStep : pdgdStep;
    this.learned = checkedWeights(step(this.learned, features, interaction, this.training.learning_rate), this.base);
    this.interactionIds.push(interaction.id);
  }

  /** Whether the list shows the application's order, which a model of zeros learns first. */
  private imitates({ source = "base" }: Interaction): boolean {
    if (!this.mayImitate || source !== "base" || this.base.some(Boolean)) return false;
    // It is null for samples of unscaled scores alone: with zeros their order is random.
    const { temperature } = this.training.exploration as { temperature?: number | null };
    return temperature !== null;
  }

  /** Return the difference to the global model as it is sent, float32. */
  delta(): Bytes {
    return packVector(this.learned.map((weight, i) => weight - this.base[i]));
  }
}

function featuresOf({ features, nFeatures }: Interaction): Features {
  return { nDocuments: features.length / nFeatures, nFeatures, values: features };
}

function checkedWeights(weights: Float64Array<ArrayBuffer>, base: Float64Array): Float64Array<ArrayBuffer> {
  if (!weights.every((weight) => Math.abs(weight) <= LARGEST_WEIGHT)) {
    throw new DataError("a learning step ended in weights that are not finite or do not fit float32");
  }
  if (!weights.every((weight, i) => Math.abs(weight - base[i]) <= MAX_ABS_DELTA)) {
    // Better lose one list than the whole update.
    throw new DataError(`a learning step moved a weight by more than ${MAX_ABS_DELTA}: features should be in [0, 1]`);
  }
  return weights;
}

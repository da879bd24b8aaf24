// A feature schema declares a federation's features, and how each is scaled to [0, 1].
//
// The application passes it to the client as the JSON file that the federator was started with (docs/features.md). A
// page without one need not load this module.

import { DataError, SettingsError } from "./errors.js";
import type { Features } from "./learning/linear.js";
import { concat, isMap, sha256Of, toHex } from "./protocol/fields.js";
import type { FeaturesLike } from "./serps.js";

const HEADING = "foltr schema 1\n";
const LARGEST_VALUE = 3.4028234663852886e38;
const MAX_FEATURES = 1000;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const FEATURE_NAME = /^[!-~]([ -~]{0,62}[!-~])?$/;
/** The bounds that each scaling needs. */
const NEEDED = { min_max: ["low", "high"], log: ["high"], ratio: [], per_query: [] } as const;

interface Feature {
  readonly name: string;
  readonly scaling: keyof typeof NEEDED;
  readonly low: number;
  readonly high: number;
}

export class FeatureSchema {
  private constructor(
    readonly name: string,
    readonly version: number,
    private readonly features: readonly Feature[],
    /** 64 hexadecimal digits: SHA-256 of the schema's canonical bytes. */
    readonly hash: string,
  ) {}

  /** Read the file's text or parsed object. SettingsError for an invalid schema. */
  static async of(file: unknown): Promise<FeatureSchema> {
    const declared: unknown = typeof file === "string" ? JSON.parse(file) : file;
    if (!isMap(declared) || Object.keys(declared).some((key) => !["name", "version", "features"].includes(key))) {
      throw new SettingsError("schema: expected a map of name, version and features; see docs/features.md");
    }
    const { name, version, features } = declared;
    if (typeof name !== "string" || !NAME.test(name)) throw new SettingsError("schema: name is not valid");
    if (!Number.isInteger(version) || (version as number) < 1)
      throw new SettingsError("schema: version: expected 1, 2, 3 ...");
    if (!Array.isArray(features) || features.length < 1 || features.length > MAX_FEATURES) {
      throw new SettingsError(`schema: features: expected a list of 1 to ${MAX_FEATURES}`);
    }
    const read = features.map(featureOf);
    const twice = read.find(({ name: one }, i) => read.findIndex((other) => other.name === one) < i);
    if (twice !== undefined) throw new SettingsError(`schema: two features are called ${twice.name}`);
    return new FeatureSchema(name, version as number, read, await hashOf(name, version as number, read));
  }

  get nFeatures(): number {
    return this.features.length;
  }

  /** Return the candidates of one query, scaled to [0, 1]. DataError: wrong width, or a value that is not finite. */
  normalise(candidates: FeaturesLike): Features {
    const rows = rowsOf(candidates);
    const values = new Float32Array(rows.length * this.nFeatures);
    rows.forEach((row) => {
      if (row.length !== this.nFeatures) {
        throw new DataError(
          `features: schema ${this.name} ${this.version} has ${this.nFeatures} columns, not ${row.length}`,
        );
      }
    });
    this.features.forEach((feature, f) => {
      const column = Float64Array.from(rows, (row) => row[f]);
      column.forEach((value, d) => {
        if (!(Math.abs(value) <= LARGEST_VALUE)) {
          throw new DataError(`features: '${feature.name}' of document ${d} is ${value}; give unknown values a number`);
        }
      });
      scaled(column, feature).forEach((value, d) => (values[d * this.nFeatures + f] = value));
    });
    return { nDocuments: rows.length, nFeatures: this.nFeatures, values };
  }
}

function featureOf(declared: unknown, column: number): Feature {
  const wrong = (what: string) => new SettingsError(`schema: features.${column}: ${what}; see docs/features.md`);
  if (!isMap(declared)) throw wrong("expected a map of name, scaling and bounds");
  const { name, scaling, low, high, ...more } = declared;
  if (Object.keys(more).length > 0) throw wrong(`${Object.keys(more)[0]} is unknown`);
  if (typeof name !== "string" || !FEATURE_NAME.test(name)) throw wrong("name must be 1 to 64 ASCII characters");
  if (typeof scaling !== "string" || !Object.hasOwn(NEEDED, scaling)) throw wrong("scaling is unknown");
  const needed: readonly string[] = NEEDED[scaling as keyof typeof NEEDED];
  for (const [bound, value] of Object.entries({ low, high })) {
    const isGiven = value !== undefined && value !== null;
    if (isGiven !== needed.includes(bound)) throw wrong(`scaling ${scaling} ${isGiven ? "has no" : "needs"} ${bound}`);
    if (isGiven && !(Math.abs(value as number) <= LARGEST_VALUE)) throw wrong(`${bound} is not a number`);
  }
  const bounds = { low: Number(low ?? 0), high: Number(high ?? 0) };
  if (needed.includes("high") && !(bounds.low < bounds.high)) throw wrong(`high is not above ${bounds.low}`);
  return { name, scaling: scaling as keyof typeof NEEDED, ...bounds };
}

/** Return one feature of all candidates, scaled and clipped. */
function scaled(values: Float64Array, { scaling, low, high }: Feature): Float64Array {
  let [from, to] = [low, high];
  if (scaling === "log") {
    values = values.map((value) => Math.log1p(Math.max(value, 0)));
    [from, to] = [0, Math.log1p(high)];
  } else if (scaling === "ratio") [from, to] = [0, 1];
  else if (scaling === "per_query") {
    from = values.reduce((a, b) => Math.min(a, b), Infinity);
    to = values.reduce((a, b) => Math.max(a, b), -Infinity);
  }
  const width = to > from ? to - from : 1;
  return values.map((value) => Math.min(1, Math.max(0, (value - from) / width)));
}

async function hashOf(name: string, version: number, features: readonly Feature[]): Promise<string> {
  const encoder = new TextEncoder();
  const parts = [encoder.encode(`${HEADING}${name} ${version}\n`)];
  for (const feature of features) {
    const bounds = new DataView(new ArrayBuffer(16));
    bounds.setFloat64(0, feature.low);
    bounds.setFloat64(8, feature.high);
    parts.push(encoder.encode(`${feature.name}\n${feature.scaling}\n`), new Uint8Array(bounds.buffer));
  }
  return toHex(await sha256Of(concat(...parts)));
}

function rowsOf(candidates: FeaturesLike): readonly ArrayLike<number>[] {
  if (Array.isArray(candidates)) return candidates as readonly ArrayLike<number>[];
  const { nDocuments, nFeatures, values } = candidates as Features;
  return Array.from({ length: nDocuments }, (_, d) => values.subarray(d * nFeatures, (d + 1) * nFeatures));
}

// A page ranks and records clicks; training and sending happen in the background.
//
//     const client = await EdgeClient.open({ credentials, broker: "wss://search.example/mqtt" });
//     const serp = client.rank(features);
//     await client.recordClicks(serp.serpId, [0, 3]);
//
// The clicks stay in the browser's IndexedDB. Once a round the page sends the difference between the learned and
// the announced weights, and the number of interactions behind it.

import { Agent } from "./agent.js";
import { readCredentials } from "./credentials.js";
import type { DeviceState, ForgetResult, ForgetState } from "./device_state.js";
import { DataError, SettingsError, UnavailableError } from "./errors.js";
import { keptKey } from "./keys.js";
import { SAFE, type Exploration } from "./learning/display.js";
import type { Gate } from "./learning/gate.js";
import { causeOf, toConsole, type Log } from "./log.js";
import type { Report } from "./report.js";
import { verifyNatively, verifyPortably } from "./protocol/signing.js";
import type { FeatureSchema } from "./schema.js";
import { DEFAULT_SERP_LENGTH, makeSerp, NONE, type FeaturesLike, type Gating, type Serp } from "./serps.js";
import { KEPT_LISTS } from "./store/recent_lists.js";
import { CLICK_WINDOW_S, DeviceStore, type Judge } from "./store/store.js";
import { USUAL_LIMITS, type UnlearningLimits } from "./training/unlearning_limits.js";
import { leadOnce, Tabs, type Request } from "./tabs.js";

export interface EdgeClientOptions {
  /** The output of `foltr device enrol --public-key` for this browser's key (`deviceKey`): text or parsed object. */
  readonly credentials: unknown;
  /** ws:// or wss://: the broker's WebSocket listener. The address in the credentials is for other devices. */
  readonly broker: string;
  /** The label of the browser's key, if not the default of `deviceKey`. */
  readonly keyLabel?: string;
  /** The application's feature schema (`FeatureSchema.of`), if it has declared one. It scales the features. */
  readonly schema?: FeatureSchema;
  /** Without a schema: how many columns the features have; others are refused at once. */
  readonly nFeatures?: number;
  /** The most interactions that may wait on the device; beyond that the oldest are dropped. */
  readonly maxInteractions?: number;
  /**
   * How many counted interactions to keep, to learn from them again when another client is unlearned or when they count
   * no longer. Never sent.
   */
  readonly keepInteractions?: number;
  /** How many of the newest lists to keep for their clicks, for a day. */
  readonly recentLists?: number;
  /** How many seconds a list waits for more clicks after the last, before an update takes it; by default 300. */
  readonly clickWindowS?: number;
  /** Limits on unlearning steps for this device; missing ones have their defaults. */
  readonly unlearningLimits?: Partial<UnlearningLimits>;
  /** False shows the best list the device knows, of which nothing is learned. */
  readonly explore?: boolean;
  /**
   * False shows the model's lists from the first model on. By default the application's order is shown until the user's
   * clicks favour the model's.
   */
  readonly gate?: boolean;
  /**
   * False does not say, if the federation asks, how many lists were clicked, how far up and in whose favour; nor is used
   * what all say.
   */
  readonly evaluation?: boolean;
  readonly log?: Log;
  /** Called after a change: a new model, a receipt, the connection. */
  readonly onChange?: (client: EdgeClient) => void;
}

export interface RankOptions {
  /** (documents,) the application's own scores, higher is better; by default the rows are given in its order. */
  readonly base?: ArrayLike<number>;
  /** Number of documents to show; default: the federation's. */
  readonly k?: number;
  /** For this list instead of the federation's. */
  readonly exploration?: Exploration;
}

const NOTHING_YET: DeviceState = {
  weights: null,
  modelVersion: null,
  serpLength: DEFAULT_SERP_LENGTH,
  exploration: SAFE,
  isForgotten: false,
  forgetState: null,
  hasOtherFeatures: false,
  gate: null,
  connected: false,
  nextVisitAt: null,
  round: null,
  countedThrough: null,
  nWaiting: 0,
  nMissing: null,
  nOpen: 0,
  isUpdatePending: false,
  nUpdatesCounted: 0,
  receipts: {},
  isQuarantined: false,
  newestAuditEntry: null,
  auditLogCut: null,
};

/** One device of a federation, in all tabs of a page. */
export class EdgeClient {
  /** The state as the leading tab knows it. */
  state: DeviceState = NOTHING_YET;
  private agent: Agent | null = null;
  private readonly tabs: Tabs<DeviceState>;
  private endLead: () => void = () => undefined;
  private led: Promise<void> = Promise.resolve();

  private constructor(
    name: string,
    private readonly store: DeviceStore,
    private readonly schema: FeatureSchema | null,
    /** Of each list if the call does not say it; null: the federation's. */
    private readonly exploration: Exploration | null,
    private readonly gating: Gating | null,
    private readonly onChange: (client: EdgeClient) => void,
  ) {
    this.tabs = new Tabs(name, {
      state: (state) => this.takeState(state),
      recorded: () => this.agent?.recorded(),
      request: (request) => this.perform(this.agent!, request),
    });
  }

  /** Open the device's store, and start connecting in one of the page's tabs. Ranking never waits for that. */
  static async open(options: EdgeClientOptions): Promise<EdgeClient> {
    if (!/^wss?:\/\//.test(options.broker))
      throw new SettingsError(`broker: ${options.broker} is not a ws:// or wss:// address`);
    const nFeatures = options.nFeatures ?? null;
    if (nFeatures !== null && options.schema !== undefined)
      throw new SettingsError("nFeatures: the schema says how many there are; leave one of the two out");
    const log = options.log ?? toConsole;
    const key = await keptKey(options.keyLabel ?? "device", indexedDB);
    const verify = key.kind === "webcrypto" ? verifyNatively : verifyPortably;
    const credentials = await readCredentials(options.credentials, key, verify);
    const { federation, name, username, password } = credentials;
    const schemaHash = options.schema?.hash ?? "";
    const limits = {
      maxInteractions: options.maxInteractions ?? 10_000,
      maxKept: options.keepInteractions ?? 500,
      maxRecent: options.recentLists ?? KEPT_LISTS,
    };
    const store = await DeviceStore.open(federation, name, limits, indexedDB, schemaHash);
    Object.assign(store.recent, { nFeatures, log });
    store.clickWindowS = options.clickWindowS ?? CLICK_WINDOW_S;
    store.keepsRewards = options.evaluation !== false;
    const broker = { url: options.broker, username, password };
    const lock = `foltr:${federation}/${name}`;
    const client = new EdgeClient(
      lock,
      store,
      options.schema ?? null,
      options.explore === false ? NONE : null,
      options.gate === false ? null : await import("./learning/gate.js"),
      options.onChange ?? (() => undefined),
    );
    const onState = (state: DeviceState) => client.tellState(state);
    const lead = async () => {
      const unlearningLimits = { ...USUAL_LIMITS, ...options.unlearningLimits };
      const isEvaluated = options.evaluation !== false;
      const kept = { store, schemaHash, unlearningLimits, isGated: options.gate !== false, isEvaluated };
      client.agent = await Agent.start({ credentials, key, verify, broker, ...kept, log, onState });
    };
    const leading = () => lead().catch((error: unknown) => log("error", "not_started", { cause: causeOf(error) }));
    client.endLead = leadOnce(lock, globalThis.navigator?.locks, () => (client.led = leading()));
    return client;
  }

  /** The global model in use; null before the first one arrived. */
  get modelVersion(): number | null {
    return this.state.modelVersion;
  }

  /** (features,) of the linear ranker, with what this device has learned; null before the first model. */
  get weights(): Float64Array | null {
    return this.state.weights;
  }

  /** Whether lists come from the model, the evidence, and each source's results; null before any evidence. */
  get gate(): Gate | null {
    return this.state.gate;
  }

  /** What the clicks on this device say: whether the model's order is better than the application's. */
  async report(): Promise<Report> {
    const { reportOf } = await import("./report.js");
    return reportOf(this.state, this.exploration, this.gating !== null);
  }

  toString(): string {
    const { connected, modelVersion, weights } = this.state;
    const model = modelVersion === null ? "no model yet" : `model ${modelVersion}`;
    const isModels = weights !== null && this.gating?.sourceBy(this.state, false, Math.random) !== "base";
    const order = isModels ? "the model's" : "the application's";
    return `<EdgeClient: ${connected ? "connected" : "without a broker"}, ${model}: lists are in ${order} order>`;
  }

  /** Whether the federation has erased this client. Then nothing is kept or sent, and the name is not used again. */
  get isForgotten(): boolean {
    return this.state.isForgotten;
  }

  /** Progress of a request to be forgotten, also from an earlier run; null without a request or an erasure. */
  get forgetState(): ForgetState | null {
    return this.state.forgetState;
  }

  /** When the page connects again, if the federation uses visits; null while it is connected or connecting. */
  get nextVisitAt(): Date | null {
    const { nextVisitAt } = this.state;
    return nextVisitAt === null ? null : new Date(1000 * nextVisitAt);
  }

  /**
   * Rank candidate documents, immediately and also without a network.
   *
   * The application's order is shown without a model, with a model for another number of features, or while the gate is
   * closed. A closed gate still interleaves some lists, except with `exploration` of kind `none`.
   *
   * @param features (documents, features), finite, normalised as the federation's devices agreed to.
   */
  rank(features: FeaturesLike, options: RankOptions = {}): Serp {
    const exploration = options.exploration ?? this.exploration;
    const scaled = this.schema === null ? features : this.schema.normalise(features);
    const k = options.k ?? this.state.serpLength;
    const serp = makeSerp(scaled, k, options.base ?? null, this.state, exploration, this.gating);
    const [{ recent }, n] = [this.store, serp.features.nFeatures];
    if (recent.nFeatures !== null && n > 0 && n !== recent.nFeatures)
      throw new DataError(`features: ${n} columns, but this application set nFeatures=${recent.nFeatures}`);
    if (!this.isForgotten) recent.remember(serp);
    return serp;
  }

  /**
   * Record the user's clicks on a shown list: positions from 0, best first. No clicks are a record, too.
   *
   * On disk once the promise is fulfilled. Clicks on the same list add up; those recorded before change nothing.
   *
   * False if new clicks came too late and are lost, because an update has the list (`clickWindowS`) or it was dropped
   * (`maxInteractions`); also once this client is forgotten.
   *
   * DataError: a click is not a position of the list, or the list is another client's or too old.
   *
   * @param serp the list, or its `serpId`, also after a reload and in another tab (`recentLists`).
   */
  async recordClicks(serp: Serp | string, clicked: readonly number[]): Promise<boolean> {
    const { gating } = this;
    const judge: Judge | undefined =
      gating === null
        ? undefined
        : (gate, list, clicks, before) => gating.judgedBy(gate, list, clicks, before, this.state.shared);
    const recorded = this.isForgotten ? "lost" : await this.store.record(serp, clicked, judge);
    if (typeof recorded === "number") {
      if (this.agent === null) this.tabs.tellRecorded();
      else this.agent.recorded();
    }
    return recorded !== "lost";
  }

  /** Leave the federation and send nothing more. Returns whether the federator confirmed it in time. */
  async leave(timeoutS = 10): Promise<boolean> {
    return (await this.request({ method: "leave", timeoutS })) as boolean;
  }

  /**
   * Ask the federation to erase this client and to unlearn its contributions; then the browser forgets, too.
   *
   * The request is stored in the browser before it is sent. From then on no tab sends anything else, and each later
   * start sends it again until a receipt comes. DataError: it cannot be stored, and nothing was changed.
   */
  async forgetMe(timeoutS = 60): Promise<ForgetResult> {
    await this.store.askToBeForgotten(); // even if the leading tab is asleep
    try {
      return (await this.request({ method: "forgetMe", timeoutS })) as ForgetResult;
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error;
      return { state: this.state.forgetState ?? "asked", receipt: null };
    }
  }

  /** End this tab's part. Another open tab takes the lead. */
  async close(): Promise<void> {
    this.endLead();
    await this.led;
    await this.agent?.close();
    this.agent = null;
    this.tabs.close();
    await this.store.recent.saved();
    this.store.close();
  }

  private request(request: Request): Promise<unknown> {
    return this.agent === null ? this.tabs.ask(request) : this.perform(this.agent, request);
  }

  private perform(agent: Agent, { method, timeoutS }: Request): Promise<unknown> {
    return method === "leave" ? agent.leave(timeoutS) : agent.forgetMe(timeoutS);
  }

  private tellState(state: DeviceState): void {
    this.takeState(state);
    this.tabs.tell(state);
  }

  private takeState(state: DeviceState): void {
    this.state = state;
    this.onChange(this);
  }
}

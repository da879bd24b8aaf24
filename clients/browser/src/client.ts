// A page ranks and records clicks; training and sending happen behind it.
//
//     const client = await EdgeClient.open({ credentials, broker: "wss://search.example/mqtt" });
//     const serp = client.rank(features);
//     await client.recordClicks(serp, [0, 3]);
//
// The clicks stay in the browser's IndexedDB. What leaves it, once a round, is the difference of the weights that were
// learned to the announced ones, and how many interactions are behind it.

import { Agent, type DeviceState } from "./agent.js";
import { readCredentials } from "./credentials.js";
import { SettingsError, UnavailableError } from "./errors.js";
import type { ForgetResult } from "./forgetting.js";
import { keptKey } from "./keys.js";
import { SAFE, type Exploration } from "./learning/display.js";
import type { Gate } from "./learning/gate.js";
import { causeOf, toConsole, type Log } from "./log.js";
import { verifyNatively, verifyPortably } from "./protocol/signing.js";
import type { FeatureSchema } from "./schema.js";
import { clicksOn, DEFAULT_SERP_LENGTH, makeSerp, NONE, type FeaturesLike, type Gating, type Serp } from "./serps.js";
import { DeviceStore, type ForgetState } from "./store/store.js";
import { USUAL_LIMITS, type UnlearningLimits } from "./training/relearning.js";
import { leadOnce, Tabs, type Request } from "./tabs.js";

export interface EdgeClientOptions {
  /** What `foltr device enrol --public-key` wrote for this browser's key (`deviceKey`): the text, or the object in it. */
  readonly credentials: unknown;
  /** ws:// or wss://: the broker's listener for WebSockets. The address in the credentials is for other devices. */
  readonly broker: string;
  /** The label of the browser's key, if not the one that `deviceKey` takes by default. */
  readonly keyLabel?: string;
  /** What the application's features are (`FeatureSchema.of`), if it has declared them: they are scaled by it. */
  readonly schema?: FeatureSchema;
  /** How many interactions may wait on the device; beyond it the oldest are dropped. */
  readonly maxInteractions?: number;
  /**
   * How many of those that count are kept, to learn from them again when another client is to be unlearned, or when
   * they count no more. Never sent.
   */
  readonly keepInteractions?: number;
  /** How much steps of unlearning jobs may ask of this device; what is missing is as usual. */
  readonly unlearningLimits?: Partial<UnlearningLimits>;
  /** False shows the best list the device knows, of which nothing is learned. */
  readonly explore?: boolean;
  /**
   * False shows the model's lists from the first model on. Otherwise the application's order is shown until the
   * user's clicks say that the model's is better.
   */
  readonly gate?: boolean;
  readonly log?: Log;
  /** Called when something has changed: a new model, a receipt, the connection. */
  readonly onChange?: (client: EdgeClient) => void;
}

export interface RankOptions {
  /** (documents,) the application's own scores, higher is better; by default the rows are given in its order. */
  readonly base?: ArrayLike<number>;
  /** How many to show; by default what the federation asks for. */
  readonly k?: number;
  /** For this list in place of what the federation asks for. */
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
  isUpdatePending: false,
  nUpdatesCounted: 0,
  receipts: {},
  isQuarantined: false,
  newestAuditEntry: null,
  auditLogCut: null,
};

/** One device of a federation, in all tabs of a page. */
export class EdgeClient {
  /** How things are, as the tab that leads knows. */
  state: DeviceState = NOTHING_YET;
  private agent: Agent | null = null;
  private readonly tabs: Tabs<DeviceState>;
  private endLead: () => void = () => undefined;
  private led: Promise<void> = Promise.resolve();

  private constructor(
    name: string,
    private readonly store: DeviceStore,
    private readonly schema: FeatureSchema | null,
    private readonly explore: boolean,
    private readonly gating: Gating | null,
    private readonly onChange: (client: EdgeClient) => void,
  ) {
    this.tabs = new Tabs(name, {
      state: (state) => this.takeState(state),
      recorded: () => this.agent?.recorded(),
      request: (request) => this.perform(this.agent!, request),
    });
  }

  /** Open the device's store, and begin to connect in one of the page's tabs. Ranking never waits for that. */
  static async open(options: EdgeClientOptions): Promise<EdgeClient> {
    if (!/^wss?:\/\//.test(options.broker))
      throw new SettingsError(`broker: ${options.broker} is no ws:// or wss:// address`);
    const log = options.log ?? toConsole;
    const key = await keptKey(options.keyLabel ?? "device", indexedDB);
    const verify = key.kind === "webcrypto" ? verifyNatively : verifyPortably;
    const credentials = await readCredentials(options.credentials, key, verify);
    const { federation, name, username, password } = credentials;
    const schemaHash = options.schema?.hash ?? "";
    const limits = { maxInteractions: options.maxInteractions ?? 10_000, maxKept: options.keepInteractions ?? 500 };
    const store = await DeviceStore.open(federation, name, limits, indexedDB, schemaHash);
    const broker = { url: options.broker, username, password };
    const lock = `foltr:${federation}/${name}`;
    const client = new EdgeClient(
      lock,
      store,
      options.schema ?? null,
      options.explore ?? true,
      options.gate === false ? null : await import("./learning/gate.js"),
      options.onChange ?? (() => undefined),
    );
    const onState = (state: DeviceState) => client.tellState(state);
    const lead = async () => {
      const unlearningLimits = { ...USUAL_LIMITS, ...options.unlearningLimits };
      const kept = { store, schemaHash, unlearningLimits };
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

  /** (features,) of the linear ranker, with what this device has learned; null before there is a model. */
  get weights(): Float64Array | null {
    return this.state.weights;
  }

  /**
   * Whether lists come from the model, what that was decided by, and what each source's lists brought; null before it
   * has judged by any.
   */
  get gate(): Gate | null {
    return this.state.gate;
  }

  /**
   * Whether the federation has erased this client: nothing is kept or sent any more, and the name is not used again.
   */
  get isForgotten(): boolean {
    return this.state.isForgotten;
  }

  /** How far the wish to be forgotten is, also of an earlier run; null without one, and without an erasure. */
  get forgetState(): ForgetState | null {
    return this.state.forgetState;
  }

  /**
   * When the page connects again, where its federation has devices come by in turns; null while it is connected, or
   * tries to be.
   */
  get nextVisitAt(): Date | null {
    const { nextVisitAt } = this.state;
    return nextVisitAt === null ? null : new Date(1000 * nextVisitAt);
  }

  /**
   * Rank candidate documents, at once and whether there is a network or not.
   *
   * Without a model, or where it is of another number of features, the application's order is shown, and as long as
   * the gate is closed. That interleaves some lists, but for `exploration` of kind `none`.
   *
   * @param features (documents, features), finite, normalised as the federation's devices agreed to.
   */
  rank(features: FeaturesLike, options: RankOptions = {}): Serp {
    const exploration = options.exploration ?? (this.explore ? null : NONE);
    const scaled = this.schema === null ? features : this.schema.normalise(features);
    const k = options.k ?? this.state.serpLength;
    return makeSerp(scaled, k, options.base ?? null, this.state, exploration, this.gating);
  }

  /**
   * Record the user's clicks on a shown list: positions from 0, best first; none is a record too.
   *
   * On disk once the promise is fulfilled. Recording the same list twice changes nothing.
   */
  async recordClicks(serp: Serp, clicked: readonly number[]): Promise<void> {
    const clicks = clicksOn(serp, clicked);
    if (serp.ranking.length === 0 || this.isForgotten) return;
    const { features, modelVersion: baseVersion, source, toCredit, ...shown } = serp;
    await this.store.addInteraction(
      { ...shown, clicks, baseVersion, nFeatures: features.nFeatures, features: features.values },
      this.gating?.judgementBy(source, clicks, toCredit),
    );
    if (this.agent === null) this.tabs.tellRecorded();
    else this.agent.recorded();
  }

  /** Leave the federation: send nothing more; return whether the federator confirmed it in time. */
  async leave(timeoutS = 10): Promise<boolean> {
    return (await this.request({ method: "leave", timeoutS })) as boolean;
  }

  /**
   * Ask the federation to erase this client, and to unlearn what it contributed; then the browser forgets too.
   *
   * The wish is in the browser's database before it is sent. From here on no tab sends anything else, and each later
   * start sends it again until there is a receipt. DataError: it cannot be stored, and nothing was changed.
   */
  async forgetMe(timeoutS = 60): Promise<ForgetResult> {
    await this.store.askToBeForgotten(); // also where the tab that leads is asleep
    try {
      return (await this.request({ method: "forgetMe", timeoutS })) as ForgetResult;
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error;
      return { state: this.state.forgetState ?? "asked", receipt: null };
    }
  }

  /** End this tab's part; another one leads then, if there is one. */
  async close(): Promise<void> {
    this.endLead();
    await this.led;
    await this.agent?.close();
    this.agent = null;
    this.tabs.close();
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

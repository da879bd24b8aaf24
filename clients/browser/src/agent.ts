// A device's agent takes what the network brings, decides what the device does about it, and sends what is due.
//
// It is all of a device that one tab runs for all of them: the connection, the working model and what is sent.

import { AuditWatch, type AuditLogCut } from "./audit_watch.js";
import { Contributor } from "./contribution.js";
import { isPolicyOf, type Credentials } from "./credentials.js";
import { MessageError, SettingsError, UnavailableError } from "./errors.js";
import { Forgetting, type ForgetResult } from "./forgetting.js";
import { Inbox, type Parts } from "./inbox.js";
import { SAFE } from "./learning/display.js";
import { causeOf, type Log } from "./log.js";
import { MqttLink, type BrokerAccess } from "./messaging/mqtt_link.js";
import { Session } from "./messaging/session.js";
import { Outbox } from "./outbox.js";
import { Participation } from "./participation.js";
import { shortHash } from "./protocol/fields.js";
import { Leave, Status } from "./protocol/messages.js";
import type { KeptKey, Verify } from "./protocol/signing.js";
import { DEFAULT_SERP_LENGTH, type RankingState } from "./serps.js";
import type { DeviceStore } from "./store/store.js";
import { Relearning, type UnlearningLimits } from "./training/relearning.js";
import { Trainer } from "./training/trainer.js";
import { Happening, now, Turns } from "./turns.js";

const LEAVE_AGAIN_S = 3;
const LONGEST_PAUSE_S = 60;

/** What a device says of itself, beside what lists are made by. */
export interface DeviceState extends RankingState {
  readonly connected: boolean;
  readonly round: number | null;
  /** The last of this device's interactions that counts, as the federation said last; null before it did. */
  readonly countedThrough: number | null;
  /** Interactions on the device that are in no update yet. */
  readonly nWaiting: number;
  readonly isUpdatePending: boolean;
  readonly nUpdatesCounted: number;
  readonly receipts: Readonly<Record<string, number>>;
  readonly isQuarantined: boolean;
  /** The newest entry of the federation's log of erasures that was heard of; null before one. */
  readonly newestAuditEntry: number | null;
  /** What was heard that speaks against that log: it was cut, or restored from a backup; null where nothing does. */
  readonly auditLogCut: AuditLogCut | null;
}

export interface AgentOptions {
  readonly credentials: Credentials;
  readonly key: KeptKey;
  readonly verify: Verify;
  readonly broker: BrokerAccess;
  readonly store: DeviceStore;
  /** Of the application's features; empty where it has not declared them. */
  readonly schemaHash: string;
  readonly unlearningLimits: UnlearningLimits;
  readonly log: Log;
  /** Called after each turn with what may have changed. */
  readonly onState: (state: DeviceState) => void;
}

export class Agent {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isClosed = false;

  private constructor(
    private readonly parts: Parts,
    private readonly turns: Turns,
    private readonly inbox: Inbox,
    private readonly outbox: Outbox,
    private readonly link: MqttLink,
    private readonly onState: (state: DeviceState) => void,
  ) {}

  /** Make the agent of a store, and begin to connect. */
  static async start(options: AgentOptions): Promise<Agent> {
    const { credentials, key, verify, broker, store, log } = options;
    await takePolicyOf(credentials, verify, store);
    const session = await Session.of(credentials, key, verify, store, log);
    const pending = await session.signedPendingUpdate();
    const sent = pending === null ? null : { ...pending, digest: await shortHash(pending.payload) };
    const participation = new Participation(sent, (await store.heard("policy")) !== null, options.schemaHash);
    const trainer = new Trainer(store, participation, log);
    const contributor = new Contributor(session, store, participation, trainer, log, now);
    const relearning = new Relearning(store, log, Math.random, options.unlearningLimits);
    const turns = new Turns(log);
    const { topics } = session;
    const isForgotten = await store.isForgotten();
    // From here on nothing waits: the link asks for its last will as soon as there is a link.
    const link: MqttLink = new MqttLink(
      broker,
      `foltr:${session.federation}:${session.clientId}`, // no name holds a colon, so no two share an id
      // The first two first: whose key the others are signed with, and what may be sent, depends on them.
      [
        ...[topics.federatorKey, topics.policy, topics.model, topics.round, topics.unlearningRound],
        ...[topics.auditHead, session.topic("inbox")],
      ],
      {
        lastWill: () => turns.run(() => session.begin(forgetting.isForgotten)),
        connected: () => agent.start(() => agent.beginConnection()),
        message: (message) => agent.start(() => inbox.take(message)),
      },
      log,
    );
    const outbox = new Outbox(link, session, participation, log);
    const forgetting = new Forgetting(turns, outbox, participation, store, log, isForgotten);
    const hasLeft = new Happening();
    const audit = new AuditWatch(session.federation, store, log);
    const ofDevice = { credentials, verify, session, store, log };
    const parts = { ...ofDevice, participation, trainer, contributor, relearning, forgetting, audit, hasLeft };
    const inbox: Inbox = new Inbox(parts, () => agent.beForgotten());
    const agent: Agent = new Agent(parts, turns, inbox, outbox, link, options.onState);
    agent.start(() => agent.begin());
    return agent;
  }

  // --- what the application does ------------------------------------------------------------------------------------

  /** Learn what was recorded, by this tab or another one. */
  recorded(): void {
    this.start(async () => {
      await this.parts.trainer.catchUp();
      await this.parts.contributor.contribute();
    });
  }

  /** Leave the federation; return whether the federator confirmed it in time. UnavailableError: nothing was changed. */
  async leave(timeoutS: number): Promise<boolean> {
    const giveUpAt = now() + timeoutS;
    this.parts.participation.left = true; // first: a join that is due must not follow the leave
    try {
      await this.turns.run(() => this.outbox.publish(Leave, {}, "leave"));
    } catch (error) {
      this.parts.participation.left = false;
      throw error;
    }
    while (!(await this.parts.hasLeft.within(Math.min(LEAVE_AGAIN_S, giveUpAt - now()))) && now() < giveUpAt) {
      await this.turns.run(() => this.outbox.publish(Leave, {}, "leave")).catch(ignoreUnavailable);
    }
    await this.turns.run(() => this.outbox.clear("status")).catch(ignoreUnavailable);
    return this.parts.hasLeft.isSet;
  }

  /** Be forgotten, as `Forgetting.ask` says. */
  async forgetMe(timeoutS: number): Promise<ForgetResult> {
    try {
      return await this.parts.forgetting.ask(timeoutS);
    } finally {
      this.start(async () => undefined);
    }
  }

  /** Say goodbye, and end the connection. */
  async close(): Promise<void> {
    this.isClosed = true;
    clearTimeout(this.timer);
    await this.turns.run(async () => {
      if (!this.link.connected) return;
      if (!this.parts.participation.left || this.parts.forgetting.isWaiting) {
        await this.outbox.publish(Status, { online: false }, "status", true).catch(ignoreUnavailable);
      }
      await this.parts.forgetting.finish();
    });
    await this.link.close();
    await this.turns.ended();
  }

  // --- what happens of itself ---------------------------------------------------------------------------------------

  /** Do something in turn, then send what is due and say how things are. */
  private start(job: () => Promise<void>): void {
    this.turns.start(async () => {
      try {
        await job();
      } finally {
        if (!this.isClosed) await this.turn();
      }
    });
  }

  private async turn(): Promise<void> {
    await this.outbox.sendDue(this.parts.relearning, now());
    await this.parts.forgetting.finish();
    clearTimeout(this.timer);
    if (this.isClosed) return;
    const pause = Math.max(0, Math.min(this.outbox.nextDueAt() - now(), LONGEST_PAUSE_S));
    this.timer = setTimeout(() => this.start(async () => undefined), pause * 1000);
    this.onState(await this.state());
  }

  private async begin(): Promise<void> {
    if (this.parts.forgetting.isForgotten) {
      this.dropEverything();
      this.parts.log("warning", "forgotten");
      return;
    }
    await this.parts.audit.restore();
    try {
      await this.inbox.restoreModel();
    } catch (error) {
      if (!(error instanceof MessageError)) throw error;
      this.parts.log("warning", "stored_model_not_understood", { cause: causeOf(error) });
    }
  }

  private async beginConnection(): Promise<void> {
    if (this.parts.participation.left) return;
    this.parts.participation.beginConnection(now());
    await this.outbox.publish(Status, { online: true }, "status", true).catch(ignoreUnavailable);
  }

  /** Erase on the device what the federation has erased of this client. */
  private async beForgotten(): Promise<void> {
    if (!this.parts.forgetting.isForgotten) this.parts.log("warning", "forgotten");
    await this.parts.forgetting.forget();
    this.dropEverything();
  }

  private dropEverything(): void {
    this.parts.participation.forget();
    this.parts.trainer.forget();
    this.parts.relearning.forget();
    this.parts.audit.forget();
  }

  private async state(): Promise<DeviceState> {
    const { participation, trainer, contributor, forgetting, audit, store } = this.parts;
    const { round, model } = participation;
    const weights = trainer.weights;
    const training = round?.training.kind === "pdgd" ? round.training : null;
    return {
      weights,
      modelVersion: weights === null ? null : (model?.announcement.version ?? null),
      serpLength: training?.serp_length ?? DEFAULT_SERP_LENGTH,
      exploration: training?.exploration ?? SAFE,
      isForgotten: forgetting.isForgotten,
      hasOtherFeatures: participation.hasOtherFeatures,
      gate: await store.gate(),
      connected: this.link.connected,
      round: round?.round ?? null,
      countedThrough: (await store.bounds()).mark,
      nWaiting: await store.nWaiting(),
      isUpdatePending: participation.pending !== null,
      nUpdatesCounted: contributor.nCounted,
      receipts: { ...this.inbox.receipts },
      isQuarantined: contributor.quarantined,
      newestAuditEntry: audit.newest,
      auditLogCut: audit.cut,
    };
  }
}

/** Come under the policy that the credentials name, before anything is sent. */
async function takePolicyOf(credentials: Credentials, verify: Verify, store: DeviceStore): Promise<void> {
  if (credentials.policy === null || (await store.isForgotten()) || (await store.heard("policy")) !== null) return;
  if (!(await isPolicyOf(credentials, credentials.policy, verify))) {
    throw new SettingsError("credentials: the policy is not signed by the operator that they name");
  }
  await store.putPolicy(credentials.policy);
}

function ignoreUnavailable(error: unknown): void {
  if (!(error instanceof UnavailableError)) throw error;
}

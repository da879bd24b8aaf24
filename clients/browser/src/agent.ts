// The agent of a device handles network messages, decides what to do about them, and sends what is due.
//
// One tab runs it for all tabs: the connection, the working model and all sending.

import { AuditWatch } from "./audit_watch.js";
import { Contributor } from "./contribution.js";
import { isPolicyOf, type Credentials } from "./credentials.js";
import type { DeviceState, ForgetResult } from "./device_state.js";
import { MessageError, SettingsError, UnavailableError } from "./errors.js";
import { Evaluator } from "./evaluator.js";
import { Forgetting } from "./forgetting.js";
import { Inbox, type Parts } from "./inbox.js";
import { SAFE } from "./learning/display.js";
import { causeOf, type Log } from "./log.js";
import { MqttLink, type BrokerAccess } from "./messaging/mqtt_link.js";
import { Session, type InboundMessage, type LastWill } from "./messaging/session.js";
import { Outbox } from "./outbox.js";
import { Participation } from "./participation.js";
import { shortHash } from "./protocol/fields.js";
import { Leave, Status } from "./protocol/messages.js";
import type { KeptKey, Verify } from "./protocol/signing.js";
import { DEFAULT_SERP_LENGTH } from "./serps.js";
import type { DeviceStore } from "./store/store.js";
import { Relearning } from "./training/relearning.js";
import { Trainer } from "./training/trainer.js";
import type { UnlearningLimits } from "./training/unlearning_limits.js";
import { Happening, now, Turns } from "./turns.js";
import { Visits, type KeptPace } from "./visits.js";

const LEAVE_AGAIN_S = 3;
// Repeated short waits by the clock instead of one long timer: a machine that slept notices the time on waking.
const LONGEST_PAUSE_S = 60;
const LOOK_AGAIN_S = 0.05;

export interface AgentOptions {
  readonly credentials: Credentials;
  readonly key: KeptKey;
  readonly verify: Verify;
  readonly broker: BrokerAccess;
  readonly store: DeviceStore;
  /** Hash of the application's feature schema; empty if it has declared none. */
  readonly schemaHash: string;
  readonly unlearningLimits: UnlearningLimits;
  /** See `Trainer`. */
  readonly isGated: boolean;
  /** See `Evaluator`. */
  readonly isEvaluated: boolean;
  readonly log: Log;
  /** Called after each turn in which the state may have changed. */
  readonly onState: (state: DeviceState) => void;
}

export class Agent {
  /** The broker retains this device's online status, with a last will that reports a lost connection. */
  private isShown = false;
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

  /** Make the agent of a store, and start connecting. */
  static async start(options: AgentOptions): Promise<Agent> {
    const { credentials, key, verify, broker, store, log } = options;
    await takePolicyOf(credentials, verify, store);
    const session = await Session.of(credentials, key, verify, store, log);
    const isSecure = credentials.isPinned || (await store.heard("policy")) !== null;
    // A raw update stays in the store, which discards it under a policy.
    const pending = isSecure ? null : await session.signedPendingUpdate();
    const sent = pending === null ? null : { ...pending, digest: await shortHash(pending.payload) };
    const participation = new Participation(sent, isSecure, options.schemaHash);
    participation.settled = (await store.bounds()).settled;
    const keep = (pace: KeptPace | null) =>
      void store.putPace(pace).catch((error: unknown) => log("warning", "pace_not_stored", { cause: causeOf(error) }));
    const visits = new Visits(await store.pace(), participation, keep, log);
    const trainer = new Trainer(store, participation, log, options.isGated);
    const evaluator = new Evaluator(session.federation, store, participation, options.isEvaluated);
    const contributor = new Contributor(session, store, participation, trainer, evaluator, log, now);
    const relearning = new Relearning(store, log, Math.random, options.unlearningLimits);
    const turns = new Turns(log);
    const { topics } = session;
    const stored = await store.forgetState();
    const isForgotten = (await store.isForgotten()) || (stored !== null && stored !== "asked");
    // No await from here on: the link asks for its last will as soon as it exists.
    const link: MqttLink = new MqttLink(
      broker,
      `foltr:${session.federation}:${session.clientId}`, // names contain no colon, so ids are unique
      // These two first: the keys of the other messages, and what may be sent, depend on them.
      [
        ...[
          topics.federatorKey,
          topics.policy,
          topics.pace,
          topics.evaluation,
          topics.model,
          topics.round,
          topics.unlearningRound,
        ],
        ...[topics.auditHead, session.topic("inbox")],
      ],
      {
        lastWill: () => turns.run(() => agent.beginSession()),
        connected: () => agent.start(() => agent.beginConnection()),
        message: (message) => agent.receive(message),
      },
      log,
      visits.isResting,
    );
    const outbox = new Outbox(link, session, participation, log);
    const forgetting = new Forgetting(turns, outbox, participation, store, log, isForgotten, stored, () =>
      agent.sayHello(),
    );
    const hasLeft = new Happening();
    const audit = new AuditWatch(session.federation, store, log);
    const ofDevice = { credentials, verify, session, store, log };
    const learning = { participation, trainer, evaluator, contributor, relearning };
    const parts = { ...ofDevice, ...learning, forgetting, audit, visits, hasLeft };
    const inbox: Inbox = new Inbox(parts, () => agent.beForgotten());
    const agent: Agent = new Agent(parts, turns, inbox, outbox, link, options.onState);
    if (!visits.isResting) visits.beginVisit(now());
    agent.start(() => agent.begin());
    return agent;
  }

  // --- what the application does ------------------------------------------------------------------------------------

  /** Learn interactions recorded by this or another tab, and those that no longer wait for clicks. */
  recorded(): void {
    this.start(async () => {
      await this.parts.trainer.catchUp();
      await this.parts.contributor.contribute();
    });
  }

  /** Leave the federation. Returns whether the federator confirmed it in time. On UnavailableError nothing changed. */
  leave(timeoutS: number): Promise<boolean> {
    return this.staying(timeoutS, (leftS) => this.takeLeave(leftS));
  }

  private async takeLeave(timeoutS: number): Promise<boolean> {
    if (this.parts.forgetting.state !== null) return false; // only the request to be forgotten may be sent
    const giveUpAt = now() + timeoutS;
    this.parts.participation.left = true; // first, so that no join follows the leave
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

  /** Ask to be forgotten, see `Forgetting.ask`. */
  forgetMe(timeoutS: number): Promise<ForgetResult> {
    return this.staying(timeoutS, (leftS) => this.parts.forgetting.ask(leftS));
  }

  /** Stay connected during a request, even if the next visit is far away. The request gets the remaining time. */
  private async staying<T>(timeoutS: number, ask: (leftS: number) => Promise<T>): Promise<T> {
    const giveUpAt = now() + timeoutS;
    const { visits } = this.parts;
    visits.stay();
    try {
      if (visits.isResting) {
        this.start(async () => undefined);
        while ((visits.isResting || !this.link.connected) && now() < giveUpAt) {
          await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_S * 1000));
        }
      }
      return await ask(giveUpAt - now());
    } finally {
      visits.letGo();
      this.start(async () => undefined);
    }
  }

  /** Say goodbye, and end the connection. */
  async close(): Promise<void> {
    this.isClosed = true;
    clearTimeout(this.timer);
    await this.turns.run(async () => {
      if (!this.link.connected) return;
      const { visits, participation, forgetting } = this.parts;
      const isMember = !participation.left;
      if ((isMember && visits.periodS === null) || forgetting.isWaiting) {
        await this.outbox.publish(Status, { online: false }, "status", true).catch(ignoreUnavailable);
      } else if (isMember && this.isShown && !forgetting.isForgotten) {
        // It learned of the pace in this first visit and leaves before the visit ends. Nobody else would clear its
        // online status.
        await this.outbox.clear("status").catch(ignoreUnavailable);
      }
      await forgetting.finish();
    });
    await this.link.close();
    await this.turns.ended();
  }

  // --- what happens of itself ---------------------------------------------------------------------------------------

  /** Run a job in turn, then send what is due and report the state. */
  private start(job: () => Promise<void>): void {
    this.turns.start(async () => {
      try {
        await job();
      } finally {
        if (!this.isClosed) await this.turn();
      }
    });
  }

  private receive(message: InboundMessage): void {
    this.parts.visits.hear(now());
    this.start(() => this.inbox.take(message));
  }

  private async turn(): Promise<void> {
    if (this.link.connected) {
      await this.parts.forgetting.look(); // first: another tab may have received the request while this one was asleep
      this.parts.visits.look();
      await this.parts.forgetting.sendDue(now());
      await this.outbox.sendDue(this.parts.relearning, now());
    }
    await this.parts.forgetting.finish();
    clearTimeout(this.timer);
    if (this.isClosed) return;
    await this.keepPace();
    const endsInS = await this.parts.store.nextWindowEndsInS();
    const pause = Math.max(0, Math.min(this.nextTurnInS(), endsInS, LONGEST_PAUSE_S));
    this.timer = setTimeout(() => this.recorded(), pause * 1000);
    this.onState(await this.state());
  }

  /** Start a due visit, and end one that has nothing left to do. */
  private async keepPace(): Promise<void> {
    const { visits, forgetting } = this.parts;
    if (visits.isResting) {
      if (!visits.isCalled && !forgetting.isWaiting && visits.restS() > 0) return;
      visits.beginVisit(now());
      this.link.visit();
    } else if (visits.periodS === null) {
      // Without a last will it cannot stay: nobody would notice a lost connection.
      if (this.link.connected && !this.isShown) this.link.visit();
    } else if (now() >= this.visitOverAt()) {
      if (this.isShown && this.link.connected) await this.outbox.clear("status").catch(ignoreUnavailable);
      visits.endVisit();
      this.link.rest();
    }
  }

  /** When to disconnect if nothing arrives before, in monotonic seconds; infinity for a device that stays connected. */
  private visitOverAt(): number {
    const { participation, forgetting, relearning, visits } = this.parts;
    // The answer is not retained, and a forgotten device does not come again.
    if (forgetting.isWaiting || forgetting.isClearing) return Infinity;
    const isHeard = participation.joined || participation.left || participation.isRefused;
    return visits.overAt(isHeard && participation.pending === null && relearning.due === null);
  }

  private nextTurnInS(): number {
    const { visits } = this.parts;
    if (visits.isResting) return visits.restS();
    return Math.min(this.outbox.nextDueAt(), this.parts.forgetting.nextDueAt(), this.visitOverAt()) - now();
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

  /** Begin the session of the next connection. Returns the last will for the broker; null for a visit. */
  private async beginSession(): Promise<LastWill | null> {
    const { visits, session, forgetting } = this.parts;
    visits.beginSession();
    const will = await session.begin(forgetting.isForgotten);
    this.isShown = visits.periodS === null || forgetting.isForgotten;
    return this.isShown ? will : null;
  }

  private async beginConnection(): Promise<void> {
    this.parts.visits.noteReached(now());
    await this.parts.forgetting.look();
    this.parts.forgetting.beginConnection(now());
    await this.sayHello();
  }

  private async sayHello(): Promise<void> {
    if (this.parts.participation.left || !this.link.connected) return;
    this.parts.participation.beginConnection(now());
    if (this.parts.visits.periodS !== null) return;
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
    this.parts.visits.forget();
  }

  private async state(): Promise<DeviceState> {
    const { participation, trainer, contributor, forgetting, audit, store } = this.parts;
    const { round, model } = participation;
    const weights = trainer.weights;
    const training = round?.training.kind === "pdgd" ? round.training : null;
    const nWaiting = await store.nWaiting();
    return {
      weights,
      modelVersion: weights === null ? null : (model?.announcement.version ?? null),
      serpLength: training?.serp_length ?? DEFAULT_SERP_LENGTH,
      exploration: training?.exploration ?? SAFE,
      isForgotten: forgetting.isForgotten,
      forgetState: forgetting.state,
      hasOtherFeatures: participation.hasOtherFeatures,
      gate: await store.gate(),
      shared: this.parts.evaluator.shared,
      connected: this.link.connected,
      nextVisitAt: this.parts.visits.restingUntil,
      round: round?.round ?? null,
      countedThrough: (await store.bounds()).watermark,
      nWaiting,
      nMissing: training && Math.max(0, training.min_interactions - nWaiting),
      nOpen: await store.nOpen(),
      isUpdatePending: participation.pending !== null,
      nUpdatesCounted: contributor.nCounted,
      receipts: { ...this.inbox.receipts },
      isQuarantined: contributor.quarantined,
      newestAuditEntry: audit.newest,
      auditLogCut: audit.cut,
    };
  }
}

/** Adopt the policy in the credentials before anything is sent. */
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

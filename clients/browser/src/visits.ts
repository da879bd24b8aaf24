// The visits of a device at its federation's pace: it connects, does what is due, and disconnects. No I/O.
//
// If a federator announces a pace (`Pace`, docs/sizing.md), a page connects only for visits: it receives retained
// messages, joins, sends its update, waits for the answers, disconnects, and draws the time of its next visit. It
// publishes no online status and leaves no last will.
//
// A pace applies if the newest round was announced in the same epoch. A stored one applies until a round says
// otherwise; then the device reconnects and stays.

import type { Log } from "./log.js";
import type { Participation } from "./participation.js";

// A finished visit lasts this long without a message: announcements may follow a receipt shortly.
const LINGER_S = 0.25;
// An unfinished one lasts this long, less than a federator's heartbeat. The next visit continues.
const PATIENCE_S = 20;
/** Time of the next visit in periods after the last: once a period on average, and never in step. */
const WINDOW = [0.5, 1.5] as const;
/** Time of a retry after a visit that reached nobody, in periods, so that devices return spread out. */
const RETRY_WINDOW = [0, 0.25] as const;
// An overdue device comes soon, but a fleet that was off together must not come at once.
const OVERDUE_SPREAD_S = 60;

/** The stored pace: the period, and the time of the next visit in seconds since the epoch. */
export interface KeptPace {
  readonly periodS: number;
  readonly nextAt: number;
}

/** The visits of one device. `now` is monotonic seconds. */
export class Visits {
  /** The period of visits; null: it stays connected. */
  periodS: number | null = null;
  /** Disconnected on purpose. */
  isResting = false;
  /** The time of the next visit by `clock`; null before it is drawn. */
  private nextAt: number | null = null;
  private heard: { readonly periodS: number; readonly epoch: bigint } | null = null; // over this connection
  private heardAt = 0;
  private isReached = false;
  private isFirst = true;
  private isForgotten = false;
  private nStaying = 0;

  /**
   * @param kept the last argument of `keep`; null: it stays connected, as far as it knows.
   * @param keep stores the time of the next visit, so that a page that is opened earlier does not come sooner.
   * @param clock seconds since the epoch.
   */
  constructor(
    kept: KeptPace | null,
    private readonly participation: Participation,
    private readonly keep: (pace: KeptPace | null) => void,
    private readonly log: Log,
    private readonly random: () => number = Math.random,
    private readonly clock: () => number = () => Date.now() / 1000,
  ) {
    if (kept === null) return;
    [this.periodS, this.nextAt, this.isFirst] = [kept.periodS, kept.nextAt, false];
    participation.comesBy = true;
    const overdueS = this.clock() - kept.nextAt;
    if (overdueS > 0) this.nextAt = this.clock() + this.draw(0, Math.min(overdueS, OVERDUE_SPREAD_S));
    this.isResting = participation.rests = this.restS() > 0;
  }

  // --- what arrives -----------------------------------------------------------------------------------------------

  /** Start connecting. Called for every attempt. */
  beginVisit(now: number): void {
    [this.heardAt, this.isReached, this.isResting] = [now, false, false];
  }

  /** Reset what this connection has received. Retained messages may come before it is confirmed. */
  beginSession(): void {
    this.heard = null;
    this.participation.isFresh = false;
  }

  noteReached(now: number): void {
    [this.heardAt, this.isReached] = [now, true];
  }

  /** Record that a message arrived. */
  hear(now: number): void {
    this.heardAt = now;
  }

  /** Take the pace announced by the federator in this epoch. */
  take(periodS: number, epoch: bigint): void {
    this.heard = { periodS, epoch };
  }

  /**
   * Apply the announced pace, or none, once this connection's round and the answer to the join have arrived: retained
   * messages come before answers.
   */
  look(): void {
    const { participation, heard } = this;
    if (!participation.isFresh) return;
    if (heard !== null && heard.epoch === participation.epoch) {
      if (this.periodS === null) this.log("info", "periodic_visits_started", { periodS: heard.periodS });
      this.periodS = heard.periodS;
      participation.comesBy = true;
    } else if (this.periodS !== null && participation.joined) {
      this.log("info", "periodic_visits_ended");
      this.periodS = this.nextAt = null;
      participation.comesBy = participation.rests = false;
      this.isFirst = true;
      this.keep(null);
    }
  }

  // --- what to do -------------------------------------------------------------------------------------------------

  /** Stay connected until `letGo` because of a pending request. */
  stay(): void {
    this.nStaying++;
  }

  letGo(): void {
    this.nStaying--;
  }

  /** Whether a request keeps it connected. */
  get isCalled(): boolean {
    return this.nStaying > 0;
  }

  /**
   * Return when this visit ends if nothing arrives before; infinity for a device that stays connected.
   *
   * @param isDone nothing waits to be sent or answered.
   */
  overAt(isDone: boolean): number {
    if (this.periodS === null || this.isCalled) return Infinity;
    const isTold = this.participation.isFresh || this.isForgotten; // a forgotten client takes no round
    return this.heardAt + (isDone && isTold ? LINGER_S : PATIENCE_S);
  }

  /** Disconnect, and draw the next visit. A forgotten client comes again only on request. */
  endVisit(): void {
    this.isResting = this.participation.rests = true;
    if (this.periodS === null || this.isForgotten) return;
    // A whole fleet may have received the pace at once.
    const window = this.isFirst ? ([0, 1] as const) : this.isReached ? WINDOW : RETRY_WINDOW;
    this.isFirst = false;
    this.drawNext(window, this.periodS);
  }

  /** Return the seconds until the next visit. */
  restS(): number {
    if (this.nextAt === null || this.periodS === null) return Infinity;
    // A clock that was set back must not keep it away.
    if (this.nextAt > this.clock() + WINDOW[1] * this.periodS) this.drawNext(WINDOW, this.periodS);
    return this.nextAt - this.clock();
  }

  /** The time of the next visit in seconds since the epoch; null while connected, or without a planned visit. */
  get restingUntil(): number | null {
    return this.isResting ? this.nextAt : null;
  }

  /** End the visits: the client was forgotten. */
  forget(): void {
    [this.heard, this.nextAt, this.isForgotten] = [null, null, true];
  }

  private drawNext([from, to]: readonly [number, number], periodS: number): void {
    this.nextAt = this.clock() + periodS * this.draw(from, to);
    this.keep({ periodS, nextAt: this.nextAt });
  }

  private draw(from: number, to: number): number {
    return from + (to - from) * this.random();
  }
}

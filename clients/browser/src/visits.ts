// A device keeps the pace that its federation asks for: it comes by, does what there is to do, and goes. No I/O.
//
// Where a federator announces a pace (`Pace`, docs/pace.md) a page is connected for a visit only: it hears what is
// retained, joins, sends what it has, waits for the answers, disconnects, and draws when it comes again. It says nothing
// of being connected, and leaves no last will.
//
// A pace holds as long as the newest round was announced under the same epoch. One that was stored at an earlier visit
// is kept until a round says otherwise; then the device connects anew, and stays.

import type { Log } from "./log.js";
import type { Participation } from "./participation.js";

// So long without a message a visit lasts when all is done: what is announced with a receipt comes a moment later.
const LINGER_S = 0.25;
// And so long when something is not: it is taken up at the next visit. Less than a federator's heartbeat.
const PATIENCE_S = 20;
/** When a device comes again, in periods after its last visit: once a period in the mean, and never in step. */
const WINDOW = [0.5, 1.5] as const;
/** When it tries again after a visit that reached nobody, in periods: those that a broker missed come back spread. */
const RETRY_WINDOW = [0, 0.25] as const;
// Whoever was off when it should have come is there soon, and a fleet that was off together is not there at once.
const OVERDUE_SPREAD_S = 60;

/** What a device remembers of its pace: the period, and when it comes again, in seconds since the epoch. */
export interface KeptPace {
  readonly periodS: number;
  readonly nextAt: number;
}

/** The visits of one device. `now` is monotonic seconds. */
export class Visits {
  /** How often it comes; null: it stays connected. */
  periodS: number | null = null;
  /** It is not connected, on purpose. */
  isResting = false;
  /** When it comes again, by `clock`; null before that was drawn. */
  private nextAt: number | null = null;
  private heard: { readonly periodS: number; readonly epoch: bigint } | null = null; // over this connection
  private heardAt = 0;
  private isReached = false;
  private isFirst = true;
  private isForgotten = false;
  private nStaying = 0;

  /**
   * @param kept what `keep` was given last; null: it stays connected, as far as it knows.
   * @param keep stores when it comes again, so that a page that is opened in between does not come sooner.
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

  /** Begin to connect, as often as that takes. */
  beginVisit(now: number): void {
    [this.heardAt, this.isReached, this.isResting] = [now, false, false];
  }

  /** Know nothing of this connection's: before it stands, what is retained may come. */
  beginSession(): void {
    this.heard = null;
    this.participation.isFresh = false;
  }

  noteReached(now: number): void {
    [this.heardAt, this.isReached] = [now, true];
  }

  /** Note that a message came, whatever it says. */
  hear(now: number): void {
    this.heardAt = now;
  }

  /** Take what the federator says, under this epoch. */
  take(periodS: number, epoch: bigint): void {
    this.heard = { periodS, epoch };
  }

  /**
   * Go by the pace that holds, or by none, once the round of this connection and the join's answer are there: what is
   * retained comes before what is answered.
   */
  look(): void {
    const { participation, heard } = this;
    if (!participation.isFresh) return;
    if (heard !== null && heard.epoch === participation.epoch) {
      if (this.periodS === null) this.log("info", "visits_started", { periodS: heard.periodS });
      this.periodS = heard.periodS;
      participation.comesBy = true;
    } else if (this.periodS !== null && participation.joined) {
      this.log("info", "visits_ended");
      this.periodS = this.nextAt = null;
      participation.comesBy = participation.rests = false;
      this.isFirst = true;
      this.keep(null);
    }
  }

  // --- what to do -------------------------------------------------------------------------------------------------

  /** Be there until `letGo`: somebody waits for an answer. */
  stay(): void {
    this.nStaying++;
  }

  letGo(): void {
    this.nStaying--;
  }

  /** Whether somebody waits for it to be there. */
  get isCalled(): boolean {
    return this.nStaying > 0;
  }

  /**
   * Return when this visit is over if nothing arrives before; infinity for who stays connected.
   *
   * @param isDone nothing waits to be sent or answered.
   */
  overAt(isDone: boolean): number {
    if (this.periodS === null || this.isCalled) return Infinity;
    const isTold = this.participation.isFresh || this.isForgotten; // who was forgotten takes no round
    return this.heardAt + (isDone && isTold ? LINGER_S : PATIENCE_S);
  }

  /** Rest, and draw when to come again. Who was forgotten comes no more, but if it is called. */
  endVisit(): void {
    this.isResting = this.participation.rests = true;
    if (this.periodS === null || this.isForgotten) return;
    // A whole fleet may have heard of the pace at once.
    const window = this.isFirst ? ([0, 1] as const) : this.isReached ? WINDOW : RETRY_WINDOW;
    this.isFirst = false;
    this.drawNext(window, this.periodS);
  }

  /** Return how long to rest still. */
  restS(): number {
    if (this.nextAt === null || this.periodS === null) return Infinity;
    // A clock that was set back, perhaps since the moment was drawn, must not keep it away.
    if (this.nextAt > this.clock() + WINDOW[1] * this.periodS) this.drawNext(WINDOW, this.periodS);
    return this.nextAt - this.clock();
  }

  /** When it comes again, in seconds since the epoch; null while it is connected, or comes only if it is called. */
  get restingUntil(): number | null {
    return this.isResting ? this.nextAt : null;
  }

  /** Come no more: the client was forgotten. */
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

// The jobs of one device run in turn: one at a time, in the order in which they came.

import { MessageError } from "./errors.js";
import { causeOf, type Log } from "./log.js";

/** Monotonic seconds. */
export function now(): number {
  return performance.now() / 1000;
}

export class Turns {
  private last: Promise<unknown> = Promise.resolve();

  constructor(private readonly log: Log) {}

  /** Run a job after the earlier ones have ended. Settles like the job. */
  run<T>(job: () => Promise<T>): Promise<T> {
    const result = this.last.then(job);
    this.last = result.catch(() => undefined);
    return result;
  }

  /** Run a job that nobody awaits; errors are logged. */
  start(job: () => Promise<void>): void {
    void this.run(job).catch((error: unknown) => {
      if (error instanceof MessageError) this.log("warning", "message_refused", { cause: causeOf(error) });
      else this.log("error", "turn_failed", { cause: causeOf(error) });
    });
  }

  /** Await all jobs so far. */
  async ended(): Promise<void> {
    await this.last;
  }
}

/** An event that may happen once, and can be awaited. */
export class Happening {
  isSet = false;
  private resolve: () => void = () => undefined;
  private readonly happened = new Promise<void>((resolve) => (this.resolve = resolve));

  set(): void {
    this.isSet = true;
    this.resolve();
  }

  /** Wait up to `seconds`, or not at all if that is 0 or less. Returns whether it has happened. */
  async within(seconds: number): Promise<boolean> {
    if (this.isSet || seconds <= 0) return this.isSet;
    let timer: ReturnType<typeof setTimeout> | undefined;
    await Promise.race([this.happened, new Promise<void>((resolve) => (timer = setTimeout(resolve, seconds * 1000)))]);
    clearTimeout(timer);
    return this.isSet;
  }
}

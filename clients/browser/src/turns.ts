// What one device does, it does in turn: no two jobs at once, in the order in which they came.

import { MessageError } from "./errors.js";
import { causeOf, type Log } from "./log.js";

/** Monotonic seconds. */
export function now(): number {
  return performance.now() / 1000;
}

export class Turns {
  private last: Promise<unknown> = Promise.resolve();

  constructor(private readonly log: Log) {}

  /** Run a job once those before it have ended; it settles as the job does. */
  run<T>(job: () => Promise<T>): Promise<T> {
    const result = this.last.then(job);
    this.last = result.catch(() => undefined);
    return result;
  }

  /** Run a job that nobody waits for; what goes wrong is said in the log. */
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

/** Something that may happen once, and can be waited for. */
export class Happening {
  isSet = false;
  private resolve: () => void = () => undefined;
  private readonly happened = new Promise<void>((resolve) => (this.resolve = resolve));

  set(): void {
    this.isSet = true;
    this.resolve();
  }

  /** Wait up to so many seconds, or not at all if that is 0 or less; return whether it has happened. */
  async within(seconds: number): Promise<boolean> {
    if (this.isSet || seconds <= 0) return this.isSet;
    let timer: ReturnType<typeof setTimeout> | undefined;
    await Promise.race([this.happened, new Promise<void>((resolve) => (timer = setTimeout(resolve, seconds * 1000)))]);
    clearTimeout(timer);
    return this.isSet;
  }
}

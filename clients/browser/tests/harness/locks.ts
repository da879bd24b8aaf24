// Web Locks for Node.js, the subset that tabs need: exclusive, first come first served, abortable waits.

export class PlayedLocks {
  private readonly last = new Map<string, Promise<unknown>>();

  async request(name: string, options: { signal: AbortSignal }, held: () => Promise<unknown>): Promise<unknown> {
    const before = this.last.get(name) ?? Promise.resolve();
    const result = before.then(() => {
      if (options.signal.aborted) throw new DOMException("given up", "AbortError");
      return held();
    });
    this.last.set(
      name,
      result.catch(() => undefined),
    );
    return result;
  }
}

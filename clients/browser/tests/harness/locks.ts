// Web Locks for Node.js, as far as tabs need them: exclusive, first come first served, a wait that can be given up.

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

// One device over all tabs of a page: one tab leads, and only that one connects, learns and sends.
//
// Web Locks choose the leader; when its tab is closed, the next one leads. All tabs rank and record: they make lists
// from the leader's reported model, and store clicks in the shared database.

import { DataError, FoltrError, UnavailableError } from "./errors.js";

/** Requests to the leading tab. */
export type Request = { readonly method: "leave" | "forgetMe"; readonly timeoutS: number };

type Message<State> =
  | { kind: "state"; state: State }
  | { kind: "hello" }
  | { kind: "recorded" }
  | { kind: "request"; id: string; request: Request }
  | { kind: "answer"; id: string; result?: unknown; error?: { name: string; message: string } };

export interface TabHandlers<State> {
  /** Another tab leads, and reported its state. */
  state(state: State): void;
  /** Another tab has recorded clicks; only for the leader. */
  recorded(): void;
  /** Another tab makes a request; only for the leader. */
  request(request: Request): Promise<unknown>;
}

// Extra time for an answer, beyond the request's own limit.
const GRACE_S = 5;

export class Tabs<State> {
  private readonly channel: BroadcastChannel;
  private readonly waiting = new Map<string, (answer: Extract<Message<State>, { kind: "answer" }>) => void>();
  private newest: State | null = null;
  private isLeader = false;

  constructor(
    name: string,
    private readonly handlers: TabHandlers<State>,
  ) {
    this.channel = new BroadcastChannel(name);
    this.channel.onmessage = ({ data }: MessageEvent<Message<State>>) => this.take(data);
    this.post({ kind: "hello" });
  }

  /** Report the state. Only for the leader. */
  tell(state: State): void {
    this.isLeader = true;
    this.newest = state;
    this.post({ kind: "state", state });
  }

  /** Report recorded clicks, from a tab that does not lead. */
  tellRecorded(): void {
    this.post({ kind: "recorded" });
  }

  /** Send a request to the leader. UnavailableError if none answers in time. */
  async ask(request: Request): Promise<unknown> {
    const id = crypto.randomUUID();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const answered = new Promise<Extract<Message<State>, { kind: "answer" }> | null>((resolve) => {
      this.waiting.set(id, resolve);
      timer = setTimeout(() => resolve(null), (request.timeoutS + GRACE_S) * 1000);
    });
    this.post({ kind: "request", id, request });
    const answer = await answered;
    clearTimeout(timer);
    this.waiting.delete(id);
    if (answer === null) throw new UnavailableError("no other tab of this page answers");
    if (answer.error !== undefined) throw errorOf(answer.error);
    return answer.result;
  }

  close(): void {
    this.channel.close();
  }

  private take(message: Message<State>): void {
    if (message.kind === "answer") this.waiting.get(message.id)?.(message);
    else if (!this.isLeader) {
      if (message.kind === "state") this.handlers.state(message.state);
    } else if (message.kind === "hello") this.post({ kind: "state", state: this.newest! });
    else if (message.kind === "recorded") this.handlers.recorded();
    else if (message.kind === "request") void this.answer(message.id, message.request);
  }

  private async answer(id: string, request: Request): Promise<void> {
    try {
      this.post({ kind: "answer", id, result: await this.handlers.request(request) });
    } catch (error) {
      const { name, message } = error as Error;
      this.post({ kind: "answer", id, error: { name, message } });
    }
  }

  private post(message: Message<State>): void {
    this.channel.postMessage(message);
  }
}

/** Lead once no other tab does, until the returned function is called. `leading` is called at the start. */
export function leadOnce(name: string, locks: LockManager | undefined, leading: () => Promise<void>): () => void {
  let end: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => (end = resolve));
  const controller = new AbortController();
  const hold = async () => {
    await leading();
    await ended;
  };
  if (locks === undefined) void hold();
  else locks.request(name, { signal: controller.signal }, hold).catch(() => undefined); // only by `abort`
  return () => {
    controller.abort(); // no effect on a lock that is held
    end();
  };
}

function errorOf({ name, message }: { name: string; message: string }): FoltrError {
  if (name === "UnavailableError") return new UnavailableError(message);
  return name === "DataError" ? new DataError(message) : new FoltrError(message);
}

// One MQTT session over a WebSocket that reconnects by itself. Only this module uses MQTT.js.
//
// Each connection is a new client, since its last will is signed afresh. The broker's acknowledgement says only that it
// has a message; the federator's receipts confirm processing.

import mqtt, { type MqttClient } from "mqtt";

import { UnavailableError } from "../errors.js";
import { causeOf, type Log } from "../log.js";
import type { Bytes } from "../protocol/fields.js";
import type { InboundMessage, LastWill } from "./session.js";

const BACKOFF_FIRST_S = 0.25;
const BACKOFF_LIMIT_S = 30;
const TIMEOUT_S = 10;
const KEEPALIVE_S = 30;
const GOODBYE_S = 2;
const STEADY_S = 10;
const LONGEST_SLEEP_S = 3600;
const DOUBLINGS_KEPT = 2; // a pause of up to 1 s after a connection that did not last

/** The broker's address and login. */
export interface BrokerAccess {
  /** ws:// or wss://, with the path of the broker's listener. */
  readonly url: string;
  readonly username: string | null;
  readonly password: string | null;
}

export interface LinkHandlers {
  /** Called before every connection for the last will that the broker publishes if it is lost; null: none. */
  lastWill(): Promise<LastWill | null>;
  /** Called after every connection, once subscriptions are granted. */
  connected(): void;
  /** Called for every message as it arrives, in order. */
  message(message: InboundMessage): void;
}

export class MqttLink {
  private client: MqttClient | null = null;
  private isUp = false;
  private upSince: number | null = null;
  private isClosing = false;
  private wakeUp: () => void = () => undefined;
  private readonly running: Promise<void>;

  /** @param isResting do not connect before `visit` is called. */
  constructor(
    private readonly access: BrokerAccess,
    private readonly mqttClientId: string,
    private readonly subscriptions: readonly string[],
    private readonly handlers: LinkHandlers,
    private readonly log: Log,
    private isResting = false,
  ) {
    this.running = this.keepUp();
  }

  /** Whether a connection exists with granted subscriptions. */
  get connected(): boolean {
    return this.isUp;
  }

  /** Publish at QoS 1 and wait for the broker's acknowledgement. UnavailableError: none came; it may have arrived. */
  async publish(topic: string, payload: Bytes, retain = false): Promise<void> {
    const { client } = this;
    if (client === null || !this.isUp) throw new UnavailableError("not connected to the broker");
    await new Promise<void>((resolve, reject) => {
      const end = (cause: string | null) => {
        clearTimeout(timer);
        client.removeListener("close", closed);
        if (cause === null) resolve();
        else reject(new UnavailableError(`the broker refused a message: ${cause}`));
      };
      const closed = () => end("the connection ended");
      const timer = setTimeout(() => end("no acknowledgement"), TIMEOUT_S * 1000);
      client.once("close", closed);
      client.publish(topic, payload as Buffer, { qos: 1, retain }, (error) => end(error ? error.message : null));
    });
  }

  /** Disconnect cleanly until `visit` is called. */
  rest(): void {
    this.isResting = true;
    this.goodbye();
  }

  /** Connect and stay connected. An existing or starting connection is replaced by a new one. */
  visit(): void {
    this.isResting = false;
    this.goodbye();
  }

  /** Disconnect cleanly, so that no last will is published. */
  async close(): Promise<void> {
    this.isClosing = true;
    const timer = this.goodbye();
    await this.running;
    clearTimeout(timer);
  }

  private goodbye(): ReturnType<typeof setTimeout> {
    const { client, isUp } = this;
    this.isUp = false;
    this.wakeUp();
    client?.end(!isUp);
    // A clean end needs a working connection; a slow one is cut.
    return setTimeout(() => client?.end(true), GOODBYE_S * 1000);
  }

  private async keepUp(): Promise<void> {
    for (let failures = 0; !this.isClosing; failures++) {
      for (; this.isResting && !this.isClosing; failures = 0) await this.sleep(LONGEST_SLEEP_S);
      this.upSince = null;
      let cause = "the connection ended";
      await this.connection().catch((error: unknown) => (cause = causeOf(error)));
      // Do not reset after a moment: the broker may end each connection right after it is made.
      if (this.upSince !== null)
        failures = performance.now() - this.upSince > STEADY_S * 1000 ? 0 : Math.min(failures, DOUBLINGS_KEPT);
      else if (failures === 0) this.log("warning", "broker_unreachable", { broker: this.access.url, cause });
      this.client = null;
      this.isUp = false;
      if (this.isClosing || this.isResting) continue;
      // Full jitter: after a broker restart a fleet must not come back in step.
      const pause = Math.min(BACKOFF_LIMIT_S, BACKOFF_FIRST_S * 2 ** Math.min(failures, 16));
      await this.sleep(pause * (0.1 + 0.9 * Math.random()));
    }
  }

  /** Connect, and return or throw once that connection has ended. */
  private async connection(): Promise<void> {
    const will = await this.handlers.lastWill();
    if (this.isClosing || this.isResting) return;
    const { url, username, password } = this.access;
    const client = mqtt.connect(url, {
      clientId: this.mqttClientId,
      // A returning device needs only retained messages. It recovers missed ones by sending again.
      clean: true,
      protocolVersion: 4,
      keepalive: KEEPALIVE_S,
      connectTimeout: TIMEOUT_S * 1000,
      reconnectPeriod: 0,
      resubscribe: false,
      ...(will === null ? {} : { will: { ...will, payload: will.payload as Buffer, qos: 1 as const, retain: true } }),
      ...(username === null ? {} : { username }),
      ...(password === null ? {} : { password }),
    });
    this.client = client;
    let cause: Error | null = null;
    client.on("error", (error) => (cause = error));
    client.on("message", (topic, payload) => this.handlers.message({ topic, payload: new Uint8Array(payload) }));
    client.on("connect", () => void this.begin(client).catch((error: Error) => ((cause = error), client.end(true))));
    await new Promise<void>((resolve) => client.once("close", () => resolve()));
    client.end(true);
    if (cause !== null) throw cause;
  }

  private async begin(client: MqttClient): Promise<void> {
    const granted = await client.subscribeAsync([...this.subscriptions], { qos: 1 });
    if (granted.some(({ qos }) => qos >= 128))
      throw new Error("the broker refused a subscription (see its access list)");
    this.isUp = true;
    this.upSince = performance.now();
    this.handlers.connected();
  }

  private sleep(seconds: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, seconds * 1000);
      this.wakeUp = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

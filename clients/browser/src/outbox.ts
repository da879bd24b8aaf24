// The outbox of a device sends what is due. A message that fails or gets no answer becomes due again later.

import { UnavailableError } from "./errors.js";
import { causeOf, type Log } from "./log.js";
import type { MqttLink } from "./messaging/mqtt_link.js";
import type { Session } from "./messaging/session.js";
import type { Outgoing, Participation } from "./participation.js";
import type { Bytes, Fields, Shape } from "./protocol/fields.js";
import { Join, UnlearningUpdate, type MessageType } from "./protocol/messages.js";
import type { ClientTopic } from "./protocol/topics.js";
import type { Relearning } from "./training/relearning.js";

export const SDK_VERSION = "browser 0.1.0";

export class Outbox {
  constructor(
    private readonly link: Pick<MqttLink, "connected" | "publish">,
    private readonly session: Session,
    private readonly participation: Participation,
    private readonly log: Log,
  ) {}

  get connected(): boolean {
    return this.link.connected;
  }

  /** Sign and publish a message. UnavailableError if the broker does not take it. */
  async publish<S extends Shape>(
    type: MessageType<S>,
    fields: Omit<Fields<S>, "federation" | "client_id">,
    topic: ClientTopic,
    retain = false,
  ): Promise<void> {
    await this.link.publish(this.session.topic(topic), await this.session.sign(type, fields, topic), retain);
  }

  /** Clear the retained message on one of this device's topics. */
  clear(topic: ClientTopic): Promise<void> {
    return this.link.publish(this.session.topic(topic), new Uint8Array() as Bytes, true);
  }

  /** Send what is due now; an unreachable broker only delays it. */
  async sendDue(relearning: Relearning, now: number): Promise<void> {
    if (!this.connected) return;
    for (const outgoing of this.participation.due(now)) await this.attempt(outgoing, () => this.send(outgoing));
    const answer = relearning.due;
    if (answer === null || this.participation.left) return;
    await this.attempt("unlearning_update", async () => {
      await this.publish(UnlearningUpdate, answer, "unlearning");
      relearning.markSent(answer);
    });
  }

  /** Return when `sendDue` next has something to do, if nothing arrives before. */
  nextDueAt(): number {
    return this.connected ? this.participation.nextDueAt() : Infinity;
  }

  private async send(outgoing: Outgoing): Promise<void> {
    const { pending } = this.participation;
    if (outgoing === "join") {
      const { enrolment } = this.session;
      await this.publish(Join, { sdk_version: SDK_VERSION, enrolment }, "join");
    } else if (pending !== null) {
      await this.link.publish(this.session.topic("updates"), pending.payload);
    }
  }

  private async attempt(what: string, sending: () => Promise<void>): Promise<void> {
    try {
      await sending();
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error;
      this.log("debug", "resend_scheduled", { what, cause: causeOf(error) });
    }
  }
}

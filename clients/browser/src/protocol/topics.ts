// The topics of a federation, under foltr/v1/{federation}/. Only this file spells them.

export type ClientTopic = "join" | "leave" | "status" | "updates" | "chunks" | "forget" | "unlearning" | "inbox";

/** The topics of one federation. */
export class Topics {
  readonly root: string;

  constructor(readonly federation: string) {
    this.root = `foltr/v1/${federation}`;
  }

  get model(): string {
    return `${this.root}/model`;
  }

  get round(): string {
    return `${this.root}/round`;
  }

  get federatorKey(): string {
    return `${this.root}/federator-key`;
  }

  get auditHead(): string {
    return `${this.root}/audit-head`;
  }

  get pace(): string {
    return `${this.root}/pace`;
  }

  get evaluation(): string {
    return `${this.root}/evaluation`;
  }

  get policy(): string {
    return `${this.root}/policy`;
  }

  get unlearningRound(): string {
    return `${this.root}/unlearning/round`;
  }

  /** Not a topic: the operator's signature of an enrolment uses it in place of one. */
  enrolment(clientId: string): string {
    return `${this.root}/enrolment/${clientId}`;
  }

  client(clientId: string, topic: ClientTopic): string {
    return `${this.root}/clients/${clientId}/${topic}`;
  }
}

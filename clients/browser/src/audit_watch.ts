// Watches the federation's audit log: a device stores its newest known entry and reports if the log is cut.
//
// The federator signs these messages, so two contradictory ones are proof for everybody.

import type { AuditLogCut } from "./device_state.js";
import { causeOf, type Log } from "./log.js";
import { openEnvelope, readEnvelope } from "./protocol/codec.js";
import { sameBytes, type Bytes } from "./protocol/fields.js";
import { AuditHead } from "./protocol/messages.js";
import type { DeviceStore } from "./store/store.js";

/** One device's knowledge of the audit log. */
export class AuditWatch {
  private heard: { head: AuditHead; payload: Bytes } | null = null;
  cut: AuditLogCut | null = null;

  constructor(
    private readonly federation: string,
    private readonly store: DeviceStore,
    private readonly log: Log,
  ) {}

  /** The number of the newest known entry; null before the first. */
  get newest(): number | null {
    return this.heard?.head.seq ?? null;
  }

  /** Load the saved audit heads. */
  async restore(): Promise<void> {
    const stored = await this.store.auditHeads();
    try {
      const [newest, before, after] = stored.map((payload) => ({ head: readHead(payload), payload }));
      this.heard = newest ?? null;
      if (before && after) this.cut = { before: before.head.seq, after: after.head.seq };
    } catch (error) {
      this.log("warning", "stored_audit_head_not_understood", { cause: causeOf(error) });
    }
  }

  /** Drop all knowledge: the client was forgotten. */
  forget(): void {
    this.heard = this.cut = null;
  }

  /** Take a head read from `payload`; ignores other federations. */
  async take(head: AuditHead, payload: Bytes): Promise<void> {
    const before = this.heard;
    if (head.federation !== this.federation) return;
    if (before !== null && head.seq === before.head.seq && sameBytes(head.hash, before.head.hash)) return;
    this.heard = { head, payload: payload.slice() };
    const isCut = before !== null && head.seq <= before.head.seq;
    if (isCut) {
      this.cut = { before: before.head.seq, after: head.seq };
      this.log("warning", "audit_log_cut", { ...this.cut });
    }
    await this.store.putAuditHead(this.heard.payload, isCut ? before.payload : null);
  }
}

function readHead(payload: Bytes): AuditHead {
  return readEnvelope(openEnvelope(payload), AuditHead);
}

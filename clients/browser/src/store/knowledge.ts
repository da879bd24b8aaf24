// What a device's store knows of the federation, what the device has answered, and its user's wish.

import type { ForgetState } from "../device_state.js";
import type { Bytes } from "../protocol/fields.js";
import type { KeptPace } from "../visits.js";
import type { Database } from "./rows.js";

/** Number of steps answered on the newest active day, by the device's clock, since the epoch. */
export interface Answered {
  readonly day: number;
  readonly steps: number;
}

/** The part of a `DeviceStore` that has nothing to do with interactions. */
export class KnowledgeStore {
  protected constructor(protected readonly database: Database) {}

  newestSession(): Promise<bigint> {
    return this.database.read(async (rows) => (await rows.get<bigint>("session")) ?? 0n);
  }

  /** Store a session before anything is sent in it: later ones must be higher, even if the clock goes back. */
  putSession(session: bigint): Promise<void> {
    return this.database.write((rows) => rows.put("session", session));
  }

  /** Return the highest accepted sequence number of a topic; 0 before the first. */
  newestBelieved(topic: string): Promise<bigint> {
    return this.database.read(async (rows) => (await rows.get<bigint>(`believed:${topic}`)) ?? 0n);
  }

  /** Store an accepted sequence number, so that older messages are refused, also after a restart. */
  noteBelieved(topic: string, sequence: bigint): Promise<void> {
    return this.database.write((rows) => rows.put(`believed:${topic}`, sequence));
  }

  /** Return the stored signed message: the federator's newest key, the model or the policy. */
  heard(what: "federator_key" | "model" | "policy"): Promise<Bytes | null> {
    return this.database.read(async (rows) => (await rows.get<Bytes>(what)) ?? null);
  }

  putHeard(what: "federator_key" | "model", payload: Bytes): Promise<void> {
    return this.database.write((rows) => rows.put(what, payload.slice()));
  }

  /** Store the time of the next visit; null: stays connected. Not once forgotten: it would reveal times of use. */
  putPace(pace: KeptPace | null): Promise<void> {
    return this.database.write(async (rows) => {
      if (pace === null) await rows.delete("pace");
      else if ((await rows.get("forgotten")) === undefined) await rows.put("pace", pace);
    });
  }

  pace(): Promise<KeptPace | null> {
    return this.database.read(async (rows) => (await rows.get<KeptPace>("pace")) ?? null);
  }

  /** Store the version below which no model is used, and delete a stored model below it. */
  putWithdrawal(below: number, removesModel: boolean): Promise<void> {
    return this.database.write(async (rows) => {
      await rows.put("withdrawn_below", below);
      if (removesModel) await rows.delete("model");
    });
  }

  withdrawnBelow(): Promise<number> {
    return this.database.read(async (rows) => (await rows.get<number>("withdrawn_below")) ?? 0);
  }

  /** Store the newest message about the audit log; with the one that it contradicts, also as evidence. */
  putAuditHead(head: Bytes, contradicted: Bytes | null): Promise<void> {
    return this.database.write(async (rows) => {
      await rows.put("audit_head", head);
      if (contradicted === null) return;
      await rows.put("audit_head_before", contradicted);
      await rows.put("audit_head_after", head);
    });
  }

  /** Return the newest message about the audit log, then the last two that contradict each other, if any. */
  auditHeads(): Promise<Bytes[]> {
    return this.database.read(async (rows) => {
      const keys = ["audit_head", "audit_head_before", "audit_head_after"];
      const kept = await Promise.all(keys.map((key) => rows.get<Bytes>(key)));
      return kept.filter((payload) => payload !== undefined);
    });
  }

  /** Return the number of steps answered on a day, or on the newest day if the clock was set back. */
  answeredOn(day: number): Promise<number> {
    return this.database.read(async (rows) => {
      const newest = await rows.get<Answered>("answered");
      return newest !== undefined && newest.day >= day ? newest.steps : 0;
    });
  }

  /** Return the jobs for an erasure, in the order in which they were answered. */
  jobsOf(erasure: string): Promise<readonly number[]> {
    return this.database.read(async (rows) => (await rows.get<number[]>(`erasure:${erasure}`)) ?? []);
  }

  /** Store the user's request to be forgotten before sending it. The leading tab then sends it, and nothing else. */
  askToBeForgotten(): Promise<void> {
    return this.database.write(async (rows) => {
      if ((await rows.get("forget_state")) !== undefined) return;
      await rows.put("forget_state", (await rows.get("forgotten")) === undefined ? "asked" : "erasing");
    });
  }

  /** Return the stored progress of the request; null without one in this browser. */
  forgetState(): Promise<ForgetState | null> {
    return this.database.read(async (rows) => (await rows.get<ForgetState>("forget_state")) ?? null);
  }

  /** Store the progress of the request; null: it was refused, and the device continues. */
  putForgetState(state: ForgetState | null): Promise<void> {
    return this.database.write((rows) => {
      return state === null ? rows.delete("forget_state") : rows.put("forget_state", state);
    });
  }
}

// A round selects clients at random, and each client can verify its selection.

import { concat, sha256Of, type Bytes } from "./fields.js";

const TICKET_BYTES = 8;

/** Return the 32-byte seed of a round. */
export async function roundSeed(firstSeed: Bytes, round: number): Promise<Bytes> {
  const number = new Uint8Array(8);
  new DataView(number.buffer).setBigUint64(0, BigInt(round));
  return sha256Of(concat(new TextEncoder().encode("foltr selection\n"), firstSeed, number));
}

/** Return the client's ticket: 8 uniform bytes, compared as bytes. */
export async function ticket(seed: Bytes, clientId: string): Promise<Bytes> {
  return (await sha256Of(concat(seed, new TextEncoder().encode(clientId)))).slice(0, TICKET_BYTES);
}

/** Return whether this client is selected. A client that joins later may be, too. */
export async function isSelected(seed: Bytes, cutoff: Bytes, clientId: string): Promise<boolean> {
  const mine = await ticket(seed, clientId);
  const first = mine.findIndex((byte, i) => byte !== cutoff[i]);
  return first < 0 || mine[first] < cutoff[first];
}

/**
 * What rabbit uses of Node's library, which is part of Deno. It is loaded when it is first needed: starting it takes as
 * long as reading a small model, and decoding does without.
 *
 * @module
 */

import type { Hash } from "node:crypto";

/** A SHA-256 that is fed piece by piece (FIPS 180-4); the processor's instructions for it are used where it has them. */
export async function sha256(): Promise<Hash> {
  const { createHash } = await import("node:crypto");
  return createHash("sha256");
}

/** Lets messages, signals and timers have their turn. */
export async function nextTurn(): Promise<void> {
  const { setImmediate } = await import("node:timers");
  await new Promise((resolve) => setImmediate(resolve));
}

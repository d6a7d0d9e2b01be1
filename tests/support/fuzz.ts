/**
 * Damaged inputs, how many of them tests of random inputs try, and what became of them.
 *
 * @module
 */

import { concat, utf8 } from "./bytes.ts";
import type { Random } from "./random.ts";
import { checkRefusal } from "./refusals.ts";

/** How often a test of random input does `count` rounds: RABBIT_FUZZ times as many, for a long run. */
export function rounds(count: number): number {
  return count * Number(Deno.env.get("RABBIT_FUZZ") ?? 1);
}

/** Counts what became of random inputs; a long run prints it. */
export class Tally {
  #accepted = 0;
  #refused = 0;
  #slowest = 0;

  constructor(readonly what: string) {}

  /** How many were accepted. */
  get accepted(): number {
    return this.#accepted;
  }

  /** Counts an input that was accepted or not, and that took since `start` (performance.now). */
  add(accepted: boolean, start: number): void {
    if (accepted) this.#accepted++;
    else this.#refused++;
    const took = performance.now() - start;
    this.#slowest = Math.max(this.#slowest, took);
    // Generous, for machines that do other things; what hangs takes longer.
    if (took > 20_000) throw new Error(`${this.what}: one input took ${took} ms`);
  }

  /** Prints the counts of a long run. */
  print(): void {
    if (!Deno.env.has("RABBIT_FUZZ")) return;
    const tried = this.#accepted + this.#refused;
    console.log(
      `${this.what}: ${tried} tried, ${this.#accepted} right, ${this.#refused} refused, slowest ${this.#slowest.toFixed()} ms`,
    );
  }
}

/** What mutations put in: what a header is made of, and what it should not be made of. */
const TOKENS = [
  ...'{}[]:,"\\0123456789-+.eE \t\n\0u',
  "true",
  "null",
  "1e3",
  "9007199254740993",
  "18446744073709551615",
  '"shape"',
  '"dtype"',
  '"data_offsets"',
  '"__metadata__"',
  '"Q4B32"',
  '"Q8B32"',
  '"F32"',
  "\\ud800",
  "\u00e9",
  "\u2028",
  "[".repeat(40),
].map(utf8);

/** Bytes with one to four mistakes: a bit or a byte changed, bytes put in, taken out, doubled, moved, or cut off. */
export function damaged(bytes: Uint8Array, random: Random): Uint8Array<ArrayBuffer> {
  let out = bytes.slice();
  for (let count = 1 + random.below(4); count > 0; count--) {
    const at = random.below(out.length + 1);
    const length = 1 + random.below(random.pick([2, 8, 64]));
    const [before, after] = [out.subarray(0, at), out.subarray(at)];
    switch (random.below(8)) {
      case 0:
        out[at] ^= 1 << random.below(8);
        break;
      case 1:
        out[at] = random.bits();
        break;
      case 2:
        out = concat(before, random.pick(TOKENS), after);
        break;
      case 3: {
        const token = random.pick(TOKENS);
        out = concat(before, token, after.subarray(token.length));
        break;
      }
      case 4:
        out = concat(before, after.subarray(length));
        break;
      case 5:
        out = concat(before, after.subarray(0, length), after);
        break;
      case 6: {
        const from = random.below(out.length);
        out = concat(before, out.subarray(from, from + length), after);
        break;
      }
      default:
        if (random.below(4) === 0) out = before.slice();
        // A digit of a number, where one is: the mistakes that leave valid JSON.
        else {
          const digits = [...out.keys()].filter((n) => out[n] >= 48 && out[n] <= 57);
          if (digits.length > 0) out[random.pick(digits)] = 48 + random.below(10);
        }
    }
  }
  return out;
}

/**
 * Reads `bytes`, and checks what that gives; whether it gave something.
 *
 * @throws {Error} anything but a refusal, with the bytes
 */
export async function accepted<T>(
  bytes: Uint8Array,
  read: () => T | Promise<T>,
  check: (result: T) => void | Promise<void>,
  tally?: Tally,
): Promise<boolean> {
  const start = performance.now();
  let good = true;
  try {
    await check(await read());
  } catch (error) {
    good = false;
    try {
      checkRefusal(error);
    } catch {
      throw new Error(`these bytes, in base64: ${bytes.toBase64()}`, { cause: error });
    }
  }
  tally?.add(good, start);
  return good;
}

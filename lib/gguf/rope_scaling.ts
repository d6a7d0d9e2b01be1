/**
 * The scaling of the rotary embedding in GGUF. For a llama3 scaling, config.json has its parameters, GGUF the resulting
 * factor of each frequency; an import finds parameters that give the same factors.
 *
 * @module
 */

import { CheckpointError, quote } from "../errors.ts";
import type { Config } from "../model/config.ts";
import { type Keys, shortest } from "./keys.ts";

/** The tensor with the factors by which a llama3 scaling divides the frequencies. */
export const ROPE_FACTORS = "rope_freqs.weight";

/** The factors by which the rotary frequencies are divided: headDim / 2 of them. */
export function ropeFactorsOf({ ropeFrequencies, rope, headDim }: Config): Float32Array<ArrayBuffer> {
  return Float32Array.from(ropeFrequencies, (f, n) => rope.base ** (-2 * n / headDim) / f);
}

/** The `rope_scaling` of config.json for a file's keys and factors. @throws {CheckpointError} there is none */
export function ropeScaling(keys: Keys, base: number, headDim: number, factors: Float32Array | undefined): unknown {
  const type = keys.optional("rope.scaling.type")?.value ?? "linear";
  const key = keys.optional("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  const factor = keys.float(key, 1);
  if (type !== "linear" && type !== "none") {
    keys.fail("rope.scaling.type", `${quote(String(type))} is not supported; the decoder knows none and linear`);
  }
  const linear = type === "linear" && factor !== 1;
  const plain = factors === undefined || (factors.length === headDim / 2 && factors.every((f) => f === 1));
  if (plain) return linear ? { factor, rope_type: "linear" } : null;
  const scaling = llama3(base, headDim, factors);
  if (scaling === undefined || linear) {
    throw new CheckpointError(
      { path: keys.path, tensor: ROPE_FACTORS },
      "the factors are not those of a llama3 rope scaling with frequency factors 1 and 4; no other scaling can be imported",
    );
  }
  return scaling;
}

/**
 * A llama3 scaling: frequencies with wavelengths above `original` are divided by `factor`; those with wavelengths below
 * a quarter of it are kept.
 */
type Llama3 = readonly [factor: number, original: number];

/** low_freq_factor and high_freq_factor of a llama3 scaling; all known models have these values. */
const [LOW, HIGH] = [1, 4];

/** The parameters of a llama3 scaling with these factors; undefined if there are none. */
function llama3(base: number, headDim: number, factors: Float32Array) {
  if (factors.length !== headDim / 2 || !factors.every((f) => f > 0 && Number.isFinite(f))) return undefined;
  const waves = Array.from(factors, (_, n) => 2 * Math.PI * base ** (2 * n / headDim));
  const errorOf = ([factor, original]: Llama3) =>
    factor >= 1 && original > 0
      ? Math.max(...waves.map((wave, n) => {
        const smooth = Math.min(Math.max((original / wave - LOW) / (HIGH - LOW), 0), 1);
        return Math.abs(factors[n] * ((1 - smooth) / factor + smooth) - 1);
      }))
      : NaN;
  const exact = [...guesses(waves, factors)];
  const round = (digits: number) => {
    return exact.map(([factor, original]): Llama3 => [Number(factor.toPrecision(digits)), Math.round(original)]);
  };
  const best = (guesses: readonly Llama3[], tolerance: number) => {
    return guesses.filter((guess) => errorOf(guess) < tolerance).sort((a, b) => errorOf(a) - errorOf(b))[0];
  };
  // Round numbers are most likely those of the model; others give nearly the same frequencies. The factors were
  // computed in binary32, with an error of some units in the last place of the wavelength.
  const found = best(round(4), 2e-6) ?? best(round(7), 1e-5) ?? best(exact, 1e-4);
  return found && {
    factor: found[0],
    high_freq_factor: HIGH,
    low_freq_factor: LOW,
    original_max_position_embeddings: found[1],
    rope_type: "llama3",
  };
}

/**
 * Possible parameters of a llama3 scaling. For wavelengths between those that are kept and those that are divided,
 *
 *     1 / f = (1 - smooth) / factor + smooth, with smooth = (original / wave - 1) / 3.
 *
 * A small head may have only one or two frequencies there, or none; then several parameters give the same frequencies,
 * and any of them will do.
 */
function* guesses(waves: readonly number[], factors: Float32Array): Generator<Llama3> {
  const first = factors.findIndex((f) => f > 1);
  const last = factors.length - 1;
  const originalOf = (n: number, factor: number) => {
    return waves[n] * (LOW + (HIGH - LOW) * (1 / factors[n] - 1 / factor) / (1 - 1 / factor));
  };
  const kept = HIGH * (waves[first - 1] ?? 0);
  // Either the last frequency is divided by the whole factor,
  const factor = shortest(factors[last]);
  if (factors[first] < factors[last]) yield [factor, originalOf(first, factor)];
  else yield [factor, within(kept, waves[first])];
  if (first < last) {
    // or it is smoothed, like the one before it,
    const [a, b] = [first, first + 1].map((n) => [waves[n], waves[n] * (LOW + (HIGH - LOW) / factors[n])]);
    const solved = HIGH * (a[0] - b[0]) / (a[1] - b[1]);
    yield [solved, originalOf(first, solved)];
  } else {
    // or it is the only smoothed one: then each original context in a range has a factor.
    const [wave, f] = [waves[last], factors[last]];
    const original = within(Math.max(kept, wave), Math.min(HIGH, LOW + (HIGH - LOW) / f) * wave);
    const smooth = (original / wave - LOW) / (HIGH - LOW);
    yield [(1 - smooth) / (1 / f - smooth), original];
  }
}

/** A number between two others: the context length of Llama 3, a power of two, or a whole number, if there is one. */
function within(low: number, high: number): number {
  const numbers = [8192, 2 ** Math.floor(Math.log2(high)), Math.round((low + high) / 2)];
  return numbers.find((x) => x > low && x < high) ?? (low + high) / 2;
}

/**
 * Python's numbers: an int is a bigint, a float is a number.
 *
 * @module
 */

import { MAX_BITS, TemplateError, Unsupported } from "./limits.ts";

/** The limit of digits for converting an integer from or to a string in Python. */
const MAX_DIGITS = 4300;

/** Integers up to here are exact as floats, so that the quotient of two is correctly rounded. */
const EXACT = 2n ** 53n;

/** The limit for the decimals of a format. */
const MAX_DECIMALS = 1000;

/** `str(value)` of an int. */
export function intText(value: bigint): string {
  const text = value.toString();
  if (text.length - (value < 0n ? 1 : 0) > MAX_DIGITS) {
    throw new TemplateError(`an integer of more than ${MAX_DIGITS} digits cannot be printed`);
  }
  return text;
}

/** `repr(value)` of a float: the shortest digits that read back as the same value. */
export function floatText(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  const [mantissa, exponent] = Math.abs(value).toExponential().split("e");
  const digits = mantissa.replace(".", "");
  const point = Number(exponent) + 1;
  if (point > 16 || point < -3) return sign + scientific(digits, point, "e");
  if (point <= 0) return `${sign}0.${"0".repeat(-point)}${digits}`;
  const whole = digits.padEnd(point, "0");
  return `${sign}${whole.slice(0, point)}.${whole.slice(point) || "0"}`;
}

/** Scientific notation, with an exponent of at least two digits. */
function scientific(digits: string, point: number, letter: string): string {
  const exponent = point - 1;
  const rest = digits.slice(1);
  return `${digits[0]}${rest && "."}${rest}${letter}${exponent < 0 ? "-" : "+"}${
    String(Math.abs(exponent)).padStart(2, "0")
  }`;
}

/** The exact decimal expansion of a finite float's magnitude: 0.d1d2d3… times 10 to the power of `point`. */
function exactly(value: number): { digits: string; point: number } {
  if (value === 0) return { digits: "0", point: 1 };
  const bits = new DataView(new ArrayBuffer(8));
  bits.setFloat64(0, Math.abs(value));
  const pattern = bits.getBigUint64(0);
  const biased = Number(pattern >> 52n);
  const fraction = pattern & (2n ** 52n - 1n);
  const mantissa = biased === 0 ? fraction : fraction | 2n ** 52n;
  const exponent = Math.max(biased, 1) - 1075;
  if (exponent >= 0) {
    const digits = (mantissa << BigInt(exponent)).toString();
    return { digits, point: digits.length };
  }
  const digits = (mantissa * 5n ** BigInt(-exponent)).toString();
  return { digits, point: digits.length + exponent };
}

/** Rounds to the first `count` digits, half to even; a carry moves the point. */
function rounded({ digits, point }: { digits: string; point: number }, count: number) {
  if (count < 0) return { digits: "", point };
  if (count >= digits.length) return { digits: digits.padEnd(count, "0"), point };
  const kept = BigInt(digits.slice(0, count) || "0");
  const rest = digits.slice(count);
  const up = /^50*$/.test(rest) ? kept % 2n === 1n : rest[0] >= "5";
  const text = count === 0 && !up ? "" : (up ? kept + 1n : kept).toString().padStart(count, "0");
  return { digits: text, point: point + text.length - count };
}

/** `%.Nf` of a finite float's magnitude. */
function fixed(value: number, decimals: number): string {
  const exact = exactly(value);
  const { digits, point } = rounded(exact, exact.point + decimals);
  const whole = point > 0 ? digits.slice(0, point) : "0";
  const fraction = (point > 0 ? digits.slice(point) : "0".repeat(Math.min(-point, decimals)) + digits)
    .padEnd(decimals, "0").slice(0, decimals);
  return decimals === 0 ? whole : `${whole}.${fraction}`;
}

/**
 * Formats a float's magnitude with one of the types e, f and g, in upper or lower case.
 *
 * @param alternate whether g keeps trailing zeros (the flag #)
 */
export function floatFormat(value: number, type: string, decimals: number, alternate = false): string {
  if (decimals > MAX_DECIMALS) throw new Unsupported(`a format of more than ${MAX_DECIMALS} decimals`);
  const upper = type !== type.toLowerCase();
  const kind = type.toLowerCase();
  if (!Number.isFinite(value)) {
    const text = Number.isNaN(value) ? "nan" : "inf";
    return upper ? text.toUpperCase() : text;
  }
  if (kind === "f") return fixed(value, decimals);
  const exact = exactly(value);
  const count = kind === "e" ? decimals + 1 : Math.max(decimals, 1);
  const found = rounded(exact, count);
  const [digits, point] = [found.digits.slice(0, count), found.point];
  const letter = upper ? "E" : "e";
  if (kind === "e") return scientific(digits, point, letter);
  const short = (text: string) => alternate ? text : text.replace(/0+$/, "");
  if (point - 1 < -4 || point - 1 >= count) return scientific(digits[0] + short(digits.slice(1)), point, letter);
  if (point <= 0) return `0.${"0".repeat(-point)}${short(digits)}`;
  const fraction = short(digits.slice(point));
  return digits.slice(0, point) + (fraction && `.${fraction}`);
}

/** `round(value, digits)`: to nearest, half to even, by the exact value. */
export function roundNumber(value: bigint | number, digits: number): bigint | number {
  if (typeof value === "bigint") {
    if (digits >= 0) return value;
    if (digits < -MAX_DIGITS) return 0n;
    const unit = 10n ** BigInt(-digits);
    const rest = mod(value, unit);
    const down = value - rest;
    const twice = 2n * rest;
    const up = twice > unit || (twice === unit && mod(down / unit, 2n) === 1n);
    return up ? down + unit : down;
  }
  if (!Number.isFinite(value) || value === 0 || digits > 323) return value;
  const sign = value < 0 ? -1 : 1;
  if (digits >= 0) return sign * Number(fixed(value, digits));
  if (digits < -308) return sign * 0;
  const exact = exactly(value);
  const { digits: kept, point } = rounded(exact, exact.point + digits);
  return sign * Number(kept === "" ? "0" : kept.padEnd(Math.max(point, 0), "0"));
}

/** Converts a float to an int, rounding toward zero. @throws {TemplateError} it is not finite */
export function truncated(value: number): bigint {
  if (!Number.isFinite(value)) throw new TemplateError(`cannot convert float ${floatText(value)} to integer`);
  return BigInt(Math.trunc(value));
}

/** `int(text, base)`, or undefined if Python raises a ValueError. */
export function parseInteger(text: string, base: number): bigint | undefined {
  if (/[^\p{ASCII}]/u.test(text) && /\p{Nd}/u.test(text.replace(/\p{ASCII}+/gu, ""))) {
    throw new Unsupported("a number in digits other than 0 to 9");
  }
  if (base !== 0 && (base < 2 || base > 36)) return undefined;
  const found = /^([+-]?)(0[box]|)(_?[0-9a-z]+(?:_[0-9a-z]+)*)$/i.exec(text);
  if (found === null) return undefined;
  const [, sign] = found;
  let [, , prefix, digits] = found;
  const named = { "0b": 2, "0o": 8, "0x": 16 }[prefix.toLowerCase()];
  if (named !== undefined && named !== base && base !== 0) [prefix, digits] = ["", prefix + digits];
  else if (prefix === "" && digits[0] === "_") return undefined;
  if (named === undefined || prefix === "") {
    if (digits[0] === "_" || /__/.test(digits)) return undefined;
    if (base === 0 && /^0[0_]*[1-9]/.test(digits)) return undefined;
  }
  const radix = base === 0 ? prefix === "" ? 10 : named! : base;
  const plain = digits.replaceAll("_", "").toLowerCase();
  if (plain.length > MAX_DIGITS && (radix & (radix - 1)) !== 0) return undefined;
  if (plain.length > MAX_BITS) throw new Unsupported(`an integer of more than ${MAX_BITS} digits`);
  let value = 0n;
  for (const digit of plain) {
    const worth = parseInt(digit, 36);
    if (worth >= radix) return undefined;
    value = value * BigInt(radix) + BigInt(worth);
  }
  return sign === "-" ? -value : value;
}

/** `float(text)`, or undefined if Python raises a ValueError. */
export function parseFloating(text: string): number | undefined {
  if (/[^\p{ASCII}]/u.test(text) && /\p{Nd}/u.test(text.replace(/\p{ASCII}+/gu, ""))) {
    throw new Unsupported("a number in digits other than 0 to 9");
  }
  const word = /^([+-]?)(?:(inf(?:inity)?)|nan)$/i.exec(text);
  if (word !== null) return word[2] === undefined ? NaN : word[1] === "-" ? -Infinity : Infinity;
  const part = "[0-9]+(?:_[0-9]+)*";
  const number = new RegExp(`^[+-]?(?:${part}\\.?(?:${part})?|\\.${part})(?:e[+-]?${part})?$`, "i");
  return number.test(text) ? Number(text.replaceAll("_", "")) : undefined;
}

function mod(a: bigint, b: bigint): bigint {
  const rest = a % b;
  return rest !== 0n && (rest < 0n) !== (b < 0n) ? rest + b : rest;
}

/** Converts a number to a float. @throws {TemplateError} it is too large */
export function toFloat(value: bigint | number): number {
  const float = Number(value);
  if (typeof value === "bigint" && !Number.isFinite(float)) {
    throw new TemplateError("int too large to convert to float");
  }
  return float;
}

/** `a op b` for + - * / // % and **. @throws {TemplateError} division by zero, or the result is too large */
export function calculate(op: string, a: bigint | number, b: bigint | number): bigint | number {
  if (typeof a === "bigint" && typeof b === "bigint") return calculateInts(op, a, b);
  const [x, y] = [toFloat(a), toFloat(b)];
  switch (op) {
    case "+":
      return x + y;
    case "-":
      return x - y;
    case "*":
      return x * y;
    case "**":
      // The last bit of a power depends on the math library.
      throw new Unsupported("a power of floats");
  }
  if (y === 0) throw new TemplateError("float division by zero");
  if (op === "/") return x / y;
  // As CPython's float_divmod.
  let rest = x % y;
  let quotient = (x - rest) / y;
  if (rest === 0) rest = y < 0 ? -0 : 0;
  else if ((y < 0) !== (rest < 0)) {
    rest += y;
    quotient -= 1;
  }
  if (op === "%") return rest;
  if (quotient === 0) return x / y < 0 || Object.is(x / y, -0) ? -0 : 0;
  const floor = Math.floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

function calculateInts(op: string, a: bigint, b: bigint): bigint | number {
  switch (op) {
    case "+":
      return bounded(a + b);
    case "-":
      return bounded(a - b);
    case "*":
      return bounded(a * b);
    case "**":
      if (b < 0n) throw new Unsupported("a power with a negative exponent");
      if (a > 1n || a < -1n) {
        if (BigInt(a.toString(2).length) * b > BigInt(2 * MAX_BITS)) {
          throw new Unsupported(`an integer of more than ${MAX_BITS} bits`);
        }
      }
      return bounded(a ** (a > 1n || a < -1n ? b : b === 0n ? 0n : 2n - b % 2n));
  }
  if (b === 0n) throw new TemplateError(op === "/" ? "division by zero" : "integer division or modulo by zero");
  if (op === "%") return mod(a, b);
  if (op === "//") return (a - mod(a, b)) / b;
  const large = [a, b].some((value) => value > EXACT || value < -EXACT);
  if (large) throw new Unsupported("the quotient of integers above 2^53");
  return Number(a) / Number(b);
}

function bounded(value: bigint): bigint {
  if (value > LARGEST || value < -LARGEST) throw new Unsupported(`an integer of more than ${MAX_BITS} bits`);
  return value;
}

const LARGEST = 2n ** BigInt(MAX_BITS);

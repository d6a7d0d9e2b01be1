/**
 * Programs for the threads of a pool. A program is a sequence of commands, and a command is a row of numbers (binary64)
 * in shared memory. {@link FIELDS} declares the numbers of each command; pool.ts writes them, the threads read them.
 *
 * @module
 */

/** The maximum number of commands in a program. */
export const MAX_COMMANDS = 2048;

/** The maximum number of matrices in a command. */
export const MOST_MATRICES = 3;

/** Used instead of an address: the thread's own prepared activations. */
export const PRIVATE = -1;

/**
 * What to do with a product. `gate` takes the products with gate and up; `gateInPlace` takes that with gate, and finds
 * that with up at the destination.
 */
export const THEN = { write: 0, add: 1, gate: 2, gateInPlace: 3 } as const;

/** The fields of `store` and `attend`. */
const ATTENTION = [
  "tokens",
  // Addresses of the first token's queries, keys, values and results, and the bytes from one token to the next.
  "q",
  "qStride",
  "k",
  "v",
  "kvStride",
  "out",
  // The cache: addresses, bytes of a value and of a row (one head at one position), capacity in positions.
  "keys",
  "values",
  "keyScales",
  "valueScales",
  "size",
  "rowBytes",
  "capacity",
  // The address of the rotary table.
  "table",
  "heads",
  // Key and value heads.
  "kvHeads",
  "headDim",
  // The position of the first token.
  "position",
  // Addresses of the weights of the norms (0 if there is no norm), and their eps.
  "qNorm",
  "qEps",
  "kNorm",
  "kEps",
] as const;

/** The fields of each command, in their order in memory after the command's code. Strides are in bytes. */
const FIELDS = {
  /** Makes the workers leave their program loop. */
  exit: ["tokens"],
  /** Ends a program. */
  end: ["tokens"],
  /** Decodes rows of a matrix, given the addresses of its record and of the ids (int32). */
  embed: ["tokens", "record", "ids", "out", "outStride"],
  /**
   * Prepares activations for products of `mode`. A row has `length` values, whole blocks; those from `width` on are
   * padding. `norm` is the address of a norm's weight, or 0; `out` is an address, or PRIVATE.
   */
  prepare: ["tokens", "x", "xStride", "length", "width", "norm", "eps", "mode", "out", "outStride"],
  /** Multiplies prepared activations at `x` (an address, or PRIVATE) with `matrices` matrices: see {@link MATRIX}. */
  project: ["tokens", "x", "xStride", "blocks", "mode", "then", "matrices"],
  /** Rotates the heads of several tokens, and appends to the cache. */
  store: ATTENTION,
  /** Attends; for a single token it also does the work of `store`. */
  attend: ATTENTION,
  /** Compares rows of `width` binary32 at `p` and `q`; each result takes COMPARED bytes at `out`. */
  compare: ["tokens", "p", "pStride", "q", "qStride", "width", "out"],
} as const;

/**
 * The fields of each matrix of `project`, which follow the command's own: the address of its record, its rows in whole
 * groups, the address and stride of the product, and the address of a bias, or 0.
 */
const MATRIX = ["record", "rows", "y", "yStride", "bias"] as const;

/** The name of a command. */
export type Op = keyof typeof FIELDS;

/** The numbers of a command, by name. */
export type Fields<O extends Op> = { readonly [F in typeof FIELDS[O][number]]: number };

/** A matrix of `project`. */
export type MatrixFields = { readonly [F in typeof MATRIX[number]]: number };

/** Writes and reads named numbers in a fixed order. */
class Row<F extends string> {
  readonly #names: readonly F[];
  /** {@link read} changes a copy of this object: adding properties one by one would take several times as long. */
  readonly #blank: { readonly [N in F]: number };

  constructor(names: readonly F[]) {
    this.#names = names;
    this.#blank = Object.fromEntries(names.map((name) => [name, 0.5])) as { [N in F]: number };
  }

  get length(): number {
    return this.#names.length;
  }

  /**
   * Writes numbers from word `at` on. Unchanged words are not written, so that they stay in the caches of other
   * threads.
   */
  write(words: Float64Array, at: number, fields: { readonly [N in F]: number }): void {
    for (const name of this.#names) {
      const value = fields[name];
      if (words[at] !== value) words[at] = value;
      at++;
    }
  }

  /** Reads numbers from word `at` on. */
  read(words: Float64Array, at: number): { readonly [N in F]: number } {
    const fields = { ...this.#blank } as { [N in F]: number };
    for (const name of this.#names) fields[name] = words[at++];
    return fields;
  }
}

/** Commands by code, and codes by command. */
const OPS = Object.keys(FIELDS) as Op[];
const CODES = Object.fromEntries(OPS.map((op, code) => [op, code])) as Record<Op, number>;

const ROWS = Object.fromEntries(OPS.map((op) => [op, new Row(FIELDS[op])])) as { [O in Op]: Row<keyof Fields<O>> };
const MATRIX_ROW = new Row(MATRIX);

/** Words of the longest command, including its code. */
const COMMAND_WORDS = 1 + Math.max(
  ...OPS.map((op) => FIELDS[op].length + (op === "project" ? MOST_MATRICES * MATRIX.length : 0)),
);

/** Bytes of two programs: one is written while a late thread may still read the other. */
export const PROGRAM_BYTES = 2 * MAX_COMMANDS * COMMAND_WORDS * 8;

/** The place of a command. Programs alternate between two areas of {@link MAX_COMMANDS} commands. */
export function placeOf(epoch: number, index: number): number {
  return (epoch & 1) * MAX_COMMANDS + index;
}

/** The commands of a pool, in shared memory. */
export class Commands {
  readonly #words: Float64Array;

  /** @param address of {@link PROGRAM_BYTES} bytes */
  constructor(buffer: ArrayBufferLike, address: number) {
    this.#words = new Float64Array(buffer, address, PROGRAM_BYTES / 8);
  }

  /** Writes a command; only `project` has matrices. */
  write<O extends Op>(place: number, op: O, fields: Fields<O>, matrices: readonly MatrixFields[] = []): void {
    let at = place * COMMAND_WORDS;
    const code = CODES[op];
    if (this.#words[at] !== code) this.#words[at] = code;
    ROWS[op].write(this.#words, ++at, fields);
    at += ROWS[op].length;
    for (const matrix of matrices) {
      MATRIX_ROW.write(this.#words, at, matrix);
      at += MATRIX_ROW.length;
    }
  }

  /** The command at a place. @throws {RangeError} its code is unknown */
  op(place: number): Op {
    const op = OPS[this.#words[place * COMMAND_WORDS]];
    if (op === undefined) throw new RangeError(`unknown command ${this.#words[place * COMMAND_WORDS]}`);
    return op;
  }

  /** The number of tokens of the command at a place: the first field of all commands. */
  tokens(place: number): number {
    return this.read(place, "end").tokens;
  }

  /** The fields of the command at a place, which must be an `op`. */
  read<O extends Op>(place: number, op: O): Fields<O> {
    return ROWS[op].read(this.#words, place * COMMAND_WORDS + 1);
  }

  /** The matrices of the command at a place, which must be `project`. */
  matrices(place: number): MatrixFields[] {
    const first = place * COMMAND_WORDS + 1 + ROWS.project.length;
    const { matrices } = this.read(place, "project");
    return Array.from({ length: matrices }, (_, m) => MATRIX_ROW.read(this.#words, first + m * MATRIX_ROW.length));
  }

  /** A copy of the words at a place, for {@link same}. */
  copy(place: number): Float64Array {
    return this.#words.slice(place * COMMAND_WORDS, (place + 1) * COMMAND_WORDS);
  }

  /** Whether the words at a place equal those of `copy`. */
  same(place: number, copy: Float64Array): boolean {
    const at = place * COMMAND_WORDS;
    for (let n = 0; n < COMMAND_WORDS; n++) if (this.#words[at + n] !== copy[n]) return false;
    return true;
  }
}

/**
 * What a pool asks of its threads: a program is a sequence of commands, and a command is a row of numbers (binary64) in
 * shared memory. {@link FIELDS} declares the numbers of each command; pool.ts writes them, the threads read them.
 *
 * @module
 */

/** The longest program, in commands. */
export const MAX_COMMANDS = 2048;

/** Matrices that one command has room for. */
export const MOST_MATRICES = 3;

/** The address that stands for the thread's own prepared activations. */
export const PRIVATE = -1;

/** What becomes of a product: `gate` takes two, of gate and up, `gateIt` that of gate and has that of up in its place. */
export const THEN = { write: 0, add: 1, gate: 2, gateIt: 3 } as const;

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
  // The cache: addresses, bytes of a value and of the row of a head, positions there is room for.
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
  // Heads of keys and values.
  "groups",
  "headDim",
  // That of the first token.
  "position",
  // Addresses of the weights of the norms, 0 where there is none, and their eps.
  "qNorm",
  "qEps",
  "kNorm",
  "kEps",
] as const;

/** The fields of each command, in the order in which they stand after its number. Strides are in bytes. */
const FIELDS = {
  /** The end of the threads. */
  exit: ["tokens"],
  /** The end of a program. */
  end: ["tokens"],
  /** Rows of a matrix: the addresses of its record and of the ids (int32). */
  embed: ["tokens", "record", "ids", "out", "outStride"],
  /**
   * Activations of `length` values, whole blocks, of which `width` count, as a product of `mode` reads them: to `out`, or
   * PRIVATE. `norm` is the address of a norm's weight or 0.
   */
  prepare: ["tokens", "x", "xStride", "length", "width", "norm", "eps", "mode", "out", "outStride"],
  /** Products with prepared activations at `x`, or PRIVATE, with so many `matrices`: see {@link MATRIX}. */
  project: ["tokens", "x", "xStride", "blocks", "mode", "then", "matrices"],
  /** Rotates the heads of several tokens and fills the cache. */
  store: ATTENTION,
  /** Attends; for a single token it does what `store` does, too. */
  attend: ATTENTION,
} as const;

/**
 * The fields of each matrix of `project`, which follow the command's own: the address of its record, rows with those that
 * fill its last group, where the products go, and the address of a bias or 0.
 */
const MATRIX = ["record", "rows", "y", "yStride", "bias"] as const;

/** The name of a command. */
export type Op = keyof typeof FIELDS;

/** The numbers of a command, by their names. */
export type Fields<O extends Op> = { readonly [F in typeof FIELDS[O][number]]: number };

/** A matrix of `project`. */
export type MatrixFields = { readonly [F in typeof MATRIX[number]]: number };

/** Numbers with names, in their order. */
class Row<F extends string> {
  readonly #names: readonly F[];
  /** What is read is a copy with other numbers: adding one property after the other takes several times as long. */
  readonly #blank: { readonly [N in F]: number };

  constructor(names: readonly F[]) {
    this.#names = names;
    this.#blank = Object.fromEntries(names.map((name) => [name, 0.5])) as { [N in F]: number };
  }

  get length(): number {
    return this.#names.length;
  }

  /** Writes numbers from word `at` on. What is there already is not written: other threads have it in their caches. */
  write(words: Float64Array, at: number, fields: { readonly [N in F]: number }): void {
    for (const name of this.#names) {
      const value = fields[name];
      if (words[at] !== value) words[at] = value;
      at++;
    }
  }

  /** The numbers from word `at` on. */
  read(words: Float64Array, at: number): { readonly [N in F]: number } {
    const fields = { ...this.#blank } as { [N in F]: number };
    for (const name of this.#names) fields[name] = words[at++];
    return fields;
  }
}

/** The commands, by their numbers, and the numbers, by their names. */
const OPS = Object.keys(FIELDS) as Op[];
const CODES = Object.fromEntries(OPS.map((op, code) => [op, code])) as Record<Op, number>;

const ROWS = Object.fromEntries(OPS.map((op) => [op, new Row(FIELDS[op])])) as { [O in Op]: Row<keyof Fields<O>> };
const MATRIX_ROW = new Row(MATRIX);

/** Numbers of the longest command, with its own. */
const COMMAND_WORDS = 1 + Math.max(
  ...OPS.map((op) => FIELDS[op].length + (op === "project" ? MOST_MATRICES * MATRIX.length : 0)),
);

/** Bytes of two programs: one is written while a late thread may still read the other. */
export const PROGRAM_BYTES = 2 * MAX_COMMANDS * COMMAND_WORDS * 8;

/** Where a command is: the place of its program, which programs use by turns, and its index there. */
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

  /** Which command is at a place. @throws {RangeError} none that there is */
  op(place: number): Op {
    const op = OPS[this.#words[place * COMMAND_WORDS]];
    if (op === undefined) throw new RangeError(`command ${this.#words[place * COMMAND_WORDS]}`);
    return op;
  }

  /** How many tokens the command at a place is for: the first field of all commands. */
  tokens(place: number): number {
    return this.read(place, "end").tokens;
  }

  /** The fields of the command at a place, which is an `op`. */
  read<O extends Op>(place: number, op: O): Fields<O> {
    return ROWS[op].read(this.#words, place * COMMAND_WORDS + 1);
  }

  /** The matrices of the command at a place, which is `project`. */
  matrices(place: number): MatrixFields[] {
    const first = place * COMMAND_WORDS + 1 + ROWS.project.length;
    const { matrices } = this.read(place, "project");
    return Array.from({ length: matrices }, (_, m) => MATRIX_ROW.read(this.#words, first + m * MATRIX_ROW.length));
  }

  /** The numbers at a place, to compare them with those of later programs. */
  copy(place: number): Float64Array {
    return this.#words.slice(place * COMMAND_WORDS, (place + 1) * COMMAND_WORDS);
  }

  /** Whether the numbers at a place are those of `copy`. */
  same(place: number, copy: Float64Array): boolean {
    const at = place * COMMAND_WORDS;
    for (let n = 0; n < COMMAND_WORDS; n++) if (this.#words[at + n] !== copy[n]) return false;
    return true;
  }
}

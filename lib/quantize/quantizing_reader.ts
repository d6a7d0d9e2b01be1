/**
 * Reads a float checkpoint as if it were quantized: tensors are encoded when they are read, and no file is written.
 * `advise` measures each width this way.
 *
 * @module
 */

import { CHUNK_BYTES } from "./chunks.ts";
import { BLOCK } from "../format/blocks.ts";
import { nameOf, TensorReader } from "../format/checkpoint.ts";
import type { BlockKernels } from "../kernels/codec.ts";
import { allocate, FIRST_ADDRESS, wasmKernels } from "../kernels/codec_wasm.ts";
import type { Plan, PlannedTensor } from "./quantize.ts";
import { checkEncoded } from "./damage.ts";

/** The address of the encoded blocks, which are never larger than their source. */
const RESULT = FIRST_ADDRESS + CHUNK_BYTES;

/** Reads the tensors of a planned checkpoint. Close it after the last read. */
export class QuantizingReader {
  readonly #plan: Plan;
  readonly #tensors: ReadonlyMap<string, PlannedTensor>;
  readonly #source: TensorReader;
  readonly #memory: Uint8Array;
  readonly #kernels: BlockKernels;

  /** Opens the source's files. @throws {SystemError} */
  constructor(plan: Plan) {
    this.#plan = plan;
    this.#tensors = new Map(plan.tensors.map((tensor) => [tensor.source.name, tensor]));
    this.#source = new TensorReader(plan.source);
    const memory = allocate(RESULT + CHUNK_BYTES);
    this.#memory = new Uint8Array(memory.buffer);
    this.#kernels = wasmKernels(memory, 0);
  }

  /** The source's path, for messages. */
  get path(): string {
    return nameOf(this.#plan.source);
  }

  /** The names of all tensors. */
  get names(): Iterable<string> {
    return this.#tensors.keys();
  }

  /** The dtype after quantizing, the shape and the source file of a tensor; undefined if there is no such tensor. */
  find(name: string): { dtype: string; shape: readonly number[]; path: string } | undefined {
    const found = this.#source.find(name);
    return found && { ...found, dtype: this.#tensors.get(name)!.dtype };
  }

  /**
   * Fills `into` with the bytes of the quantized tensor from `offset` on. For a matrix, `offset` and the length of
   * `into` are multiples of a block.
   *
   * @throws {CheckpointError} a weight is not finite or a scale overflows; names tensor, row, and column or block
   * @throws {SystemError} the source cannot be read
   */
  read(name: string, offset: number, into: Uint8Array): void {
    const tensor = this.#tensors.get(name)!;
    const { from } = tensor;
    if (from === undefined) return this.#source.read(name, offset, into);
    const { format, rule, made } = this.#plan;
    const chosen = made?.get(name);
    if (chosen !== undefined) return into.set(chosen.subarray(offset, offset + into.length));
    const { blockBytes } = format;
    const sourceBytes = BLOCK * from.blockBytes;
    const most = Math.floor(CHUNK_BYTES / sourceBytes);
    const [begin, end] = [offset / blockBytes, (offset + into.length) / blockBytes];
    for (let first = begin; first < end; first += most) {
      const count = Math.min(most, end - first);
      this.#source.read(
        name,
        first * sourceBytes,
        this.#memory.subarray(FIRST_ADDRESS, FIRST_ADDRESS + count * sourceBytes),
      );
      const unencodable = this.#kernels.encode(from, format, FIRST_ADDRESS, RESULT, count, rule);
      checkEncoded(this.#plan, { tensor, first }, { unencodable });
      into.set(this.#memory.subarray(RESULT, RESULT + count * blockBytes), (first - begin) * blockBytes);
    }
  }

  /** Call after the last read. @throws {SystemError} the source changed while it was being read */
  checkUnchanged(): void {
    this.#source.checkUnchanged();
  }

  /** Closes the files. */
  close(): void {
    this.#source.close();
  }

  /** Closes the files, for `using`. */
  [Symbol.dispose](): void {
    this.close();
  }
}

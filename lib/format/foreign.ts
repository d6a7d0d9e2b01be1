/**
 * Files in another format than safetensors, of which the tensors are converted while they are read: GGUF files.
 *
 * @module
 */

import { CheckpointError } from "../errors.ts";
import { IS_GGUF } from "./given.ts";

/** A tensor of a file in another format, converted to a dtype of this program while it is read. */
export interface StoredTensor {
  /** The name of its type in that format. */
  readonly type: string;
  /** Whether that has quantized blocks. */
  readonly quantized: boolean;
  /** Its size in the file. */
  readonly bytes: number;
  /**
   * Reads `into.length` bytes of the converted tensor, from `offset` on.
   *
   * @param file reads bytes of the file's form of the tensor
   * @throws {CheckpointError} a weight is not finite
   */
  read(file: (offset: number, into: Uint8Array) => void, offset: number, into: Uint8Array): void;
}

/** What is known of files in another format than safetensors. */
export interface Foreign {
  /** The types of the matrices, that of the most weights first. */
  readonly types: readonly string[];
  /** Why there is no tokenizer, if there is none. */
  readonly missing?: string;
}

/** The size of a tensor in its file. */
export function storedBytes({ bytes, stored }: { readonly bytes: number; readonly stored?: StoredTensor }): number {
  return stored?.bytes ?? bytes;
}

/** Refuses files that are not safetensors files, where their bytes matter. @throws {CheckpointError} */
export function refuseForeign({ path, foreign }: { readonly path: string; readonly foreign?: Foreign }): void {
  if (foreign !== undefined) throw new CheckpointError({ path }, IS_GGUF);
}

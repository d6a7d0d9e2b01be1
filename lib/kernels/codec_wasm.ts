/**
 * The operations of codec.ts as WebAssembly kernels on a shared memory.
 *
 * @module
 */

import { type BlockFormat, type FloatFormat, Q4B32, Q8B32 } from "../format/blocks.ts";
import { type BlockKernels, scalarKernels } from "./codec.ts";
import { isFused } from "./fused.ts";
import { EMULATED_BASE64, WASM_BASE64 } from "./wasm/kernels_wasm.ts";

/** Bytes of a WebAssembly page. */
export const PAGE = 65536;

/** The maximum size of a memory in pages: 4 GiB. */
export const MAX_PAGES = 65536;

/** The first address that callers of the kernels may use. */
export const FIRST_ADDRESS = 1024;

/**
 * Bytes at the end of the 4 GiB that are never used: more than the largest constant offset in an instruction of a
 * kernel, so that no access from an address before them goes beyond them (see engine_flags.ts).
 */
export const MARGIN_BYTES = PAGE;

/** The kernels by name. */
type Exports = Record<string, (...args: (number | boolean)[]) => number>;

let compiled: WebAssembly.Module | undefined;

/** Allocates a shared memory of at least `bytes` bytes. */
export function allocate(bytes: number): WebAssembly.Memory {
  return new WebAssembly.Memory({ initial: Math.ceil(bytes / PAGE), maximum: MAX_PAGES, shared: true });
}

/** Instantiates the kernels on `memory`. Every thread needs its own instance. */
export function instantiate(memory: WebAssembly.Memory): Exports {
  if (compiled !== undefined) return exportsOf(compiled, memory);
  compiled = new WebAssembly.Module(fromBase64(WASM_BASE64));
  const wasm = exportsOf(compiled, memory);
  if (isFused(wasm.fused)) return wasm;
  compiled = new WebAssembly.Module(fromBase64(EMULATED_BASE64));
  return exportsOf(compiled, memory);
}

function exportsOf(module: WebAssembly.Module, memory: WebAssembly.Memory): Exports {
  const env = {
    memory,
    abort() {
      throw new Error("a kernel aborted");
    },
  };
  // Copied, since property lookups are slow on the exports object itself.
  const wasm = { ...new WebAssembly.Instance(module, { env }).exports } as Exports;
  if (addsFours(wasm.four_products)) wasm.i8_q4_far = wasm.i8_q4_far_fours;
  return wasm;
}

/**
 * Whether the processor adds four products to a 32-bit sum at once (AVX-VNNI, arm64). Without such an instruction V8 adds
 * two and two in 16 bits, and saturates those sums: here 2 * 127 * 255 to 32767. The kernels' sums are too small for that.
 */
export function addsFours(products: (x: number, q: number) => number): boolean {
  return products(0x7f7f7f7f, -1) !== 2 * 32767;
}

/** Decodes base64. Uint8Array.fromBase64 is faster, but Node 22 does not have it. */
function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  if (typeof Uint8Array.fromBase64 === "function") return Uint8Array.fromBase64(text);
  const binary = atob(text);
  return Uint8Array.from({ length: binary.length }, (_, n) => binary.charCodeAt(n));
}

/** The suffix of the kernels of a width. Widths without kernels use the definition (codec.ts). */
const WITH_KERNELS: ReadonlyMap<BlockFormat, string> = new Map([[Q4B32, "q4"], [Q8B32, "q8"]]);

/** Creates the operations on areas of `memory`; `scratch` is the address of 16 bytes that they may overwrite. */
export function wasmKernels(memory: WebAssembly.Memory, scratch: number): BlockKernels {
  const wasm = instantiate(memory);
  const scalar = scalarKernels(memory.buffer);
  const kernel = (operation: string, source: FloatFormat, target: BlockFormat) => {
    const name = WITH_KERNELS.get(target);
    return name === undefined ? undefined : wasm[`${operation}_${source.name.toLowerCase()}_${name}`];
  };
  return {
    encode(source, target, src, dst, blocks, rule = "absmax") {
      const encode = kernel("encode", source, target);
      return encode
        ? encode(src, dst, blocks, rule === "signed")
        : scalar.encode(source, target, src, dst, blocks, rule);
    },
    checkScales: (format, src, blocks) => wasm.check_scales(src, format.blockBytes, blocks),
    error(source, target, src, quant, blocks) {
      const error = kernel("error", source, target);
      if (error === undefined) return scalar.error(source, target, src, quant, blocks);
      error(src, quant, blocks, scratch);
      const view = new DataView(memory.buffer);
      return { errors: view.getFloat64(scratch, true), squares: view.getFloat64(scratch + 8, true) };
    },
    firstDifference: (a, b, bytes) => wasm.first_difference(a, b, bytes),
  };
}

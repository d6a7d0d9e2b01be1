/**
 * The safetensors container: eight bytes of header length (little endian), a JSON header, the data.
 * https://github.com/huggingface/safetensors#format
 *
 * The rules are those of its reference reader, plus rabbit's own for quantized files. This file does not check block
 * scales (which are in the data, see lib/quantize/verify.ts), nor whether the tensors are those of a model (lib/model).
 *
 * @module
 */

import { CheckpointError, quote } from "../errors.ts";
import { type BlockFormat, declarationOf, FORMATS, matrixBytes, WIDTHS } from "./blocks.ts";
import { JsonError, JsonReader, OddNumber } from "./json.ts";

/** Bytes before the header. */
export const LENGTH_BYTES = 8;

/** The reference reader's limit: a longer header is an attack or another kind of file. */
export const MAX_HEADER_BYTES = 100_000_000;

/** The limit of PyTorch and NumPy. */
const MAX_DIMENSIONS = 64;

/** The alignment of the data, as in the reference writer. */
const ALIGNMENT = 8;

/** Bits per element of the container's dtypes, without the block formats. */
const ELEMENT_BITS: ReadonlyMap<string, number> = new Map(Object.entries({
  F64: 64,
  I64: 64,
  U64: 64,
  C64: 64,
  F32: 32,
  I32: 32,
  U32: 32,
  F16: 16,
  BF16: 16,
  I16: 16,
  U16: 16,
  I8: 8,
  U8: 8,
  BOOL: 8,
  F8_E4M3: 8,
  F8_E5M2: 8,
  F8_E8M0: 8,
  F8_E4M3FNUZ: 8,
  F8_E5M2FNUZ: 8,
  F6_E2M3: 6,
  F6_E3M2: 6,
  F4: 4,
}));

/** One tensor of a header. */
export interface TensorEntry {
  /** Its name. */
  readonly name: string;
  /** The name of its format. */
  readonly dtype: string;
  /** Rows and columns of a matrix, the length of a vector. */
  readonly shape: readonly number[];
  /** Its first byte in the data section. */
  readonly begin: number;
  /** The byte after its last one. */
  readonly end: number;
}

/** A header that has passed every check. */
export interface Header {
  /** `__metadata__`; undefined if the file has none. */
  readonly metadata?: ReadonlyMap<string, string>;
  /** The tensors, in the order of their data; tensors with equal offsets (empty ones) in the order of the header. */
  readonly tensors: readonly TensorEntry[];
  /** The declared width; undefined for a file of plain tensors. */
  readonly width?: BlockFormat;
  /** The offset of the data: the size of the length field and the header. */
  readonly dataStart: number;
}

/**
 * Reads the length of the header from the first eight bytes of a file.
 *
 * @param fileBytes the size of the whole file
 * @throws {CheckpointError} the file is too short for the header, or the length is above the limit
 */
export function headerLength(path: string, start: Uint8Array, fileBytes: number): number {
  if (fileBytes < LENGTH_BYTES) {
    throw new CheckpointError({ path }, `not a safetensors file: ${fileBytes} bytes, too short for a header`);
  }
  const lfs = "version ";
  if (new TextDecoder().decode(start.subarray(0, lfs.length)) === lfs) {
    throw new CheckpointError(
      { path },
      "not a safetensors file but a git-lfs pointer; fetch the file with `git lfs pull`",
    );
  }
  const length = new DataView(start.buffer, start.byteOffset).getBigUint64(0, true);
  if (length > BigInt(MAX_HEADER_BYTES)) {
    throw new CheckpointError(
      { path, field: "header" },
      `length is ${length} bytes, the limit is ${MAX_HEADER_BYTES}; not a safetensors file`,
    );
  }
  if (length > BigInt(fileBytes - LENGTH_BYTES)) {
    throw new CheckpointError(
      { path, field: "header" },
      `length is ${length} bytes, but only ${fileBytes - LENGTH_BYTES} follow in the file; the file is truncated`,
    );
  }
  return Number(length);
}

/**
 * Checks and reads a header.
 *
 * @param path for messages
 * @param bytes the header, without the length field
 * @param fileBytes the size of the whole file
 * @throws {CheckpointError} naming the tensor and the field
 */
export function parseHeader(path: string, bytes: Uint8Array, fileBytes: number): Header {
  const tensors: TensorEntry[] = [];
  let metadata: Map<string, string> | undefined;
  const json = readerOf(path, bytes);
  try {
    json.object((name) => {
      if (name === "__metadata__") metadata = parseMetadata(path, json);
      else tensors.push(parseEntry(path, name, json));
    });
    json.end();
  } catch (error) {
    if (error instanceof JsonError) throw new CheckpointError({ path, field: "header" }, error.message);
    throw error;
  }
  tensors.sort((a, b) => a.begin - b.begin);
  const dataStart = LENGTH_BYTES + bytes.length;
  checkLayout(path, tensors, fileBytes - dataStart);
  const width = checkWidth(path, metadata, tensors);
  for (const tensor of tensors) checkBytes(path, tensor);
  return { metadata, tensors, width, dataStart };
}

function readerOf(path: string, bytes: Uint8Array): JsonReader {
  const place = { path, field: "header" };
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new CheckpointError(place, "not valid UTF-8");
  }
  if (!text.startsWith("{")) throw new CheckpointError(place, `expected "{" first, found ${quote(text.slice(0, 12))}`);
  return new JsonReader(text);
}

function parseMetadata(path: string, json: JsonReader): Map<string, string> {
  const metadata = new Map<string, string>();
  if (json.peek() !== "object") {
    throw new CheckpointError({ path, field: "__metadata__" }, `expected an object, found ${json.describe()}`);
  }
  json.object((key) => {
    if (json.peek() !== "string") {
      const field = `__metadata__ ${quote(key)}`;
      throw new CheckpointError({ path, field }, `expected a string, found ${json.describe()}`);
    }
    metadata.set(key, json.string());
  });
  return metadata;
}

function parseEntry(path: string, tensor: string, json: JsonReader): TensorEntry {
  if (json.peek() !== "object") {
    throw new CheckpointError({ path, tensor }, `expected an object, found ${json.describe()}`);
  }
  let dtype: string | undefined;
  let shape: number[] | undefined;
  let offsets: number[] | undefined;
  json.object((field) => {
    if (field === "shape") shape = naturals(path, tensor, field, json);
    else if (field === "data_offsets") offsets = naturals(path, tensor, field, json);
    else if (field !== "dtype") json.skip();
    else if (json.peek() === "string") dtype = json.string();
    else throw new CheckpointError({ path, tensor, field }, `expected a string, found ${json.describe()}`);
  });
  const missing = (field: string, wanted: string) =>
    new CheckpointError({ path, tensor, field }, `expected ${wanted}, found nothing`);
  if (dtype === undefined) throw missing("dtype", "a string");
  if (!FORMATS.has(dtype) && !ELEMENT_BITS.has(dtype)) {
    throw new CheckpointError({ path, tensor, field: "dtype" }, `unknown dtype ${quote(dtype)}`);
  }
  if (shape === undefined) throw missing("shape", "an array of numbers");
  if (offsets === undefined) throw missing("data_offsets", "an array of numbers");
  const [begin, end] = offsets;
  if (offsets.length !== 2) {
    throw new CheckpointError({ path, tensor, field: "data_offsets" }, `expected two numbers, found ${offsets.length}`);
  }
  if (end < begin) {
    throw new CheckpointError({ path, tensor, field: "data_offsets" }, `[${begin},${end}] ends before it begins`);
  }
  return { name: tensor, dtype, shape, begin, end };
}

/** Reads an array of at most {@link MAX_DIMENSIONS} integers of at least 0. */
function naturals(path: string, tensor: string, field: string, json: JsonReader): number[] {
  const place = { path, tensor, field };
  if (json.peek() !== "array") {
    throw new CheckpointError(place, `expected an array of numbers, found ${json.describe()}`);
  }
  const numbers: number[] = [];
  json.array(() => {
    const number = json.peek() === "number" ? json.number() : json.describe();
    if (typeof number !== "number") {
      const found = number instanceof OddNumber ? number.text.slice(0, 40) : number;
      throw new CheckpointError(place, `expected whole numbers of 0 to 2^53-1, found ${found}`);
    }
    if (numbers.length === MAX_DIMENSIONS) {
      throw new CheckpointError(place, `more than ${MAX_DIMENSIONS} numbers, the limit`);
    }
    numbers.push(number);
  });
  // A copy, since an array that has grown reserves memory for more.
  return numbers.slice();
}

function checkLayout(path: string, tensors: TensorEntry[], dataBytes: number): void {
  // Sorted also by end, since an empty tensor may be anywhere on the border of its neighbours.
  const spans = tensors.toSorted((a, b) => a.begin - b.begin || a.end - b.end);
  let covered = 0;
  for (const { name, begin, end } of spans) {
    const place = { path, tensor: name, field: "data_offsets" };
    if (end > dataBytes) {
      throw new CheckpointError(
        place,
        `[${begin},${end}] ends after the data, which has ${dataBytes} bytes; the file is truncated`,
      );
    }
    if (begin < covered) {
      throw new CheckpointError(place, `[${begin},${end}] overlaps the previous tensor, which ends at ${covered}`);
    }
    if (begin > covered) throw new CheckpointError(place, `[${begin},${end}] leaves a gap after byte ${covered}`);
    covered = end;
  }
  if (covered !== dataBytes) {
    throw new CheckpointError(
      { path, field: "data_offsets" },
      `the tensors cover ${covered} bytes of data, but the file has ${dataBytes}`,
    );
  }
}

function checkWidth(
  path: string,
  metadata: ReadonlyMap<string, string> | undefined,
  tensors: TensorEntry[],
): BlockFormat | undefined {
  const declared = metadata?.get("format");
  const width = WIDTHS.find((format) => format.declaration === declared);
  if (width === undefined) {
    const block = tensors.find((t) => FORMATS.get(t.dtype)?.kind === "block");
    if (block !== undefined) {
      throw new CheckpointError(
        { path, tensor: block.name, field: metadata === undefined ? "__metadata__" : `__metadata__ "format"` },
        `dtype ${block.dtype} needs "rabbit-${block.dtype.toLowerCase()}", found ${
          declared === undefined ? "nothing" : quote(declared)
        }`,
      );
    }
    if (declared?.startsWith("rabbit-")) {
      throw new CheckpointError({ path, field: `__metadata__ "format"` }, `unknown width ${quote(declared)}`);
    }
    return undefined;
  }
  for (const [field, value] of Object.entries(declarationOf(width))) {
    const found = metadata?.get(field);
    if (found !== value) {
      throw new CheckpointError(
        { path, field: `__metadata__ ${quote(field)}` },
        `${width.name} needs ${quote(value)}, found ${found === undefined ? "nothing" : quote(found)}`,
      );
    }
  }
  for (const { name, dtype, shape } of tensors) {
    const place = { path, tensor: name, field: "dtype" };
    const format = FORMATS.get(dtype);
    if (format?.kind === "block" && format !== width) {
      throw new CheckpointError(
        place,
        `${dtype} in a file of format "${width.declaration}"; a file has only one width`,
      );
    }
    if (format !== width && shape.length === 2) {
      throw new CheckpointError(
        place,
        `a two-dimensional ${dtype} tensor in a file of format "${width.declaration}"; it must be ${width.name}`,
      );
    }
  }
  return width;
}

function checkBytes(path: string, { name, dtype, shape, begin, end }: TensorEntry): void {
  const format = FORMATS.get(dtype);
  const bits = ELEMENT_BITS.get(dtype);
  const text = `[${shape.join(",")}]`;
  const overflow = () =>
    new CheckpointError({ path, tensor: name, field: "shape" }, `${text} has more than 2^53 bytes`);
  let elements = 1;
  for (const n of shape) {
    elements *= n;
    if (!Number.isSafeInteger(elements)) throw overflow();
  }
  let bytes: number;
  if (format?.kind === "block") {
    if (shape.length !== 2) {
      throw new CheckpointError(
        { path, tensor: name, field: "shape" },
        `expected two dimensions for ${dtype}, found ${text}`,
      );
    }
    if (shape[1] % format.blockWeights !== 0) {
      throw new CheckpointError(
        { path, tensor: name, field: "shape" },
        `${text}: ${shape[1]} columns are not a multiple of ${format.blockWeights}`,
      );
    }
    bytes = matrixBytes(format, shape[0], shape[1]);
  } else {
    const total = elements * bits!;
    if (!Number.isSafeInteger(total)) throw overflow();
    if (total % 8 !== 0) {
      throw new CheckpointError(
        { path, tensor: name, field: "shape" },
        `${text} of ${dtype} does not fill whole bytes`,
      );
    }
    bytes = total / 8;
  }
  if (end - begin !== bytes) {
    throw new CheckpointError(
      { path, tensor: name, field: "data_offsets" },
      `[${begin},${end}] covers ${end - begin} bytes, but shape ${text} of ${dtype} needs ${bytes}`,
    );
  }
}

/**
 * Serializes the start of a file: the length field and the header, padded with spaces so that the data starts at a
 * multiple of eight bytes.
 *
 * @param tensors name, dtype, shape and bytes, in the order of the data
 */
export function serializeHeader(
  metadata: Record<string, string>,
  tensors: Iterable<{ name: string; dtype: string; shape: readonly number[]; bytes: number }>,
): Uint8Array<ArrayBuffer> {
  const parts = [`"__metadata__":${JSON.stringify(metadata)}`];
  let offset = 0;
  for (const { name, dtype, shape, bytes } of tensors) {
    const data_offsets = [offset, offset + bytes];
    parts.push(`${JSON.stringify(name)}:${JSON.stringify({ dtype, shape, data_offsets })}`);
    offset += bytes;
  }
  const text = new TextEncoder().encode(`{${parts.join(",")}}`);
  const length = Math.ceil(text.length / ALIGNMENT) * ALIGNMENT;
  const out = new Uint8Array(LENGTH_BYTES + length).fill(0x20);
  new DataView(out.buffer).setBigUint64(0, BigInt(length), true);
  out.set(text, LENGTH_BYTES);
  return out;
}

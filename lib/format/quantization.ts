/**
 * quantization.json: how the blocks beside it were chosen, where that was not by the format's own rule. The weights say
 * nothing of it: whoever reads them needs to know no more than the format.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { CheckpointError } from "../errors.ts";
import { type Checkpoint, memberOf, MODEL_FILE, QUANTIZATION_FILE } from "./checkpoint.ts";
import { readJsonObject } from "./json.ts";
import { JsonFields } from "./json_fields.ts";

/** A file and its SHA-256, in hexadecimal. */
export interface FileDigest {
  /** Its name, without its directory. */
  readonly file: string;
  /** SHA-256 in hexadecimal. */
  readonly sha256: string;
}

/** How a calibrated checkpoint was made: what is needed to make it again. */
export interface Calibration {
  /** The texts, in the order in which they were given; none if the tokens were sampled from the model. */
  readonly texts: readonly FileDigest[];
  /** Tokens that were passed through the model. */
  readonly tokens: number;
  /** Tokens of a window. */
  readonly window: number;
  /** The seed of the places of the windows, or of the sampled tokens. */
  readonly seed: number;
  /** What was added to the diagonal of each Hessian, as a part of its mean. */
  readonly damping: number;
  /** SHA-256 of the token ids, as little-endian 32-bit numbers. */
  readonly ids: string;
}

/** What calibration did to one matrix. */
export interface MatrixLoss {
  /** The name of the tensor. */
  readonly name: string;
  /**
   * The error of the matrix's outputs on the calibration tokens, as a part of the outputs' own squares, when every block is
   * made by the format's rule.
   */
  readonly before: number;
  /** The same for the blocks that were chosen. */
  readonly after: number;
}

/** How the blocks of a checkpoint were chosen. */
export type Method = "signed" | "calibrated" | "self-calibrated";

/** The content of quantization.json. */
export interface Quantization {
  /** See {@link Method}. */
  readonly method: Method;
  /** The version of the method: another one may give other blocks. */
  readonly version: number;
  /** SHA-256 of the weights that it describes. */
  readonly digest: string;
  /** The files of the float checkpoint. */
  readonly source: readonly FileDigest[];
  /** Present where the method calibrates. */
  readonly calibration?: Calibration;
  /** The matrices in the order in which they were quantized, where the method calibrates. */
  readonly matrices?: readonly MatrixLoss[];
}

/** A file of more bytes is another one: a line for each of a million matrices. */
const MAX_BYTES = 200_000_000;

/** The largest damping. */
export const MAX_DAMPING = 100;

/** The most tokens of a calibration, 32 times as many as usual: they are held in memory, and sampling them takes hours. */
export const MAX_TOKENS = 1 << 20;

const METHODS: readonly Method[] = ["signed", "calibrated", "self-calibrated"];

/** The bytes of quantization.json. */
export function serializeQuantization(quantization: Quantization): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(quantization, null, 1) + "\n");
}

/**
 * Reads what stands beside a checkpoint.
 *
 * @returns undefined if there is nothing: the blocks are those of the format's rule, or nobody says what they are
 * @throws {CheckpointError} the file is not what {@link serializeQuantization} writes
 * @throws {SystemError}
 */
export function quantizationOf(checkpoint: Checkpoint): Quantization | undefined {
  const { directory, files, width, foreign } = checkpoint;
  // A file of another name, or float weights, are not those that it describes.
  if (width === undefined || foreign || files.length === 1 && basename(files[0].path) !== MODEL_FILE) return undefined;
  const path = memberOf(directory, QUANTIZATION_FILE);
  if (path === undefined) return undefined;
  const found = new JsonFields(path, readJsonObject(path, MAX_BYTES));
  const method = found.word("method", METHODS);
  const common = {
    method,
    version: found.whole("version"),
    digest: found.digest("digest"),
    source: found.list("source").map(fileDigest),
  };
  if (method === "signed") return common;
  const calibration = found.object("calibration");
  const texts = calibration.list("texts").map(fileDigest);
  if ((method === "calibrated") !== texts.length > 0) {
    const found = texts.length > 0 ? "has texts" : "is empty";
    throw new CheckpointError({ path, field: "calibration texts" }, `${found}, but the method is ${method}`);
  }
  const window = calibration.whole("window", 2);
  return {
    ...common,
    calibration: {
      texts,
      // Every text has a window.
      tokens: calibration.whole("tokens", window * Math.max(1, texts.length), MAX_TOKENS),
      window,
      seed: calibration.whole("seed"),
      damping: calibration.number("damping", MAX_DAMPING),
      ids: calibration.digest("ids"),
    },
    matrices: found.list("matrices").map((matrix) => ({
      name: matrix.text("name"),
      before: matrix.number("before"),
      after: matrix.number("after"),
    })),
  };
}

function fileDigest(fields: JsonFields): FileDigest {
  return { file: fields.text("file"), sha256: fields.digest("sha256") };
}

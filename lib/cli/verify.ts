/**
 * `rabbit verify`: checks a checkpoint, and compares it with its source.
 *
 * @module
 */

import { join } from "@std/path/join";
import { CheckpointError } from "../errors.ts";
import { isGguf } from "../gguf/parts.ts";
import { filesBytes, openSource, planVerify, runVerify } from "../gguf/verify.ts";
import type { Model } from "../model/load.ts";
import { bytesOf, type Checkpoint, nameOf, openCheckpoint, QUANTIZATION_FILE } from "../format/checkpoint.ts";
import { type PlannedRederivation, planRederivation, runRederivation } from "../library/rederive.ts";
import type { Part } from "../quantize/parts.ts";
import { chunkMemory } from "../quantize/chunks.ts";
import { type Verified, verifiedBytes, verify, verifyAgainst, type VerifyOptions } from "../quantize/verify.ts";
import { CHECKPOINT, command, FILE, PART, THREADS } from "./arguments.ts";
import { CALIBRATE, sourcesOf, withCalibrationBar } from "./calibrate.ts";
import { NotSound, UsageError } from "./errors.ts";
import { memoryFor } from "../files/memory.ts";
import { verifyStatement } from "./verify_attestation.ts";
import { Fixed, interruptible, type Output, withBar } from "./output.ts";

/** `rabbit verify` */
export const verifyCommand = command({
  name: "verify",
  summary: "check every block of a checkpoint, and compare it with its source",
  positionals: [{
    name: "CHECKPOINT",
    type: CHECKPOINT,
    help: "the checkpoint, a directory or a file, or a GGUF file",
  }],
  flags: {
    against: {
      type: CHECKPOINT,
      value: "SOURCE",
      help: "the float checkpoint it was made from: derive every block again and print the error of each tensor",
    },
    rederive: {
      help:
        "run the calibration of a calibrated checkpoint again, with the source of --against, and compare every block",
    },
    calibrate: {
      ...CALIBRATE,
      unset: "text that is sampled from the model",
      help: "with --rederive: the texts that the checkpoint was calibrated with, in their order",
    },
    shard: {
      type: PART,
      help: "check part I of N alone, for one of N machines; the digest is left out",
    },
    attestation: {
      type: FILE,
      help:
        "check a statement of rabbit attest on the checkpoint, or a signature of model_signing: its digests, with --against " +
        "its derivation, with --public-key its signature, with --text its figures",
    },
    "public-key": { type: FILE, help: "with --attestation: the key that has signed it (P-256, PEM)" },
    text: {
      type: FILE,
      many: true,
      help: "with --attestation and --against: measure a text of the statement again, and compare every digit",
    },
    threads: THREADS,
    "dry-run": { help: "check the headers alone, and print sizes and the memory that is needed" },
  },
  verdict: "0 valid (and equal to its source and its statement), 1 invalid or different",
  example: "rabbit verify SmolLM2-135M-q8 --against SmolLM2-135M",
  async run({ positionals: [path], values }, out) {
    const { against, rederive, calibrate, shard: part, threads, attestation, "public-key": publicKey, text } = values;
    const dry = values["dry-run"];
    if (rederive && against === undefined) throw new UsageError("--rederive needs the source; give it with --against");
    if (calibrate && !rederive) throw new UsageError("--calibrate is for --rederive, which is not given");
    if (rederive && part) throw new UsageError("--rederive and --shard exclude each other: a calibration is one run");
    if (attestation !== undefined) {
      if (part) throw new UsageError("--attestation and --shard exclude each other: a statement is of the whole");
      if (dry) throw new UsageError("--attestation and --dry-run exclude each other");
      if (text && against === undefined) throw new UsageError("--text needs the float model; give it with --against");
      const again = { rederive, ...calibrate && { calibrate: sourcesOf(calibrate) }, threads };
      const settings = { ...again, against, publicKey, texts: text };
      return await verifyStatement(path, attestation, settings, out);
    }
    if (publicKey !== undefined) throw new UsageError("--public-key is for --attestation, which is not given");
    if (text) throw new UsageError("--text is for --attestation, which is not given");
    const gguf = isGguf(path);
    if (gguf && against === undefined) {
      throw new UsageError(`${path} is a GGUF file, which is verified against its source; give it with --against`);
    }
    if (rederive && dry) throw new UsageError("--rederive and --dry-run exclude each other");
    const other = rederive ? "--rederive" : part ? "--shard" : dry ? "--dry-run" : undefined;
    if (gguf && other) throw new UsageError(`${other} is for checkpoints, not for GGUF files`);
    const model = gguf ? openSource(against!) : undefined;
    const source = against === undefined ? undefined : model?.checkpoint ?? openCheckpoint(against);
    let opened: Checkpoint | undefined;
    try {
      if (model !== undefined) return await derive(path, model, out);
      const checkpoint = opened = openCheckpoint(path);
      if (dry) return plan(checkpoint, source, part, threads, out);
      const planned = rederive
        ? await interruptible((signal) => {
          return planRederivation(checkpoint, source!, calibrate ? sourcesOf(calibrate) : "self", signal);
        })
        : undefined;
      const sound = await withBar("verify", bytesOf(checkpoint), (watch) => {
        const options = { threads, part, ...watch };
        return source ? compareWith(checkpoint, source, options, out) : check(checkpoint, options, out);
      });
      const same = sound && (planned === undefined || await runAgain(planned, checkpoint, threads, out));
      out.verdict(same ? "OK" : "DIFFER");
      return same ? 0 : 1;
    } catch (error) {
      const isSource = (place: string) => source?.files.some(({ path }) => path === place);
      const isChecked = (place: string) => gguf ? place === path || place.endsWith(".gguf") : isOf(place, opened);
      // An invalid checkpoint is the answer "no"; if anything else is invalid, there is no answer.
      if (!(error instanceof CheckpointError) || isSource(error.place.path) || !isChecked(error.place.path)) {
        throw error;
      }
      throw new NotSound(error);
    }
  },
});

/** Whether a path belongs to a checkpoint: its name, its weights, or the description of its blocks. */
function isOf(path: string, checkpoint: Checkpoint | undefined): boolean {
  // Before it is open, nothing else is read.
  if (checkpoint === undefined) return true;
  const { directory, files } = checkpoint;
  return [nameOf(checkpoint), join(directory, QUANTIZATION_FILE), ...files.map(({ path }) => path)].includes(path);
}

/** Prints what would be read, and what it takes. */
function plan(
  checkpoint: Checkpoint,
  source: Checkpoint | undefined,
  part: Part | undefined,
  threads: number,
  out: Output,
): number {
  const { bytes, sourceBytes } = verifiedBytes(checkpoint, source, part);
  out.line({
    dry_run: true,
    model: nameOf(checkpoint),
    shard: part && `${part.number}/${part.count}`,
    bytes,
    source_bytes: source && sourceBytes,
    memory: memoryFor(chunkMemory(threads), threads),
  });
  return 0;
}

/** Derives a GGUF file from its source by llama.cpp's rules. */
async function derive(path: string, model: Model, out: Output): Promise<number> {
  const plan = planVerify(path, model);
  const { files, bytes, blocks, tensors } = await withBar("verify", 2 * filesBytes(plan), (watch) => {
    return runVerify(plan, model, watch);
  });
  out.line({ model: path, bytes, format: "GGUF", tensors: tensors.length, blocks });
  if (files.length === 1) out.line({ digest: files[0].digest });
  else for (const { path, digest } of files) out.item("files", { file: path, digest });
  for (const { name, equal, row, block, byte } of tensors) out.item("list", { tensor: name, equal, row, block, byte });
  const equal = tensors.filter(({ equal }) => equal).length;
  out.line({ against: nameOf(model.checkpoint), equal, different: tensors.length - equal });
  out.verdict(equal === tensors.length ? "OK" : "DIFFER");
  return equal === tensors.length ? 0 : 1;
}

type Options = VerifyOptions;

async function check(checkpoint: Checkpoint, options: Options, out: Output): Promise<boolean> {
  summarize(checkpoint, await verify(checkpoint, options), options, out);
  return true;
}

/** Whether a calibration that runs again gives the same blocks. */
async function runAgain(
  planned: PlannedRederivation,
  checkpoint: Checkpoint,
  threads: number,
  out: Output,
): Promise<boolean> {
  const { difference } = await withCalibrationBar("verify: calibrate", planned, threads, (options) => {
    return runRederivation(planned, checkpoint, options);
  });
  out.group("rederived", { equal: difference === undefined, ...difference });
  return difference === undefined;
}

async function compareWith(
  checkpoint: Checkpoint,
  source: Checkpoint,
  options: Options,
  out: Output,
): Promise<boolean> {
  const against = await verifyAgainst(checkpoint, source, options);
  const { tensors, rms } = against;
  summarize(checkpoint, against, options, out);
  for (const report of tensors) {
    const error = report.rms === undefined ? undefined : new Fixed(report.rms, 6);
    out.item("list", {
      tensor: report.name,
      equal: report.calibrated ? undefined : report.equal,
      calibrated: report.calibrated,
      problem: report.problem,
      row: report.row,
      block: report.block,
      byte: report.byte,
      rms: error,
    });
  }
  const equal = tensors.filter(({ equal }) => equal).length;
  const calibrated = tensors.filter(({ equal, calibrated }) => equal && calibrated).length;
  out.line({
    against: nameOf(source),
    equal: equal - calibrated,
    calibrated: calibrated || undefined,
    different: tensors.length - equal,
    rms: new Fixed(rms, 6),
  });
  return equal === tensors.length;
}

function summarize(
  checkpoint: Checkpoint,
  { digests, digest, blocks, quantization }: Verified,
  { part }: { readonly part?: Part },
  out: Output,
): void {
  const quantized = checkpoint.tensors.filter(({ dtype }) => dtype === checkpoint.width?.name).length;
  out.line({
    model: nameOf(checkpoint),
    shard: part && `${part.number}/${part.count}`,
    bytes: bytesOf(checkpoint),
    format: checkpoint.width?.declaration ?? "none",
    tensors: checkpoint.tensors.length,
    quantized,
    kept: checkpoint.tensors.length - quantized,
    blocks,
    method: quantization?.method,
  });
  if (digests.length > 1) {
    for (const [n, { path }] of checkpoint.files.entries()) out.item("files", { file: path, digest: digests[n] });
  }
  if (digest !== undefined) out.line({ digest });
}

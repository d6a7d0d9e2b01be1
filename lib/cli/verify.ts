/**
 * `rabbit verify`: checks a checkpoint, and compares it with its source.
 *
 * @module
 */

import { CheckpointError } from "../errors.ts";
import { bytesOf, type Checkpoint, nameOf, openCheckpoint } from "../format/checkpoint.ts";
import { verify, verifyAgainst } from "../quantize/verify.ts";
import { CHECKPOINT, command, THREADS } from "./arguments.ts";
import { NotSound } from "./errors.ts";
import { Fixed, type Output, withBar } from "./output.ts";

/** `rabbit verify` */
export const verifyCommand = command({
  name: "verify",
  summary: "check every block of a checkpoint, and compare it with its source",
  positionals: [{ name: "CHECKPOINT", type: CHECKPOINT, help: "the checkpoint, a directory or a file" }],
  flags: {
    against: {
      type: CHECKPOINT,
      value: "SOURCE",
      help: "the float checkpoint it was made from: derive every block again and print the error of each tensor",
    },
    threads: THREADS,
  },
  verdict: "0 valid (and equal to its source), 1 invalid or different",
  example: "rabbit verify SmolLM2-135M-q8 --against SmolLM2-135M",
  async run({ positionals: [path], values: { against, threads } }, out) {
    const source = against === undefined ? undefined : openCheckpoint(against);
    try {
      const checkpoint = openCheckpoint(path);
      return await withBar("verify", bytesOf(checkpoint), (watch) => {
        const options = { threads, ...watch };
        return source ? compareWith(checkpoint, source, options, out) : check(checkpoint, options, out);
      });
    } catch (error) {
      // An invalid checkpoint is the answer "no", an invalid source is an error.
      if (error instanceof CheckpointError && !source?.files.some(({ path }) => path === error.place.path)) {
        throw new NotSound(error);
      }
      throw error;
    }
  },
});

type Options = Parameters<typeof verify>[1];

async function check(checkpoint: Checkpoint, options: Options, out: Output): Promise<number> {
  const { digests, blocks } = await verify(checkpoint, options);
  summarize(checkpoint, blocks, digests, out);
  out.verdict("OK");
  return 0;
}

async function compareWith(checkpoint: Checkpoint, source: Checkpoint, options: Options, out: Output): Promise<number> {
  const { digests, blocks, tensors, rms } = await verifyAgainst(checkpoint, source, options);
  summarize(checkpoint, blocks, digests, out);
  for (const report of tensors) {
    const error = report.rms === undefined ? undefined : new Fixed(report.rms, 6);
    out.item("list", {
      tensor: report.name,
      equal: report.equal,
      problem: report.problem,
      row: report.row,
      block: report.block,
      byte: report.byte,
      rms: error,
    });
  }
  const equal = tensors.filter(({ equal }) => equal).length;
  out.line({
    against: nameOf(source),
    equal,
    different: tensors.length - equal,
    rms: new Fixed(rms, 6),
  });
  const same = equal === tensors.length;
  out.verdict(same ? "OK" : "DIFFER");
  return same ? 0 : 1;
}

function summarize(checkpoint: Checkpoint, blocks: number, digests: readonly string[], out: Output): void {
  const quantized = checkpoint.tensors.filter(({ dtype }) => dtype === checkpoint.width?.name).length;
  out.line({
    model: nameOf(checkpoint),
    bytes: bytesOf(checkpoint),
    format: checkpoint.width?.declaration ?? "none",
    tensors: checkpoint.tensors.length,
    quantized,
    kept: checkpoint.tensors.length - quantized,
    blocks,
  });
  if (digests.length === 1) out.line({ digest: digests[0] });
  else {
    for (const [n, { path }] of checkpoint.files.entries()) out.item("files", { file: path, digest: digests[n] });
  }
}

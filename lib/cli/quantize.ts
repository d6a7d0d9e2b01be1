/**
 * `rabbit quantize`: writes a quantized checkpoint.
 *
 * @module
 */

import { openCheckpoint } from "../format/checkpoint.ts";
import { DEFAULT_WIDTH, SCALE_RULES, WIDTHS } from "../format/blocks.ts";
import { checkTarget, planQuantize, quantize } from "../quantize/quantize.ts";
import { plannedName, planShards } from "../quantize/shards.ts";
import { methodOf } from "../library/calibration.ts";
import { quantizeCalibrated } from "../library/quantize.ts";
import { join } from "@std/path/join";
import { CHECKPOINT, command, DIRECTORY, FORCE, SIZE, THREADS } from "./arguments.ts";
import { CALIBRATION_FLAGS, calibrationOf, withCalibrationBar } from "./calibrate.ts";
import { UsageError } from "./errors.ts";
import { Fixed, warn, withBar } from "./output.ts";
import { list } from "./help.ts";
import { BITS, NARROWEST_FIRST } from "./widths.ts";

/** The purpose of each width. */
const PURPOSES = NARROWEST_FIRST.map(({ bits, label, name }) => `${bits} for ${label} (${name})`);

/** `rabbit quantize` */
export const quantizeCommand = command({
  name: "quantize",
  summary: "quantize a float checkpoint",
  word: "QUANT",
  positionals: [
    {
      name: "FLOAT",
      type: CHECKPOINT,
      alias: "in",
      help: "the float checkpoint: a directory, or a safetensors file",
    },
    {
      name: "OUT",
      type: DIRECTORY,
      alias: "out",
      help: "the output directory, created if missing",
    },
  ],
  flags: {
    bits: { type: BITS, default: DEFAULT_WIDTH.bits, help: `bits of a weight: ${list(PURPOSES)}` },
    rule: {
      type: { kind: "choice", of: SCALE_RULES },
      default: SCALE_RULES[0],
      help:
        "where the scale of a block comes from: absmax, max |w| / 7 (or / 127), which is the format's own rule; or " +
        "signed, the weight of the largest magnitude / -8 (or / -128), as llama.cpp makes Q4_0",
    },
    ...CALIBRATION_FLAGS,
    "max-shard-size": {
      type: SIZE,
      unset: "one file",
      help: "write shards of at most this many bytes of tensors, such as 5GB, and their index",
    },
    threads: THREADS,
    force: FORCE,
    "dry-run": { help: "check the headers and print what would be written, but write nothing" },
  },
  example: "rabbit quantize SmolLM2-135M SmolLM2-135M-q8 --bits 8",
  async run(args, out) {
    const { positionals: [path, directory], values } = args;
    const { bits, rule, calibrate, "max-shard-size": shardBytes, threads, force, "dry-run": dry } = values;
    if (calibrate !== undefined && shardBytes !== undefined) {
      throw new UsageError("--calibrate and --max-shard-size exclude each other: a calibrated checkpoint is one file");
    }
    const source = openCheckpoint(path);
    const width = WIDTHS.find((format) => format.bits === bits)!;
    const plan = planShards(planQuantize(source, width, rule), shardBytes ?? Infinity);
    const planned = await calibrationOf(args, plan);
    if (dry) checkTarget(plan, directory, force, planned && true);
    const write = () => {
      return planned
        ? withCalibrationBar("quantize", planned, threads, (options) => {
          return quantizeCalibrated(planned, directory, { force, ...options });
        })
        : withBar("quantize", plan.sourceBytes, (watch) => quantize(plan, directory, { threads, force, ...watch }));
    };
    const done = dry ? undefined : await write();
    for (const name of done?.missing ?? []) {
      warn("quantize", `${source.directory} has no ${name}, so the new checkpoint has none`);
    }
    for (const name of done?.left ?? []) {
      warn("quantize", `${join(source.directory, name)} is not copied; copy it to ${directory} if it is needed`);
    }
    out.line({
      dry_run: dry || undefined,
      model: join(directory, plannedName(plan)),
      files: plan.files.length > 1 ? plan.files.length : undefined,
      bytes: plan.bytes,
      source_bytes: plan.sourceBytes,
      tensors: plan.tensors.length,
      quantized: plan.quantized,
      kept: plan.tensors.length - plan.quantized,
      bits: plan.format.bits,
      block: plan.format.blockWeights,
      scale: "f16",
      method: planned ? methodOf(planned) : rule === SCALE_RULES[0] ? undefined : rule,
      tokens: planned?.tokens,
    });
    for (const { name, before, after } of done?.quantization?.matrices ?? []) {
      out.item("matrices", { tensor: name, loss_before: new Fixed(before, 6), loss_after: new Fixed(after, 6) });
    }
    out.line({ ratio: new Fixed(plan.bytes / plan.sourceBytes, 3), digest: done?.digest });
    return 0;
  },
});

/**
 * `rabbit quantize`: writes a quantized checkpoint.
 *
 * @module
 */

import { openCheckpoint } from "../format/checkpoint.ts";
import { DEFAULT_WIDTH, SCALE_RULES, WIDTHS } from "../format/blocks.ts";
import { checkTarget, planQuantize, quantize, type Quantized } from "../quantize/quantize.ts";
import { type Part, planPart } from "../quantize/parts.ts";
import { checkPart, quantizePart } from "../quantize/write_part.ts";
import { plannedName, planShards } from "../quantize/shards.ts";
import { memoryOf, methodOf } from "../library/calibration.ts";
import { quantizeCalibrated } from "../library/quantize.ts";
import { join } from "@std/path/join";
import { CHECKPOINT, command, DIRECTORY, DRY_RUN, FORCE, PART, SIZE, THREADS } from "./arguments.ts";
import { CALIBRATION_FLAGS, calibrationOf, withCalibrationBar } from "./calibrate.ts";
import type { Watch } from "../pace.ts";
import { chunkMemory } from "../quantize/chunks.ts";
import { memoryFor } from "../files/memory.ts";
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
      help:
        "write shards of at most this many bytes of tensors, such as 5GB, and their index; a larger tensor has a shard of its own",
    },
    shard: {
      type: PART,
      help: "write part I of N alone, in a directory that all parts share; rabbit merge OUT puts them together",
    },
    threads: THREADS,
    force: FORCE,
    "dry-run": DRY_RUN,
  },
  example: "rabbit quantize SmolLM2-135M SmolLM2-135M-q8 --bits 8",
  async run(args, out) {
    const { positionals: [path, directory], values } = args;
    const { bits, rule, "max-shard-size": shardBytes, shard: part, threads, force, "dry-run": dry } = values;
    checkShards(values);
    const source = openCheckpoint(path);
    const width = WIDTHS.find((format) => format.bits === bits)!;
    const whole = planShards(planQuantize(source, width, rule), shardBytes ?? Infinity);
    const plan = part === undefined ? whole : planPart(whole, part);
    const planned = await calibrationOf(args, plan);
    if (dry && part === undefined) checkTarget(plan, directory, force, planned && true);
    if (dry && part !== undefined) await checkPart(whole, directory, part, force);
    const byRule = (watch: Watch): Promise<Quantized & { readonly skipped?: boolean }> => {
      const options = { threads, force, ...watch };
      return part === undefined ? quantize(plan, directory, options) : quantizePart(whole, directory, part, options);
    };
    const write = () => {
      return planned
        ? withCalibrationBar("quantize", planned, threads, (options) => {
          return quantizeCalibrated(planned, directory, { force, ...options });
        })
        : withBar("quantize", plan.sourceBytes, byRule);
    };
    const done: Quantized & { readonly skipped?: boolean } | undefined = dry ? undefined : await write();
    for (const name of done?.missing ?? []) {
      warn("quantize", `${source.directory} has no ${name}, so the new checkpoint has none`);
    }
    for (const name of done?.left ?? []) {
      warn("quantize", `${join(source.directory, name)} is not copied; copy it to ${directory} if it is needed`);
    }
    if (done?.damage !== undefined) warn("quantize", `copied as it is: ${done.damage}`);
    out.line({
      dry_run: dry || undefined,
      model: join(directory, plannedName(plan)),
      shard: part && `${part.number}/${part.count}`,
      skipped: done?.skipped || undefined,
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
      memory: dry ? memoryFor(planned ? memoryOf(planned, threads) : chunkMemory(threads), threads) : undefined,
    });
    for (const { name, before, after } of done?.quantization?.matrices ?? []) {
      out.item("matrices", { tensor: name, loss_before: new Fixed(before, 6), loss_after: new Fixed(after, 6) });
    }
    out.line({ ratio: new Fixed(plan.bytes / plan.sourceBytes, 3), digest: done?.digest });
    return 0;
  },
});

/** @throws {UsageError} flags exclude each other */
function checkShards(
  { rule, calibrate, "max-shard-size": size, shard }: {
    readonly rule: string;
    readonly calibrate?: unknown;
    readonly "max-shard-size"?: number;
    readonly shard?: Part;
  },
): void {
  if (calibrate !== undefined && size !== undefined) {
    throw new UsageError("--calibrate and --max-shard-size exclude each other: a calibrated checkpoint is one file");
  }
  if (shard === undefined) return;
  if (size !== undefined) {
    throw new UsageError("--shard and --max-shard-size exclude each other: the parts become the shards");
  }
  const other = calibrate !== undefined ? "calibrate" : rule !== SCALE_RULES[0] ? "rule" : undefined;
  if (other === undefined) return;
  throw new UsageError(`--shard and --${other} exclude each other: parts are made by the format's own rule`);
}

import { MODEL_FILE, openCheckpoint } from "../format/checkpoint.ts";
import { DEFAULT_WIDTH, WIDTHS } from "../format/blocks.ts";
import { checkTarget, planQuantize, quantize } from "../quantize/quantize.ts";
import { join } from "@std/path/join";
import { type Command, FORCE, THREADS } from "./arguments.ts";
import { Fixed, warn, withBar } from "./output.ts";

/** The widths, narrowest first. */
export const NARROWEST_FIRST = WIDTHS.toSorted((a, b) => a.bits - b.bits);

/** The widths that `--bits` takes. */
export const BITS = NARROWEST_FIRST.map(({ bits }) => String(bits));

/** What each width is for. */
const PURPOSES = NARROWEST_FIRST.map((width) => {
  return `${width.bits} for ${width.label} (${width.name})${width === DEFAULT_WIDTH ? ", the default" : ""}`;
});

/** `rabbit quantize` */
export const quantizeCommand: Command = {
  name: "quantize",
  summary: "write a quantized checkpoint of a float one",
  positionals: [],
  flags: [
    { name: "in", value: "DIR|FILE", required: true, help: "the float checkpoint: a directory, or a safetensors file" },
    {
      name: "out",
      value: "DIR",
      required: true,
      help: "the directory for the quantized one; made where it is missing",
    },
    { name: "bits", value: BITS.join("|"), help: PURPOSES.join(", or ") },
    THREADS,
    FORCE,
    { name: "dry-run", help: "check the headers and print what would be written, without writing" },
  ],
  example: "rabbit quantize --bits 8 --in SmolLM2-135M --out SmolLM2-135M-q8",
  async run(args, out) {
    const bits = args.choice("bits", BITS) ?? String(DEFAULT_WIDTH.bits);
    const threads = args.threads();
    const directory = args.text("out");
    const force = args.switches.has("force");
    const source = openCheckpoint(args.text("in"));
    const plan = planQuantize(source, WIDTHS.find((format) => String(format.bits) === bits)!);
    const dry = args.switches.has("dry-run");
    if (dry) checkTarget(plan, directory, force);
    const done = dry
      ? undefined
      : await withBar("quantize", plan.sourceBytes, (watch) => quantize(plan, directory, { threads, force, ...watch }));
    for (const name of done?.missing ?? []) {
      warn("quantize", `${source.directory} has no ${name}, so the new checkpoint has none`);
    }
    out.line({
      dry_run: dry || undefined,
      model: join(directory, MODEL_FILE),
      bytes: plan.bytes,
      source_bytes: plan.sourceBytes,
      tensors: plan.tensors.length,
      quantized: plan.quantized,
      kept: plan.tensors.length - plan.quantized,
      bits: plan.format.bits,
      block: plan.format.blockWeights,
      scale: "f16",
    });
    out.line({ ratio: new Fixed(plan.bytes / plan.sourceBytes, 3), digest: done?.digest });
    return 0;
  },
};

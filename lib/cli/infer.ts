import { greedy } from "../compare.ts";
import { loadTokenizer } from "../decoder/tokenizer.ts";
import { UsageError } from "../errors.ts";
import type { Activations } from "../kernels/operations.ts";
import { Pool } from "../kernels/pool.ts";
import { type Command, THREADS } from "./flags.ts";
import { loadModel, memory, openModel, PROMPT_FLAGS, promptOf } from "./model.ts";
import { Fixed } from "./output.ts";

/** The page that `mapped` counts in. */
const PAGE_BYTES = 4096;

const ACTIVATIONS = ["f32", "i16", "i8"] as const;

/** What a width is multiplied with by default: see bench/RESULTS.md for the measurement. */
const DEFAULT_ACTIVATIONS: Readonly<Record<string, Activations>> = { Q4B32: "i8", Q8B32: "i16" };

/** `rabbit infer` */
export const inferCommand: Command = {
  name: "infer",
  summary: "decode greedily with one checkpoint, and time it",
  positionals: [],
  flags: [
    { name: "model", value: "DIR|FILE", required: true, help: "the checkpoint, with config.json beside it" },
    ...PROMPT_FLAGS,
    { name: "steps", value: "N", help: "the most tokens to decode (default 32)" },
    {
      name: "activations",
      value: ACTIVATIONS.join("|"),
      help: "f32 is exact; i16 and i8 are faster (default i8 for four bits, i16 for eight, f32 for float checkpoints)",
    },
    { name: "ignore-eos", help: "do not stop at an end-of-text token" },
    THREADS,
  ],
  example: 'rabbit infer --model SmolLM2-135M-q8 --prompt "The capital of France is"',
  async run(args, out) {
    const steps = args.integer("steps", 1, Number.MAX_SAFE_INTEGER) ?? 32;
    const threads = args.threads();
    const model = openModel(args.text("model"));
    const { checkpoint, config } = model;
    const asked = args.choice("activations", ACTIVATIONS);
    if (asked !== undefined && asked !== "f32" && checkpoint.width === undefined) {
      throw new UsageError(`--activations ${asked} is for quantized checkpoints; a float one is multiplied in f32`);
    }
    const activations = asked ?? DEFAULT_ACTIVATIONS[checkpoint.width?.name ?? ""] ?? "f32";
    const prompt = await promptOf(args, model);
    const pool = new Pool({ threads, activations });
    try {
      const llama = loadModel(pool, model, prompt.length + steps);
      const stops = args.switches.has("ignore-eos") ? [] : config.endOfText;
      const start = performance.now();
      const tokens = [greedy(llama.feed(prompt))];
      const first = performance.now();
      while (tokens.length < steps && !stops.includes(tokens.at(-1)!)) {
        tokens.push(greedy(llama.feed(tokens.slice(-1))));
      }
      const end = performance.now();
      const sizes = checkpoint.files.map(({ bytes }) => bytes);
      out.group("pinned", { bytes: checkpoint.tensors.reduce((sum, { bytes }) => sum + bytes, 0) });
      out.group("mapped", {
        bytes: sizes.reduce((sum, bytes) => sum + Math.floor(bytes / PAGE_BYTES) * PAGE_BYTES, 0),
      });
      out.list("tokens", tokens);
      const tokenizer = await loadTokenizer(checkpoint.directory, "decode");
      if (tokenizer) out.group("text", { text: tokenizer.decode(tokens) });
      out.group("prefill", { tokens: prompt.length, ...rate(prompt.length, first - start) });
      out.group("decode", { tokens: tokens.length - 1, ...rate(tokens.length - 1, end - first), threads, activations });
      out.group("rss", { bytes: memory().now, peak: memory().peak });
      return 0;
    } finally {
      pool.close();
    }
  },
};

function rate(tokens: number, ms: number) {
  return { ms: new Fixed(ms, 1), tokens_per_s: new Fixed(tokens === 0 ? 0 : tokens / ms * 1000, 1) };
}

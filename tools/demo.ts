/**
 * `deno task demo`: runs the main commands on a built-in model. Each command is printed and run in a temporary
 * directory. RABBIT_BIN=path runs the executable instead of main.ts.
 *
 * @module
 */

import { WIDTHS } from "../lib/format/blocks.ts";

/** A command of rabbit, and the lines of its output to show (default: all). */
interface Step {
  readonly says: string;
  readonly args: readonly string[];
  readonly show?: RegExp;
  /** Whether the exit status 1, no, is a valid answer. */
  readonly asks?: boolean;
}

/** The lines of verify but those of single tensors. */
const SUMMARY = /^VERIFY (?!tensor=)/;

/** The lines of compare but the texts, which are meaningless for random weights. */
const FIGURES = /^COMPARE (?!text_)/;

/** The quantized checkpoints, narrowest first. */
const QUANTIZED = WIDTHS.toSorted((a, b) => a.bits - b.bits).map(({ bits, label }) => {
  return { bits: String(bits), label, model: `model-q${bits}` };
});

const STEPS: readonly Step[] = [
  { says: "A model with random weights, in bfloat16:", args: ["gen", "model"] },
  ...QUANTIZED.map(({ bits, label, model }): Step => ({
    says: `For ${label}, ${bits} bits a weight:`,
    args: ["quantize", "model", model, "--bits", bits],
  })),
  ...QUANTIZED.map(({ bits, model }): Step => ({
    says: `At ${bits} bits, check every block and derive it again from the source:`,
    args: ["verify", model, "--against", "model"],
    show: SUMMARY,
  })),
  ...QUANTIZED.toReversed().map(({ bits, model }): Step => ({
    says: `Do ${bits} bits keep the answer? (With random weights tiny differences decide.)`,
    args: ["compare", "model", model],
    show: FIGURES,
    asks: true,
  })),
  { says: "Exactly representable weights must decode the same before and after:", args: ["gate"] },
];

const binary = Deno.env.get("RABBIT_BIN");
const main = `${import.meta.dirname}/../main.ts`;
// --quiet suppresses Deno's messages about downloads.
const [program, prefix] = binary
  ? [Deno.realPathSync(binary), []]
  : [Deno.execPath(), ["run", "--quiet", "--frozen", "--allow-all", main]];

/** The command with which the user can run rabbit. */
const rabbit = binary ??
  (Deno.env.get("npm_command") === "exec" ? `npx -y deno@${Deno.version.deno}` : "deno") + " task -q rabbit";

/** Runs a step in `directory` and prints it. Returns whether it succeeded. */
function take({ says, args, show = /^/, asks = false }: Step, directory: string): boolean {
  console.log(`${says}\n$ rabbit ${args.join(" ")}`);
  const { code, stdout } = new Deno.Command(program, {
    args: [...prefix, ...args],
    cwd: directory,
    stderr: "inherit",
  }).outputSync();
  const lines = new TextDecoder().decode(stdout).trimEnd().split("\n");
  console.log(lines.filter((line) => show.test(line)).join("\n") + "\n");
  const fine = code === 0 || (asks && code === 1);
  if (!fine) console.error(`demo: that failed with exit status ${code}`);
  return fine;
}

const directory = Deno.makeTempDirSync({ prefix: "rabbit-demo-" });
try {
  if (STEPS.every((step) => take(step, directory))) {
    console.log(
      "Next, a model of your own: a directory with model.safetensors, config.json and the tokenizer's files.\n" +
        `$ ${rabbit} quantize MODEL MODEL-q8 --bits 8`,
    );
  } else Deno.exitCode = 1;
} finally {
  Deno.removeSync(directory, { recursive: true });
}

/**
 * `deno task demo`: what a user does, on a built-in model. Each command is printed, run in a temporary directory, and
 * must succeed or answer its question. RABBIT_BIN=path runs the executable instead of main.ts.
 *
 * @module
 */

import { WIDTHS } from "../lib/format/blocks.ts";

/** A command line of rabbit, and the lines of its output that are worth showing; all where that is absent. */
interface Step {
  readonly says: string;
  readonly args: readonly string[];
  readonly show?: RegExp;
  /** The command answers a question, and 1, no, is an answer. */
  readonly asks?: boolean;
}

/** The lines of verify that are about the checkpoint and not about one tensor. */
const SUMMARY = /^VERIFY (?!tensor=)/;

/** The lines of compare but for the texts, since random weights say nothing that can be read. */
const FIGURES = /^COMPARE (?!text_)/;

/** The widths and their checkpoints, narrowest first. */
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
    says: `At ${bits} bits, every block read, checked, and derived again from the source:`,
    args: ["verify", model, "--against", "model"],
    show: SUMMARY,
  })),
  ...QUANTIZED.toReversed().map(({ bits, model }): Step => ({
    says: `Do ${bits} bits keep the answer? (The answers of random weights turn on tiny margins.)`,
    args: ["compare", "model", model],
    show: FIGURES,
    asks: true,
  })),
  { says: "Weights that a width holds exactly must decode alike:", args: ["gate"] },
];

const binary = Deno.env.get("RABBIT_BIN");
const main = `${import.meta.dirname}/../main.ts`;
// Quiet is Deno, which would tell of every package that it downloads.
const [program, prefix] = binary
  ? [Deno.realPathSync(binary), []]
  : [Deno.execPath(), ["run", "--quiet", "--frozen", "--allow-all", main]];

/** How a user who ran this runs rabbit. */
const rabbit = binary ??
  (Deno.env.get("npm_command") === "exec" ? `npx -y deno@${Deno.version.deno}` : "deno") + " task -q rabbit";

/** Runs one step in `directory`, prints it, and says whether it succeeded. */
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

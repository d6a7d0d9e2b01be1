/**
 * `deno task demo`: what a user does, on a built-in model. Each command is printed, run in a temporary directory, and
 * must succeed or answer its question. RABBIT_BIN=path runs the executable instead of main.ts.
 *
 * @module
 */

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

const STEPS: readonly Step[] = [
  { says: "A model with random weights, in bfloat16:", args: ["gen", "--out", "model"] },
  { says: "For size, four bits a weight:", args: ["quantize", "--in", "model", "--out", "model-q4", "--bits", "4"] },
  { says: "For fidelity, eight:", args: ["quantize", "--in", "model", "--out", "model-q8", "--bits", "8"] },
  {
    says: "Every block read, checked, and derived again from the source:",
    args: ["verify", "model-q4", "--against", "model"],
    show: SUMMARY,
  },
  { says: "The same for eight bits:", args: ["verify", "model-q8", "--against", "model"], show: SUMMARY },
  {
    says: "Do eight bits keep the answer, and how far do the logits move?",
    args: ["compare", "model", "model-q8"],
    asks: true,
  },
  {
    says: "Do four? (The answers of random weights turn on tiny margins.)",
    args: ["compare", "model", "model-q4"],
    asks: true,
  },
  { says: "Weights that a width holds exactly must decode alike:", args: ["gate"] },
];

const binary = Deno.env.get("RABBIT_BIN");
const main = `${import.meta.dirname}/../main.ts`;
const [program, prefix] = binary ? [Deno.realPathSync(binary), []] : [Deno.execPath(), ["run", "--allow-all", main]];

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
  if (!STEPS.every((step) => take(step, directory))) Deno.exitCode = 1;
} finally {
  Deno.removeSync(directory, { recursive: true });
}

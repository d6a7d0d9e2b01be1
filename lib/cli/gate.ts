import { WIDTHS } from "../format/blocks.ts";
import { GATE_STEPS, prepareGate, runGate } from "../gate.ts";
import { Pool } from "../kernels/pool.ts";
import { type Command, THREADS } from "./flags.ts";
import { PUBLISHED_PROMPT } from "./model.ts";
import { Fixed } from "./output.ts";

/** `rabbit gate` */
export const gateCommand: Command = {
  name: "gate",
  summary: "check this machine: exact weights must decode alike before and after quantizing, at both widths",
  positionals: [],
  flags: [THREADS],
  verdict: "0 passed, 1 failed",
  example: "rabbit gate",
  async run(args, out) {
    const threads = args.threads();
    let pass = true;
    const pool = new Pool({ threads });
    try {
      for (const format of WIDTHS) {
        const directory = Deno.makeTempDirSync({ prefix: "rabbit-gate-" });
        try {
          await prepareGate(directory, format, threads);
          const { match, steps, prefill, pass: passed } = await runGate(directory, pool, PUBLISHED_PROMPT);
          pass &&= passed;
          out.item("list", {
            bits: format.bits,
            match,
            tokens: GATE_STEPS,
            max_diff: new Fixed(Math.max(steps.max, prefill.max), 6),
            pass: passed,
          });
        } finally {
          Deno.removeSync(directory, { recursive: true });
        }
      }
    } finally {
      pool.close();
    }
    out.verdict(pass ? "OK" : "FAIL");
    return pass ? 0 : 1;
  },
};

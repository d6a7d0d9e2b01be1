/**
 * `rabbit gate`: checks the kernels on the current machine at every width.
 *
 * @module
 */

import { WIDTHS } from "../format/blocks.ts";
import { GATE_STEPS, prepareGate, runGate } from "../dev/gate.ts";
import { Pool } from "../kernels/pool.ts";
import { nextTurn } from "../pace.ts";
import { command, THREADS } from "./arguments.ts";
import { PUBLISHED_PROMPT } from "./model.ts";
import { Fixed, interruptible, type Output } from "./output.ts";

/** `rabbit gate` */
export const gateCommand = command({
  name: "gate",
  group: "development",
  summary: "check this machine: exactly representable weights must decode the same before and after quantizing",
  positionals: [],
  flags: { threads: THREADS },
  verdict: "0 passed, 1 failed",
  example: "rabbit gate",
  async run({ values: { threads } }, out) {
    const pool = new Pool({ threads });
    try {
      const pass = await interruptible((signal) => passAll(pool, threads, signal, out));
      out.verdict(pass ? "OK" : "FAIL");
      return pass ? 0 : 1;
    } finally {
      pool.close();
    }
  },
});

/** Whether every width passes. @throws the reason of `signal` */
async function passAll(pool: Pool, threads: number, signal: AbortSignal, out: Output): Promise<boolean> {
  let pass = true;
  for (const format of WIDTHS) {
    const directory = Deno.makeTempDirSync({ prefix: "rabbit-gate-" });
    try {
      await prepareGate(directory, format, threads, signal);
      const { match, steps, prefill, pass: passed } = await runGate(directory, pool, PUBLISHED_PROMPT);
      await nextTurn();
      signal.throwIfAborted();
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
  return pass;
}

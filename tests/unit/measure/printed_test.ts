import { assertEquals } from "@std/assert";
import { printed, printedFigures } from "../../../lib/measure/printed.ts";

Deno.test("printedFigures has the digits of compare's lines, and leaves out errors that do not exist", () => {
  assertEquals(
    printedFigures({
      perplexity: { float: 23.34866, quant: "overflow", ratio: 1.00285749, ratio_error: 0.5 },
      kl: { mean: 0.0012164, error: undefined, median: 0, p999: 1, max: -1e-9 },
      same_top: { rate: 1 },
      prob: { rms: 0.25, mean: "undefined" },
    }),
    {
      perplexity: { float: "23.3487", quant: "overflow", ratio: "1.002857", ratio_error: "0.500000" },
      kl: { mean: "0.001216", median: "0.000000", p999: "1.000000", max: "-0.000000" },
      same_top: { rate: "1.000000" },
      prob: { rms: "0.250000", mean: "undefined" },
    },
  );
  assertEquals(printed(2.5, 0), "3");
});

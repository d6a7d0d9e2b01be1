import { assertEquals, assertThrows } from "@std/assert";
import { CheckpointError } from "../../../lib/errors.ts";
import { mergeWindows, type TextRun, windowLine, windowsOfPart } from "../../../lib/library/text_parts.ts";
import { Divergence, predictionFigures } from "../../../lib/measure/metrics.ts";
import { sumOfWindows } from "../../../lib/measure/perplexity.ts";
import { Random } from "../../support/random.ts";

const RUN: TextRun = {
  version: 1,
  float: "f".repeat(64),
  quant: "a".repeat(64),
  file: "text.txt",
  ids: "1".repeat(64),
  tokens: 70,
  length: 10,
  stride: 10,
  windows: 7,
};

/** Measurements of windows, with numbers of all magnitudes. */
function windows(): Divergence[] {
  const random = new Random(3);
  return Array.from({ length: RUN.windows }, (_, n) => {
    const numbers = () => Array.from({ length: 9 - n % 2 }, () => random.gaussian() * 10 ** (random.below(40) - 20));
    const window = new Divergence();
    window.append({ float: numbers(), quant: numbers(), kl: numbers(), shift: numbers(), same: random.below(8) });
    return window;
  });
}

const MEASURED = windows();
const LINES = MEASURED.map((window, n) => windowLine(RUN, n, window));

/** The files of `count` parts. */
function files(count: number): [string, string][] {
  return Array.from({ length: count }, (_, n) => {
    const numbers = windowsOfPart({ ids: [], window: 10, windows: Array(7).fill(undefined) }, { number: n + 1, count });
    return [`part${n}`, numbers.map((window) => LINES[window] + "\n").join("")];
  });
}

Deno.test("mergeWindows gives the measurement of one run, to the last bit, in any order and with lines twice", () => {
  const expected = predictionFigures(sumOfWindows(MEASURED));
  for (const count of [1, 2, 3, 4, 7, 12]) {
    const parts = files(count);
    for (const given of [parts, parts.toReversed(), [...parts, ...parts]]) {
      const { run, measured } = mergeWindows(given);
      assertEquals([run, predictionFigures(measured)], [RUN, expected]);
    }
  }
});

Deno.test("windowsOfPart deals the windows out in turn", () => {
  const text = { ids: [], window: 2, windows: Array(5).fill(undefined) };
  const of = (count: number) => Array.from({ length: count }, (_, n) => windowsOfPart(text, { number: n + 1, count }));
  assertEquals(of(1), [[0, 1, 2, 3, 4]]);
  assertEquals(of(2), [[0, 2, 4], [1, 3]]);
  assertEquals(of(7), [[0], [1], [2], [3], [4], [], []]);
});

Deno.test("mergeWindows refuses lines that are missing, broken, of another measurement, or different", () => {
  const refused = (message: string, ...texts: string[]) => {
    const given = texts.map((text, n): [string, string] => [`part${n}`, text]);
    const error = assertThrows(() => mergeWindows(given), CheckpointError);
    assertEquals(error.message, message);
  };
  const all = LINES.join("\n");
  const change = (fields: Record<string, unknown>) => JSON.stringify({ ...JSON.parse(LINES[2]), ...fields });
  refused("part1: no lines; is it the output of a part?", "", "");
  refused(
    "part0: window 3 of 0 to 6 is in none of the files; measure the missing part, and merge all",
    [...LINES.slice(0, 3), ...LINES.slice(4)].join("\n"),
  );
  refused(
    "part1: line 2: not a whole line of JSON; was the part interrupted? Measure it again",
    all,
    `${LINES[1]}\n${LINES[3].slice(0, 200)}`,
  );
  refused("part0: line 1: expected an object of JSON", "[1]");
  for (
    const [field, value, what] of [
      ["float", "0", "float model"],
      ["quant", "0", "quantized model"],
      ["ids", "0", "text or tokenizer"],
      ["tokens", 71, "text or tokenizer"],
      ["length", 9, "window"],
      ["stride", 9, "stride"],
      ["windows", 8, "number of windows"],
      ["version", 2, "version of the measurement"],
    ]
  ) {
    const problem = `another ${what} than in part0; measure the parts of one text again`;
    refused(`part1: line 1: ${problem}`, all, change({ [field as string]: value }));
  }
  const { kl } = JSON.parse(LINES[2]);
  refused(
    "part1: line 1: window 2 is there already, with other figures",
    all,
    change({ kl: [kl[0] * (1 + 2 ** -50), ...kl.slice(1)] }),
  );
  refused("part0: line 1: the arrays have different lengths, or none", change({ kl: [1] }));
  const place = "part0: line 1:";
  const line = "is it a line of a part?";
  refused(`${place} "window": expected a whole number; ${line}`, change({ window: 7 }));
  refused(`${place} "same": expected a whole number; ${line}`, change({ same: 100 }));
  refused(`${place} "kl": expected an array of numbers; ${line}`, change({ kl: [null] }));
  refused(`${place} "float": expected a text; ${line}`, change({ float: 1 }));
  refused(`${place} "version": expected a whole number; ${line}`, "{}");
  // The path of the text may differ: the parts ran on other machines.
  assertEquals(mergeWindows([["a", all], ["b", change({ file: "/else/where" })]]).run.file, "text.txt");
});

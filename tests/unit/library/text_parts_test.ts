import { assertEquals, assertThrows } from "@std/assert";
import { CheckpointError } from "../../../lib/errors.ts";
import { mergeWindows, type TextRun, windowLine, windowsOfPart } from "../../../lib/library/text_parts.ts";
import { Divergence, predictionFigures } from "../../../lib/measure/metrics.ts";
import { sumOfWindows } from "../../../lib/measure/perplexity.ts";
import { Random } from "../../support/random.ts";

const RUN: TextRun = {
  version: 2,
  float: "f".repeat(64),
  quant: "a".repeat(64),
  texts: [
    { file: "text.txt", tokens: 40, windows: 4, ids: "1".repeat(64) },
    { file: "other.txt", tokens: 30, windows: 3, ids: "2".repeat(64) },
  ],
  length: 10,
  stride: 10,
};

/** Measurements of windows, with numbers of all magnitudes. */
function windows(): Divergence[] {
  const random = new Random(3);
  return Array.from({ length: 7 }, (_, n) => {
    const array = <T>(value: () => T) => Array.from({ length: 9 - n % 2 }, value);
    const numbers = () => array(() => random.gaussian() * 10 ** (random.below(40) - 20));
    const window = new Divergence();
    const same = array(() => random.below(2));
    window.append({ float: numbers(), quant: numbers(), kl: numbers(), shift: numbers(), same });
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
  const expected = [MEASURED, MEASURED.slice(0, 4), MEASURED.slice(4)].map((windows) => {
    return predictionFigures(sumOfWindows(windows));
  });
  for (const count of [1, 2, 3, 4, 7, 12]) {
    const parts = files(count);
    for (const given of [parts, parts.toReversed(), [...parts, ...parts]]) {
      const { run, measured, texts } = mergeWindows(given);
      assertEquals([run, [measured, ...texts].map(predictionFigures)], [RUN, expected]);
      assertEquals(measured.observations, sumOfWindows(MEASURED).observations);
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
  const changeText = (fields: Record<string, unknown>) => ({ texts: [RUN.texts[0], { ...RUN.texts[1], ...fields }] });
  refused("part1: no lines; is it the output of a part?", "", "");
  refused(
    "part0: window 3 of 0 to 6 is in none of the files; measure the missing part, and merge all",
    [...LINES.slice(0, 3), ...LINES.slice(4)].join("\n"),
  );
  refused(
    `part0: window 0 of 0 to ${2 ** 40 + 3} is in none of the files; measure the missing part, and merge all`,
    change(changeText({ windows: 2 ** 40 })),
  );
  refused(
    "part1: line 2: not a whole line of JSON; was the part interrupted? Measure it again",
    all,
    `${LINES[1]}\n${LINES[3].slice(0, 200)}`,
  );
  refused("part0: line 1: expected an object of JSON", "[1]");
  for (
    const [fields, what] of [
      [{ float: "0" }, "float model"],
      [{ quant: "0" }, "quantized model"],
      [changeText({ ids: "0" }), "text or tokenizer"],
      [changeText({ tokens: 31 }), "text or tokenizer"],
      [{ texts: RUN.texts.toReversed() }, "text or tokenizer"],
      [{ texts: RUN.texts.slice(0, 1) }, "number of texts"],
      [{ length: 9 }, "window"],
      [{ stride: 9 }, "stride"],
      [changeText({ windows: 4 }), "number of windows"],
      [{ version: 1 }, "version of the measurement"],
    ] as const
  ) {
    const problem = `another ${what} than in part0; measure the parts of one text again`;
    refused(`part1: line 1: ${problem}`, all, change(fields));
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
  refused(`${place} "same": expected an array of 0 and 1; ${line}`, change({ same: 100 }));
  refused(`${place} "same": expected an array of 0 and 1; ${line}`, change({ same: [2] }));
  refused(`${place} "texts": expected an array of objects; ${line}`, change({ texts: [1] }));
  refused(`${place} "tokens": expected a whole number; ${line}`, change(changeText({ tokens: -1 })));
  refused(`${place} expected an object of JSON`, change({ texts: [null] }));
  refused(`${place} "kl": expected an array of numbers; ${line}`, change({ kl: [null] }));
  refused(`${place} "float": expected a text; ${line}`, change({ float: 1 }));
  refused(`${place} "version": expected a whole number; ${line}`, "{}");
  // The path of the text may differ: the parts ran on other machines.
  assertEquals(mergeWindows([["a", all], ["b", change(changeText({ file: "/else/where" }))]]).run, RUN);
});

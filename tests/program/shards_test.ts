/**
 * Checkpoints in shards: read by every command, written whole or in parts, and merged.
 */

import { assert, assertEquals } from "@std/assert";
import { temporary, tree, write } from "../support/files.ts";
import { TINY, WEIGHTS } from "../support/fixtures.ts";
import { rabbit } from "../support/program.ts";
import { entriesOf, type Entry, quantizedFile } from "../support/safetensors.ts";

const INDEX = "model.safetensors.index.json";
const IDS = ["--ids", "1 2 3", "--steps", "4"];

const cwd = temporary();

/** Runs a command that must succeed, even if its answer is no. */
async function lines(...args: string[]): Promise<string[]> {
  const { code, out, err } = await rabbit(cwd, [...args, "--quiet"]);
  assertEquals([code > 1, err], [false, ""], args.join(" "));
  return out.trimEnd().split("\n");
}

/** Divides a quantized file into shards, each with the next `count` tensors. */
function divide(bits: 4 | 8, from: string, to: string, count: number): void {
  const groups: Entry[][] = [];
  for (const entry of entriesOf(Deno.readFileSync(`${cwd}/${from}/${WEIGHTS}`))) {
    if (groups.length === 0 || groups.at(-1)!.length === count) groups.push([]);
    groups.at(-1)!.push(entry);
  }
  const name = (n: number) =>
    `model-${String(n + 1).padStart(5, "0")}-of-${String(groups.length).padStart(5, "0")}.safetensors`;
  const weight_map = Object.fromEntries(
    groups.flatMap((entries, n) => entries.map((entry) => [entry.name, name(n)])),
  );
  write(`${cwd}/${to}`, {
    "config.json": Deno.readFileSync(`${cwd}/${from}/config.json`),
    [INDEX]: JSON.stringify({ metadata: {}, weight_map }),
    ...Object.fromEntries(groups.map((entries, n) => [name(n), quantizedFile(bits, entries)])),
  });
}

for (const bits of [4, 8] as const) {
  Deno.test(`every command reads a checkpoint of ${bits} bits in shards as it reads one file`, async () => {
    const [one, shards] = [`q${bits}`, `q${bits}-shards`];
    await lines("quantize", TINY, one, "--bits", String(bits));
    divide(bits, one, shards, 3);
    assertEquals(tree(`${cwd}/${shards}`).length, 2 + 7);

    /** The lines of a command without sizes, times and paths, which differ. */
    const same = async (keep: RegExp, ...args: string[]) => {
      const of = async (model: string) => {
        const found = await lines(...args.map((arg) => arg.replace("MODEL", model)));
        return found.filter((line) => keep.test(line)).map((line) =>
          line.replace(/ (offset|file|path|bytes)=\S+/g, "")
        );
      };
      const expected = await of(one);
      assert(expected.length > 0, args.join(" "));
      assertEquals(await of(shards), expected);
    };
    await same(/tensor=/, "inspect", "MODEL");
    await same(/OK|tensor=/, "verify", "MODEL", "--against", TINY);
    await same(/tokens|logits|prefill|OK|DIFFER/, "compare", TINY, "MODEL", ...IDS);
    await same(/INFER tokens/, "infer", "MODEL", ...IDS);
    await same(/tokens_float/, "report", TINY, "MODEL", ...IDS, "--out", "MODEL.html");
    await same(/digest/, "export", "MODEL", "MODEL.gguf");
  });
}

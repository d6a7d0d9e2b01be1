/**
 * Checkpoints in shards: read by every command, written whole or in parts, and merged.
 */

import { assert, assertEquals } from "@std/assert";
import { sha256, temporary, tree, write } from "../support/files.ts";
import { fixture, TINY, WEIGHTS } from "../support/fixtures.ts";
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

Deno.test("quantize --max-shard-size divides as huggingface_hub does, and the digest is that of one file", async () => {
  type Case = { bits: number; limit: string; metadata: unknown; weight_map: Record<string, string> };
  const one = fixture<Record<string, { sha256: string }>>("tiny/expected.json");
  for (const [n, { bits, limit, metadata, weight_map }] of fixture<Case[]>("shards.json").entries()) {
    const out = `split${n}`;
    const files = [...new Set(Object.values(weight_map))];
    const printed = await lines("quantize", TINY, out, "--bits", String(bits), "--max-shard-size", limit);
    assertEquals(printed[1].split("digest=")[1], one[`q${bits}`].sha256);
    if (files.length === 1) {
      assertEquals(tree(`${cwd}/${out}`), ["config.json", WEIGHTS]);
      assertEquals(await sha256(`${cwd}/${out}/${WEIGHTS}`), one[`q${bits}`].sha256);
      continue;
    }
    assertEquals(tree(`${cwd}/${out}`), ["config.json", ...files, INDEX].sort());
    assertEquals(JSON.parse(Deno.readTextFileSync(`${cwd}/${out}/${INDEX}`)), { metadata, weight_map });
    // Each shard is the file of its tensors.
    const whole = entriesOf(Deno.readFileSync(`${cwd}/q${bits}/${WEIGHTS}`));
    for (const file of files) {
      const entries = whole.filter(({ name }) => weight_map[name] === file);
      assertEquals(Deno.readFileSync(`${cwd}/${out}/${file}`), quantizedFile(bits as 4 | 8, entries), file);
    }
    const verified = await lines("verify", out, "--against", TINY);
    assertEquals(verified.filter((line) => line.startsWith("VERIFY file=")).length, files.length);
    assert(verified.includes(`VERIFY digest=${one[`q${bits}`].sha256}`));
  }
});

Deno.test("a new checkpoint never stands beside shards or weights of another", async () => {
  const quantize = (...args: string[]) => rabbit(cwd, ["quantize", TINY, "again", "--quiet", ...args]);
  const shards = (size: string) => ["--max-shard-size", size];
  assertEquals((await quantize(...shards("15KB"))).code, 0);
  const before = tree(`${cwd}/again`);
  const refused = async (message: string, ...args: string[]) => {
    const { code, out, err } = await quantize(...args);
    assertEquals([code, out, err], [2, "", `rabbit: quantize: ${message}\n`]);
    assertEquals(tree(`${cwd}/again`), before);
  };
  const first = "again/model-00001-of-00005.safetensors";
  await refused(`${first} exists already; --force replaces it`, ...shards("15KB"));
  assertEquals((await quantize(...shards("15KB"), "--force")).code, 0);
  const stale = "exists, and the new checkpoint has no such file; remove it first or choose another directory";
  await refused(`${first} ${stale}`, ...shards("10KB"), "--force");
  await refused(
    `again holds a sharded checkpoint (${INDEX}); choose another directory or remove it first`,
    "--force",
  );
  for (const name of before.filter((name) => /model/.test(name))) Deno.removeSync(`${cwd}/again/${name}`);
  assertEquals((await quantize("--force")).code, 0);
  before.splice(0, before.length, "config.json", WEIGHTS);
  await refused(`again/${WEIGHTS} ${stale}`, ...shards("15KB"), "--force");
});

Deno.test("--max-shard-size takes a number of bytes, with a unit or without", async () => {
  for (const size of ["0", "-1", "5", "1e3", "5XB", "GB", "5 GB", "9000000000TB", "0.4B"]) {
    const { code, err } = await rabbit(cwd, ["quantize", TINY, "sizes", "--dry-run", "--max-shard-size", size]);
    const found = `--max-shard-size takes a size such as 500MB, 5GB or 4GiB, found ${JSON.stringify(size)}`;
    if (size === "5") assertEquals(code, 0);
    else assertEquals([code, err], [2, `rabbit: quantize: ${found}\n`]);
  }
  const files = async (size: string) => {
    const [line] = await lines("quantize", TINY, "sizes", "--dry-run", "--max-shard-size", size);
    return /files=(\d+)/.exec(line)?.[1];
  };
  assertEquals(await Promise.all(["15000", "15KB", "15kb", "0.015MB"].map(files)), ["5", "5", "5", "5"]);
  assertEquals(await Promise.all(["12KiB", "12288B", "1TB", "1TiB"].map(files)), ["5", "5", undefined, undefined]);
});

Deno.test("quantize --shard writes parts, verify --shard checks them, and merge makes the checkpoint of one run", async () => {
  const { q4 } = fixture<Record<string, { sha256: string; bytes: number }>>("tiny/expected.json");
  const numbers = ["2/3", "3/3", "1/3"];
  for (const part of numbers) {
    const [first, second] = await lines("quantize", TINY, "parts", "--shard", part);
    const name = `model-0000${part[0]}-of-00003.safetensors`;
    assert(first.startsWith(`QUANT model=parts/${name} shard=${part} bytes=`), first);
    assert(second.endsWith(` digest=${await sha256(`${cwd}/parts/${name}`)}`), second);
    const [again] = await lines("quantize", TINY, "parts", "--shard", part);
    assertEquals(again, first.replace(`shard=${part}`, `shard=${part} skipped=true`));
  }
  const merged = await lines("merge", "parts");
  const bytes = tree(`${cwd}/parts`).filter((name) => name.endsWith(".safetensors")).reduce((sum, name) => {
    return sum + Deno.statSync(`${cwd}/parts/${name}`).size;
  }, 0);
  assertEquals(merged, [
    `MERGE model=parts/${INDEX} files=3 bytes=${bytes} parts=3 tensors=20 bits=4`,
    `MERGE digest=${q4.sha256}`,
  ]);
  for (const part of numbers) {
    const checked = await lines("verify", "parts", "--shard", part, "--against", TINY);
    assertEquals(checked.at(-1), "VERIFY OK");
    assert(checked[0].startsWith(`VERIFY model=parts shard=${part} `), checked[0]);
    assert(!checked.some((line) => line.includes("digest=")));
  }
  assertEquals(await lines("merge", "parts", "--single"), [
    `MERGE model=parts/${WEIGHTS} bytes=${q4.bytes} parts=3 tensors=20 bits=4`,
    `MERGE digest=${q4.sha256}`,
  ]);
  assertEquals(await sha256(`${cwd}/parts/${WEIGHTS}`), q4.sha256);
});

Deno.test("merge and --shard are refused in one line that says what to do", async () => {
  const refused = async (message: string, ...args: string[]) => {
    assertEquals(await rabbit(cwd, args), { code: 2, out: "", err: `rabbit: ${args[0]}: ${message}\n` });
  };
  for (const part of ["0/2", "3/2", "1", "1/0", "a/b", "1/100000", "-1/2", "1/2/3"]) {
    const wanted = "--shard takes I/N: the number of a part, from 1 on, and of all parts, at most 99999";
    await refused(`${wanted}, found ${JSON.stringify(part)}`, "quantize", TINY, "bad", "--shard", part);
  }
  await refused(
    "--shard and --max-shard-size exclude each other: the parts become the shards",
    ...["quantize", TINY, "bad", "--shard", "1/2", "--max-shard-size", "1GB"],
  );
  await refused("cannot open nowhere: no such file or directory", "merge", "nowhere");
  await lines("quantize", TINY, "bad", "--shard", "1/2");
  await lines("quantize", TINY, "full");
  for (const more of [[], ["--dry-run"]]) {
    const other = "remove it or choose another directory";
    await refused(
      `bad/model-00001-of-00002.part.json: the part there is one of 2 parts, not 3; ${other}`,
      ...["quantize", TINY, "bad", "--shard", "2/3", ...more],
    );
    await refused(
      `full contains a checkpoint (${WEIGHTS}); choose another directory or remove it first`,
      ...["quantize", TINY, "full", "--shard", "2/3", ...more],
    );
  }
  await refused("bad: part 2 of 2 is missing or not finished; write it, and merge again", "merge", "bad");
  await refused(
    `bad: has shards such as "model-00001-of-00002.safetensors", but no ${INDEX} that lists them; fetch that as well`,
    "inspect",
    "bad",
  );
});

Deno.test("a checkpoint by the signed rule may be in shards; parts are made by the format's own rule", async () => {
  const digest = (found: string[]) => found.at(-1)!.split("digest=")[1];
  const one = digest(await lines("quantize", TINY, "signed", "--rule", "signed"));
  const shards = ["--max-shard-size", "15KB"];
  assertEquals(digest(await lines("quantize", TINY, "signed-shards", "--rule", "signed", ...shards)), one);
  const verified = await lines("verify", "signed-shards", "--against", TINY);
  assert(verified[0].endsWith(" method=signed"), verified[0]);
  assertEquals([verified.at(-1), verified.includes(`VERIFY digest=${one}`)], ["VERIFY OK", true]);
  const refused = async (message: string, ...args: string[]) => {
    const ran = await rabbit(cwd, ["quantize", TINY, "none", ...args]);
    assertEquals(ran, { code: 2, out: "", err: `rabbit: quantize: ${message}\n` });
  };
  const own = "parts are made by the format's own rule";
  await refused(`--shard and --rule exclude each other: ${own}`, "--shard", "1/2", "--rule", "signed");
  await refused(`--shard and --calibrate exclude each other: ${own}`, "--shard", "1/2", "--calibrate", "self");
  await refused(
    "--calibrate and --max-shard-size exclude each other: a calibrated checkpoint is one file",
    ...["--calibrate", "self", ...shards],
  );
});

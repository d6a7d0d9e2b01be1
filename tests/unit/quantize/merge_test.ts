import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { CheckpointError, Refusal, SystemError } from "../../../lib/errors.ts";
import { Q4B32, Q8B32, WIDTHS } from "../../../lib/format/blocks.ts";
import { openCheckpoint } from "../../../lib/format/checkpoint.ts";
import { merge, planMerge } from "../../../lib/quantize/merge.ts";
import { planQuantize, type QuantizeOptions } from "../../../lib/quantize/quantize.ts";
import { verify, verifyAgainst } from "../../../lib/quantize/verify.ts";
import { quantizePart } from "../../../lib/quantize/write_part.ts";
import { inTemporary, sha256, tree, write } from "../../support/files.ts";
import { fixture, TINY, WEIGHTS } from "../../support/fixtures.ts";
import { Random } from "../../support/random.ts";
import { type Entry, safetensors } from "../../support/safetensors.ts";

const INDEX = "model.safetensors.index.json";
const EXPECTED = fixture<Record<string, { sha256: string }>>("tiny/expected.json");

/** Quantizes parts of the tiny model, or of another source, in an order that is not theirs. */
async function parts(
  directory: string,
  count: number,
  { source = TINY, width = Q4B32, numbers = Array.from({ length: count }, (_, n) => count - n), ...options }:
    & { source?: string; width?: typeof Q4B32; numbers?: number[] }
    & QuantizeOptions = {},
): Promise<boolean[]> {
  const skipped: boolean[] = [];
  for (const number of numbers) {
    const done = await quantizePart(planQuantize(source, width), directory, { number, count }, {
      threads: 1,
      ...options,
    });
    assertEquals(done.digest, await sha256(done.model));
    skipped.push(done.skipped);
  }
  return skipped;
}

/** Names and digests of the files of a directory. */
async function contents(directory: string): Promise<[string, string][]> {
  return await Promise.all(
    tree(directory).map(async (name): Promise<[string, string]> => {
      return [name, await sha256(`${directory}/${name}`)];
    }),
  );
}

function copy(from: string, to: string): void {
  Deno.mkdirSync(to, { recursive: true });
  for (const name of tree(from)) Deno.copyFileSync(`${from}/${name}`, `${to}/${name}`);
}

/** The name of a file of part `number`. */
function part(number: number, count: number, end = "safetensors"): string {
  return `model-0000${number}-of-0000${count}.${end}`;
}

/** A source whose bfloat16 weights follow from a seed; `last` is the pattern of the last one. */
function writeSource(directory: string, seed: number, last = 0): void {
  const random = new Random(seed);
  const matrix = (name: string, rows: number): Entry => {
    const weights = Uint16Array.from(
      { length: rows * 64 },
      () => 0x3c00 + random.below(512) + 0x8000 * random.below(2),
    );
    return { name, dtype: "BF16", shape: [rows, 64], bytes: new Uint8Array(weights.buffer) };
  };
  const tensors = [matrix("a", 50), matrix("b", 20), matrix("c", 20)];
  if (last > 0) new DataView(tensors[2].bytes.buffer).setUint16(20 * 64 * 2 - 2, last, true);
  write(directory, { "config.json": "{}", [WEIGHTS]: safetensors(tensors) });
}

for (const width of WIDTHS) {
  for (const count of [1, 2, 4, 7, 60]) {
    Deno.test(`${count} parts of ${width.name} merge into the checkpoint of one run, in shards and in one file`, () =>
      inTemporary(async (directory) => {
        const { sha256: expected } = EXPECTED[width.name === "Q4B32" ? "q4" : "q8"];
        const [out, single] = [`${directory}/out`, `${directory}/single`];
        await parts(out, count, { width, threads: 1 + count % 3 });
        copy(out, single);

        const merged = await merge(planMerge(out));
        assertEquals(merged.digest, expected);
        const checkpoint = openCheckpoint(out);
        assertEquals((await verify(checkpoint)).digest, expected);
        const against = await verifyAgainst(checkpoint, TINY);
        assertEquals(against.tensors.filter(({ equal }) => !equal), []);

        assertEquals(await merge(planMerge(single, true)), { model: `${single}/${WEIGHTS}`, digest: expected });
        assertEquals(tree(single), ["config.json", WEIGHTS]);
        assertEquals(await sha256(`${single}/${WEIGHTS}`), expected);
      }));
  }
}

Deno.test("whole parts become the shards as they are; parts that share a matrix are joined", () =>
  inTemporary(async (directory) => {
    await parts(directory, 4);
    const before = await contents(directory);
    await merge(planMerge(directory));
    const { weight_map } = JSON.parse(Deno.readTextFileSync(`${directory}/${INDEX}`));
    assertEquals([...new Set(Object.values(weight_map))], [1, 2, 3, 4].map((number) => part(number, 4)));
    assertEquals((await contents(directory)).filter(([name]) => name !== INDEX), before);
    // Again, and then into one file.
    const index = await contents(directory);
    await merge(planMerge(directory));
    assertEquals(await contents(directory), index);
    await merge(planMerge(directory, true));
    assertEquals(tree(directory), ["config.json", WEIGHTS]);

    writeSource(`${directory}/in`, 1);
    await parts(`${directory}/out`, 3, { source: `${directory}/in` });
    const plan = planMerge(`${directory}/out`);
    assertEquals([plan.inPlace, plan.files.map(({ parts }) => parts)], [false, [[0, 1], [2]]]);
    await merge(plan);
    assertEquals(tree(`${directory}/out`), ["config.json", part(1, 2), part(2, 2), INDEX]);
  }));

Deno.test("a part that is run again is skipped if it is finished, and else written again to the same bytes", () =>
  inTemporary(async (directory) => {
    await parts(directory, 4);
    const before = await contents(directory);
    assertEquals(await parts(directory, 4), [true, true, true, true]);
    const [file, record] = [part(2, 4), part(2, 4, "part.json")].map((name) => `${directory}/${name}`);
    const damage: [string, () => void][] = [
      ["killed before the record", () => Deno.removeSync(record)],
      ["the part is lost", () => Deno.removeSync(file)],
      ["truncated", () => Deno.truncateSync(file, 100)],
      ["a byte changed", () => {
        const bytes = Deno.readFileSync(file);
        bytes[bytes.length - 3] ^= 1;
        Deno.writeFileSync(file, bytes);
      }],
    ];
    for (const [what, act] of damage) {
      act();
      assertEquals(await parts(directory, 4, { numbers: [1, 2, 3, 4] }), [true, false, true, true], what);
      assertEquals(await contents(directory), before, what);
    }
    await merge(planMerge(directory));
    assertEquals(await parts(directory, 4), [true, true, true, true], "after the merge");
  }));

Deno.test("the same part twice at the same time ends in the same files", () =>
  inTemporary(async (directory) => {
    await parts(`${directory}/one`, 2);
    const twice = [1, 2, 2, 1, 1].map((number) => parts(`${directory}/out`, 2, { numbers: [number] }));
    await Promise.all(twice);
    assertEquals(await contents(`${directory}/out`), await contents(`${directory}/one`));
  }));

/** Asserts that a merge is refused with a message, and that nothing changes. */
async function refused(directory: string, message: string, single = false): Promise<void> {
  const before = await contents(directory);
  const error = await assertRejects(async () => await merge(planMerge(directory, single)));
  assertEquals((error as Error).message.replaceAll(directory, "OUT"), message);
  assertEquals(await contents(directory), before);
}

Deno.test("merge refuses parts that are missing, changed, or of another checkpoint", () =>
  inTemporary(async (directory) => {
    const base = `${directory}/base`;
    await parts(base, 4);
    const [two, record] = [part(2, 4), part(2, 4, "part.json")];
    /** A directory of the parts in which something is changed. */
    const changed = (act: (path: string) => void) => {
      const out = Deno.makeTempDirSync({ dir: directory });
      copy(base, out);
      act(out);
      return out;
    };
    const edit = (fields: Record<string, unknown>) =>
      changed((out) => {
        const json = JSON.parse(Deno.readTextFileSync(`${out}/${record}`));
        Deno.writeTextFileSync(`${out}/${record}`, JSON.stringify({ ...json, ...fields }));
      });
    const missing = "OUT: part 2 of 4 is missing or not finished; write it, and merge again";
    await refused(changed((out) => Deno.removeSync(`${out}/${record}`)), missing);
    await refused(
      changed((out) => Deno.removeSync(`${out}/${two}`)),
      `OUT: part 2 of 4 is missing (${two}); write it again`,
    );
    await refused(
      changed((out) => Deno.removeSync(`${out}/${part(4, 4, "part.json")}`)),
      missing.replace("part 2", "part 4"),
    );
    const again = "the part was changed, write it again";
    const { bytes, sha256: digest } = JSON.parse(Deno.readTextFileSync(`${base}/${record}`));
    await refused(
      changed((out) => Deno.writeFileSync(`${out}/${two}`, new Uint8Array(2), { append: true })),
      `OUT/${two}: data_offsets: the tensors cover ${
        bytes - header(`${base}/${two}`)
      } bytes of data, but the file has ${bytes - header(`${base}/${two}`) + 2}`,
    );
    const flipped = changed((out) => {
      const all = Deno.readFileSync(`${out}/${two}`);
      all[all.length - 1] ^= 1;
      Deno.writeFileSync(`${out}/${two}`, all);
    });
    const found = await sha256(`${flipped}/${two}`);
    const problem = `OUT/${two}: SHA-256 ${found}, but its record says ${digest}; ${again}`;
    await refused(flipped, problem);
    await refused(flipped, problem, true);
    await refused(
      edit({ bytes: bytes + 1 }),
      `OUT/${two}: ${bytes} bytes, but its record says ${bytes + 1} bytes; ${again}`,
    );

    const remove = "as part 1 of 4 is; remove it";
    const anew = "Remove it, and write the part again";
    await refused(
      changed((out) => Deno.writeTextFileSync(`${out}/${record}`, "{")),
      `OUT/${record}: not valid JSON: expected a key, found the end in line 1, column 2. ${anew}`,
    );
    await refused(edit({ version: 2 }), `OUT/${record}: the part there is of version 2 of the parts, not 1, ${remove}`);
    await refused(
      edit({ source: "0".repeat(64) }),
      `OUT/${record}: the part there was made from another source, ${remove}`,
    );
    await refused(
      edit({ format: "rabbit-q8b32" }),
      `OUT/${record}: the part there has the format "rabbit-q8b32", not "rabbit-q4b32", ${remove}`,
    );
    await refused(
      edit({ parts: 5 }),
      `OUT/${record}: is the record of part 2 of 5; was it renamed? ${anew}`,
    );
    for (
      const [field, value, wanted] of [
        ["part", 5, "a number of 1 to 4"],
        ["part", "2", "a number of 1 to 4"],
        ["parts", 1e6, "the number of parts"],
        ["bytes", -1, "a number of bytes"],
        ["sha256", "x", "64 hexadecimal digits"],
        ["source", null, "64 hexadecimal digits"],
        ["format", "q4", "a width's declaration"],
        ["version", undefined, "a version"],
      ]
    ) {
      await refused(
        edit({ [field as string]: value }),
        `OUT/${record}: ${field}: expected ${wanted}. ${anew}`,
      );
    }

    // Parts of other runs among them.
    const foreign = changed(() => {});
    await parts(`${directory}/seven`, 7);
    Deno.copyFileSync(`${directory}/seven/${part(5, 7, "part.json")}`, `${foreign}/${part(5, 7, "part.json")}`);
    await refused(foreign, `OUT/${part(5, 7, "part.json")}: the part there is one of 7 parts, not 4, ${remove}`);
    await parts(`${directory}/wide`, 4, { width: Q8B32 });
    const swapped = changed((out) => Deno.copyFileSync(`${directory}/wide/${two}`, `${out}/${two}`));
    await refused(
      swapped,
      `OUT/${two}: __metadata__ "format": declares Q8B32, but OUT/${part(1, 4)} declares Q4B32`,
    );

    await refused(
      `${directory}/base`.replace("base", "empty").replace(/.*/, (path) => {
        Deno.mkdirSync(path);
        return path;
      }),
      "OUT: no parts of a checkpoint in this directory",
    );
    await refused(
      changed((out) => write(out, { [WEIGHTS]: "x" })),
      `OUT/${WEIGHTS} exists, beside the parts of a checkpoint; remove it first`,
    );
    await refused(changed((out) => write(out, { [WEIGHTS]: "x" })), `OUT/${WEIGHTS} exists already`, true);
    const stray = (out: string) => Deno.copyFileSync(`${directory}/seven/${part(5, 7)}`, `${out}/${part(5, 7)}`);
    for (const single of [false, true]) {
      await refused(
        changed(stray),
        `OUT/${part(5, 7)} exists, beside the parts of a checkpoint; remove it first`,
        single,
      );
    }
    await refused(changed((out) => write(out, { [INDEX]: "x" })), `OUT/${INDEX} exists already`);
    for (const single of [false, true]) {
      await refused(
        changed((out) => write(out, { "quantization.json": "{}" })),
        "OUT/quantization.json exists, and the new checkpoint has no such file; remove it first or choose another directory",
        single,
      );
    }
  }));

/** Bytes of the length field and header of a file. */
function header(path: string): number {
  return 8 + Number(new DataView(Deno.readFileSync(path).buffer).getBigUint64(0, true));
}

Deno.test("quantizePart refuses a directory with parts of another source, width or number, or with a checkpoint", () =>
  inTemporary(async (directory) => {
    for (const seed of [1, 2]) writeSource(`${directory}/in${seed}`, seed);
    const [source, other, out] = ["in1", "in2", "out"].map((name) => `${directory}/${name}`);
    await parts(out, 3, { source, numbers: [1, 2] });
    const before = await contents(out);
    const fails = async (
      message: string,
      run: () => Promise<unknown>,
      type: typeof CheckpointError | typeof Refusal,
    ) => {
      const error = await assertRejects(run, type);
      assertEquals(error.message.replaceAll(directory, "DIR"), message);
      assertEquals(await contents(out), before);
    };
    const place = `DIR/out/${part(1, 3, "part.json")}`;
    const elsewhere = "remove it or choose another directory";
    await fails(
      `${place}: the part there was made from another source; ${elsewhere}`,
      () => parts(out, 3, { source: other, numbers: [3] }),
      CheckpointError,
    );
    await fails(
      `${place} exists already: the part there was made from another source`,
      () => parts(out, 3, { source: other, numbers: [1] }),
      Refusal,
    );
    await fails(
      `${place}: the part there has the format "rabbit-q4b32", not "rabbit-q8b32"; ${elsewhere}`,
      () => parts(out, 3, { source, width: Q8B32, numbers: [3] }),
      CheckpointError,
    );
    await fails(
      `${place}: the part there is one of 3 parts, not 2; ${elsewhere}`,
      () => parts(out, 2, { source, numbers: [2], force: true }),
      CheckpointError,
    );
    await fails(
      "DIR/in1 is the directory of the source, which would be overwritten; choose another directory",
      () => parts(source, 3, { source, numbers: [3] }),
      Refusal,
    );
    write(out, { [part(3, 3)]: "another file" });
    before.push([part(3, 3), await sha256(`${out}/${part(3, 3)}`)]);
    before.sort();
    await fails(`DIR/out/${part(3, 3)} exists already`, () => parts(out, 3, { source, numbers: [3] }), Refusal);
    assertEquals(await parts(out, 3, { source, numbers: [3], force: true }), [false]);
    assertEquals((await merge(planMerge(out))).digest, (await verify(out)).digest);

    write(`${directory}/full`, { [WEIGHTS]: "x", "config.json": "other" });
    const full = await assertRejects(() => parts(`${directory}/full`, 3, { source, numbers: [2] }), Refusal);
    assertMatch(full.message, /full contains a checkpoint \(model\.safetensors\); choose another directory/);
    Deno.removeSync(`${directory}/full/${WEIGHTS}`);
    const config = await assertRejects(() => parts(`${directory}/full`, 3, { source, numbers: [1] }), Refusal);
    assertMatch(config.message, /full\/config\.json exists already$/);
    await parts(`${directory}/full`, 3, { source, numbers: [1], force: true });
    assertEquals(Deno.readTextFileSync(`${directory}/full/config.json`), "{}");
  }));

Deno.test("a part names the row of the whole matrix where a weight can't be quantized, as quantize does", () =>
  inTemporary(async (directory) => {
    writeSource(`${directory}/in`, 3, 0x7f80);
    const plan = planQuantize(`${directory}/in`, Q4B32);
    for (const count of [1, 4, 9]) {
      const run = () => quantizePart(plan, `${directory}/out`, { number: count, count });
      const error = await assertRejects(run, CheckpointError);
      assertMatch(error.message, /tensor "c": row 19 column 63 \(block 1\): weight is Infinity/);
      assertEquals(tree(`${directory}/out`).filter((name) => !name.startsWith("config")), []);
    }
  }));

Deno.test("verify and verifyAgainst in parts find what they find in one run, each block once", () =>
  inTemporary(async (directory) => {
    writeSource(`${directory}/in`, 5);
    await parts(`${directory}/out`, 2, { source: `${directory}/in` });
    await merge(planMerge(`${directory}/out`, true));
    const bytes = Deno.readFileSync(`${directory}/out/${WEIGHTS}`);
    // Row 18 of the last matrix, block 0: two blocks of 18 bytes a row.
    bytes[bytes.length - 4 * 18 + 5] ^= 1;
    Deno.writeFileSync(`${directory}/out/${WEIGHTS}`, bytes);
    const whole = await verifyAgainst(`${directory}/out`, `${directory}/in`);
    const different = [{ name: "c", equal: false, row: 18, block: 0 }];
    for (const count of [1, 2, 4, 7]) {
      let blocks = 0;
      let plain = 0;
      const found: unknown[] = [];
      for (let number = 1; number <= count; number++) {
        const options = { part: { number, count }, threads: 1 + number % 2 };
        const against = await verifyAgainst(`${directory}/out`, `${directory}/in`, options);
        blocks += against.blocks;
        for (const { name, equal, row, block } of against.tensors) if (!equal) found.push({ name, equal, row, block });
        const alone = await verify(`${directory}/out`, options);
        assertEquals([alone.digests, alone.digest], [[], undefined]);
        plain += alone.blocks;
      }
      assertEquals([blocks, plain, found], [whole.blocks, whole.blocks, different], `${count} parts`);
    }
    // An infinite scale in row 19.
    bytes.set([0, 0x7c], bytes.length - 18);
    Deno.writeFileSync(`${directory}/out/${WEIGHTS}`, bytes);
    await verify(`${directory}/out`, { part: { number: 1, count: 7 } });
    const last = () => verify(`${directory}/out`, { part: { number: 7, count: 7 } });
    assertMatch((await assertRejects(last, CheckpointError)).message, /tensor "c": scale: row 19 block 1/);
  }));

Deno.test("two merges at once: one checkpoint, and at most one error of one line", () =>
  inTemporary(async (directory) => {
    for (const single of [false, true]) {
      const out = `${directory}/${single}`;
      await parts(out, 4);
      const done = await Promise.allSettled([1, 2].map(() => merge(planMerge(out, single))));
      const digests = done.flatMap((one) => one.status === "fulfilled" ? [one.value.digest] : []);
      assertEquals(new Set(digests), new Set([EXPECTED.q4.sha256]));
      for (const one of done) {
        if (one.status === "rejected") assertEquals(one.reason instanceof SystemError, true, String(one.reason));
      }
      assertEquals((await verify(out)).digest, EXPECTED.q4.sha256);
      assertEquals(tree(out).filter((name) => name.startsWith(".")), []);
    }
  }));

Deno.test("a part and a merge end with the reason of their signal, and leave nothing", () =>
  inTemporary(async (directory) => {
    const controller = new AbortController();
    const progress = () => controller.abort(new Error("stop"));
    const options = { signal: controller.signal, progress, numbers: [2] };
    await assertRejects(() => parts(`${directory}/out`, 2, options), Error, "stop");
    await parts(`${directory}/out`, 2);
    const before = await contents(`${directory}/out`);
    for (const single of [false, true]) {
      const again = new AbortController();
      const watch = { signal: again.signal, progress: () => again.abort(new Error("stop")) };
      await assertRejects(() => merge(planMerge(`${directory}/out`, single), watch), Error, "stop");
      assertEquals(await contents(`${directory}/out`), before);
    }
  }));

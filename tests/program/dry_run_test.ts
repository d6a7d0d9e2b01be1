/**
 * `--dry-run` of every command that has it: the fields of the run itself, the memory, and nothing is written.
 */

import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { temporary, tree, write } from "../support/files.ts";
import { ROOT } from "../support/fixtures.ts";
import { quantizeTo, talkingModel } from "../support/models.ts";
import { needs } from "../support/needs.ts";
import { execute, run } from "../support/program.ts";
import { entriesOf } from "../support/safetensors.ts";

const made = temporary();
const VOCABULARY = Array.from({ length: 320 }, (_, n) => n < 94 ? String.fromCharCode(33 + n) : `<unused${n}>`);
VOCABULARY[94] = "Ġ";
const FLOAT = talkingModel(join(made, "float"), VOCABULARY);
const QUANT = await quantizeTo(join(made, "q4"), FLOAT, 4);
const [GGUF, TEXT, OUT, NEW] = ["model.gguf", "text.txt", "out", "new.gguf"].map((name) => join(made, name));
write(made, { "text.txt": "The quick brown fox jumps over the lazy dog, and the dog does not mind it at all." });
assertEquals((await run("export", QUANT, GGUF, "--quiet")).code, 0);

// deno-lint-ignore no-explicit-any
async function json(...args: string[]): Promise<any> {
  const { code, out, err } = await run(...args, "--json", "--quiet");
  assertEquals([code, err], [0, ""], args.join(" "));
  return JSON.parse(out);
}

const CASES: Record<string, string[]> = {
  quantize: [FLOAT, OUT],
  "quantize in shards": [FLOAT, OUT, "--max-shard-size", "10KB"],
  "quantize of a part": [FLOAT, OUT, "--shard", "2/3"],
  export: [QUANT, NEW],
  "export for compressed-tensors": [QUANT, "--compressed-tensors", OUT],
  import: [GGUF, OUT, "--dtype", "same"],
};

for (const [name, args] of Object.entries(CASES)) {
  Deno.test(`--dry-run of ${name} prints what the run prints, and the memory, and writes nothing`, async () => {
    const command = [name.split(" ")[0], ...args];
    const before = tree(made);
    const { dry_run, memory, ...planned } = await json(...command, "--dry-run");
    assertEquals([dry_run, tree(made)], [true, before]);
    assert(memory > 50_000_000 && memory < 2_000_000_000, String(memory));
    const real = await json(...command);
    assert(/^[0-9a-f]{64}$/.test(real.digest));
    // Only quantize prints the size of its source anyway.
    const { digest: _, ...rest } = real;
    const { source_bytes, ...fields } = planned;
    assert(source_bytes > 0);
    assertEquals({ source_bytes, ...fields }, { source_bytes, ...rest });
    // What the run would refuse is refused.
    if (name !== "quantize of a part") {
      const [dry, again] = [await run(...command, "--dry-run"), await run(...command)];
      assertEquals([dry.code, dry.out, dry.err], [2, "", again.err]);
    }
    for (const path of [OUT, NEW]) await Deno.remove(path, { recursive: true }).catch(() => {});
  });
}

Deno.test("--dry-run of verify says what is read, whole and in parts, though the blocks are damaged", async () => {
  const [damaged, weights] = [join(made, "damaged"), join(made, "damaged", "model.safetensors")];
  write(damaged, { "model.safetensors": Deno.readFileSync(join(QUANT, "model.safetensors")).fill(255, -2) });
  const whole = await json("verify", damaged, "--against", FLOAT, "--dry-run");
  const data = (path: string) => entriesOf(Deno.readFileSync(path)).reduce((sum, { bytes }) => sum + bytes.length, 0);
  assertEquals([whole.dry_run, whole.model], [true, weights]);
  assertEquals([whole.bytes, whole.source_bytes], [data(weights), data(join(FLOAT, "model.safetensors"))]);
  assert(whole.memory > 50_000_000 && whole.memory < 2_000_000_000, String(whole.memory));
  const parts = await Promise.all(
    [1, 2, 3].map((n) => json("verify", damaged, "--against", FLOAT, "--dry-run", "--shard", `${n}/3`)),
  );
  for (const key of ["bytes", "source_bytes"]) {
    assertEquals(parts.reduce((sum, part) => sum + part[key], 0), whole[key], key);
  }
  assertEquals((await json("verify", damaged, "--dry-run")).source_bytes, undefined);
  assertEquals((await run("verify", damaged, "--quiet")).code, 1);
  for (
    const [message, ...args] of [
      ["--dry-run is for checkpoints, not for GGUF files", GGUF, "--against", FLOAT],
      ["--rederive and --dry-run exclude each other", QUANT, "--against", FLOAT, "--rederive"],
    ]
  ) {
    const ran = await run("verify", ...args, "--dry-run");
    assertEquals(ran, { code: 2, out: "", err: `rabbit: verify: ${message}\n` });
  }
});

needs("--dry-run of quantize --calibrate says enough memory", { files: ["/proc/self/status"] }, async () => {
  const args = ["quantize", FLOAT, OUT, "--calibrate", TEXT, "--tokens", "64", "--window", "16", "--quiet"];
  const { memory, method, tokens } = await json(...args, "--dry-run");
  assertEquals([method, tokens], ["calibrated", 64]);
  const script = `${ROOT}tests/support/peak.ts`;
  const { code, err } = await execute(Deno.execPath(), ["run", "--allow-all", script, ...args]);
  await Deno.remove(OUT, { recursive: true });
  const peak = Number(err);
  assert(code === 0 && peak <= memory && memory < 4 * peak, `${memory} for ${err}`);
});

Deno.test("--dry-run of a split GGUF file counts all of its files", async () => {
  const of = (n: number) => `${ROOT}fixtures/gguf/superblocks-0000${n}-of-00003.gguf`;
  const { source_bytes } = await json("import", of(1), OUT, "--dry-run");
  assertEquals(source_bytes, [1, 2, 3].reduce((sum, n) => sum + Deno.statSync(of(n)).size, 0));
});

Deno.test("--dry-run of compare --text says what is measured, whole and in parts, and enough memory", async () => {
  const args = ["compare", FLOAT, QUANT, "--text", TEXT, "--window", "16", "--stride", "8"];
  const { text: planned } = await json(...args, "--dry-run");
  const { text: real, memory: { peak_rss } } = await json(...args);
  const { dry_run, memory, weights, fed, source_bytes, ...fields } = planned;
  assertEquals([dry_run, weights, fields], [true, "all", real]);
  assert(memory >= peak_rss, `${memory} for ${peak_rss}`);
  assert(source_bytes > 0);
  const parts = await Promise.all([1, 2, 3].map((n) => json(...args, "--dry-run", "--shard", `${n}/3`)));
  for (const [key, value] of Object.entries({ fed, windows: real.windows, scored: real.scored })) {
    assertEquals(parts.reduce((sum, { text }) => sum + text[key], 0), value, key);
  }
  const stray = await run("compare", FLOAT, QUANT, "--ids", "1", "--dry-run");
  assertEquals(stray, { code: 2, out: "", err: "rabbit: compare: --dry-run is for --text, which is not given\n" });
});

// `rabbit export --compressed-tensors`, run as a user runs it. What the files must hold was computed by
// fixtures/make_compressed_tensors.py, with compressed-tensors, safetensors and transformers.

import { assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { exactBytes } from "../support/blocks.ts";
import { inTemporary, sha256, temporary, tree, write } from "../support/files.ts";
import { fixture, json, MIXED, TINY, WEIGHTS } from "../support/fixtures.ts";
import { copyModel, quantizeTo, variant } from "../support/models.ts";
import { done, refused, run } from "../support/program.ts";
import { qwenOf } from "../support/compressed_tensors.ts";

const { prompt_ids, cases } = fixture<{
  prompt_ids: number[];
  cases: {
    bits: number;
    rule: string;
    qwen: boolean;
    sha256: string;
    quantization_config: Record<string, unknown>;
    tokens: number[];
  }[];
}>("compressed_tensors.json");
const IDS = ["--ids", prompt_ids.join(" ")];
const made = temporary();
const Q4 = await quantizeTo(join(made, "q4"), TINY, 4);
const QWEN = qwenOf(join(made, "qwen"), TINY);

for (const { bits, rule, qwen, ...wanted } of cases) {
  Deno.test(`${qwen ? "Qwen2" : "Llama"}, ${bits} bits, ${rule}: the file of the library, and its tokens`, async () => {
    await inTemporary(async (directory) => {
      const [quant, out] = ["quant", "out"].map((name) => join(directory, name));
      await done("quantize", qwen ? QWEN : TINY, quant, "--bits", String(bits), "--rule", rule, "--quiet");
      const printed = JSON.parse(await done("export", quant, "--compressed-tensors", out, "--json", "--quiet"));
      assertEquals([printed.digest, printed.quantization?.method ?? "absmax"], [wanted.sha256, rule]);
      assertEquals(await sha256(join(out, WEIGHTS)), wanted.sha256);
      assertEquals(printed.bytes, Deno.statSync(join(out, WEIGHTS)).size);
      const { dtype: _, ...config } = json(join(quant, "config.json"));
      const { quantization_config } = wanted;
      assertEquals(json(join(out, "config.json")), { ...config, torch_dtype: "float32", quantization_config });
      const steps = String(wanted.tokens.length);
      const { tokens } = JSON.parse(
        await done("infer", quant, ...IDS, "--steps", steps, "--activations", "f32", "--ignore-eos", "--json"),
      );
      assertEquals(tokens, wanted.tokens);
    });
  });
}

Deno.test("shards give the same file, and the tokenizer is copied", async () => {
  await inTemporary(async (directory) => {
    const source = copyModel(TINY, join(directory, "float"));
    const files = { "tokenizer.json": "{}", "generation_config.json": "{}", "merges.txt": "", "vocab.json": "{}" };
    write(source, { ...files, "notes.txt": "mine" });
    write(join(source, "additional_chat_templates"), { "tools.jinja": "" });
    const shards = join(directory, "shards");
    await done("quantize", source, shards, "--max-shard-size", "10KB", "--rule", "signed", "--quiet");
    write(join(shards, "additional_chat_templates"), { "tools.jinja": "" });
    const out = join(directory, "out");
    const { code, err } = await run("export", shards, "--compressed-tensors", out);
    const left = `${shards}/additional_chat_templates is not copied; copy it to ${out} if it is needed`;
    assertEquals([code, err], [0, `rabbit: warning: export: ${left}\n`]);
    assertEquals(tree(out).sort(), [...Object.keys(files), "config.json", WEIGHTS].sort());
    const { sha256: wanted } = cases.find(({ bits, rule, qwen }) => bits === 4 && rule === "signed" && !qwen)!;
    assertEquals(await sha256(join(out, WEIGHTS)), wanted);
  });
});

Deno.test("what can't be exported is refused in one line, and nothing is written", async () => {
  await inTemporary(async (directory) => {
    const out = join(directory, "out");
    const to = ["--compressed-tensors", out];
    const nan = variant(join(directory, "nan"), Q4, {
      tensors: (entries) =>
        entries.map((entry) => {
          if (entry.name !== "model.layers.1.mlp.up_proj.weight") return entry;
          const bytes = entry.bytes.slice();
          // The scale of block 1 of row 3, which has two blocks.
          bytes.set([0x00, 0x7e], 18 * 7);
          return { ...entry, bytes };
        }),
    });
    const vector = variant(join(directory, "vector"), Q4, {
      tensors: (entries) =>
        entries.map((entry) =>
          entry.name === "model.norm.weight"
            ? {
              ...entry,
              bytes: exactBytes("BF16", Float32Array.from({ length: 64 }, (_, n) => n === 5 ? Infinity : 1))!,
            }
            : entry
        ),
    });
    const before = tree(directory);
    const place = (of: string, tensor: string) => `${of}/${WEIGHTS}: tensor "${tensor}"`;
    const damaged = "the file is damaged, make or download it again";
    const one = "is for a GGUF file, and --compressed-tensors writes none; give one of the two";
    const lines: [string, ...string[]][] = [
      [`${TINY}/${WEIGHTS}: not quantized, so there is nothing to pack; quantize it first`, TINY, ...to],
      [
        `${MIXED}: not a safetensors file but a GGUF file; convert it to a checkpoint with rabbit import`,
        ...[MIXED, ...to],
      ],
      [
        `${place(nan, "model.layers.1.mlp.up_proj.weight")}: scale: row 3 block 1: the scale is not finite; ${damaged}`,
        ...[nan, ...to],
      ],
      [`${place(vector, "model.norm.weight")}: row 5 column 0: the weight is not finite; ${damaged}`, vector, ...to],
      ["GGUF is missing; see rabbit export --help", Q4],
      [`x.gguf ${one}`, Q4, "x.gguf", ...to],
      [`--pre ${one}`, Q4, ...to, "--pre", "qwen2"],
      [
        `${Q4} is the directory of the source, which would be overwritten; choose another directory`,
        ...[Q4, "--compressed-tensors", Q4],
      ],
    ];
    for (const [line, ...args] of lines) await refused(line, "export", ...args);
    assertEquals(tree(directory), before);

    await done("export", Q4, ...to, "--quiet");
    const written = tree(directory);
    await refused(`${out}/${WEIGHTS} exists already; --force replaces it`, "export", Q4, ...to);
    const { code, err } = await run("infer", out, ...IDS);
    assertEquals([
      code,
      /^rabbit: infer: .*config\.json: quantization_config: .*; use the float checkpoint\n$/.test(err),
    ], [
      2,
      true,
    ]);
    await done("export", Q4, ...to, "--force", "--quiet");
    assertEquals(tree(directory), written);
    // It would stay beside the weights of another checkpoint.
    write(out, { "quantization.json": "{}" });
    await refused(
      `${out}/quantization.json exists, and the new checkpoint has no such file; remove it first or choose another ` +
        "directory",
      ...["export", Q4, ...to, "--force"],
    );
  });
});

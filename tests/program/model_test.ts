// What all commands that take a model have in common, run as a user runs them: every tensor is used or refused, windows, and
// counts that no file can hold.

import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { utf8 } from "../support/bytes.ts";
import { inTemporary, temporary, tree } from "../support/files.ts";
import { expected, IDS, json, MIXED, TINY, WEIGHTS } from "../support/fixtures.ts";
import { quantizeTo, variant } from "../support/models.ts";
import { done, refused, run } from "../support/program.ts";
import { type Entry, f32 } from "../support/safetensors.ts";

const made = temporary();
const Q8 = await quantizeTo(`${made}/q8`, TINY, 8);

Deno.test("a tensor that a model does not use is refused by every command that computes with it or exports it", async () => {
  await inTemporary(async (directory) => {
    const name = "model.layers.1.self_attn.sinks";
    const tensors = (entries: Entry[]) => [...entries, f32(name, [4], () => 1)];
    const float = variant(join(directory, "float"), TINY, { tensors });
    const quant = variant(join(directory, "quant"), Q8, { tensors });
    const says = (path: string) =>
      `${path}/${WEIGHTS}: tensor "${name}": unexpected tensor: the LlamaForCausalLM that config.json calls for does ` +
      "not use it";
    const before = tree(directory);
    await refused(says(float), "infer", "--model", float, ...IDS);
    await refused(says(quant), "infer", "--model", quant, ...IDS);
    await refused(says(float), "compare", float, Q8, ...IDS);
    await refused(says(quant), "compare", TINY, quant, ...IDS);
    await refused(says(float), "advise", "--in", float);
    await refused(says(float), "export", "--in", float, "--gguf", join(directory, "x.gguf"));
    await refused(says(quant), "export", "--in", quant, "--gguf", join(directory, "x.gguf"));
    await refused(says(float), "report", float, Q8, "--out", join(directory, "x.html"), ...IDS);
    await refused(says(quant), "report", TINY, quant, "--out", join(directory, "x.html"), ...IDS);
    assertEquals(tree(directory), before);
  });
});

Deno.test("a model with a sliding window runs in contexts that are not longer, and is exported", async () => {
  await inTemporary(async (directory) => {
    const config = { architectures: ["MistralForCausalLM"], model_type: "mistral", attention_bias: undefined };
    const window = 16;
    const model = variant(join(directory, "m"), TINY, { config: { ...config, sliding_window: window } });
    const steps = (count: number) => [...IDS, "--ignore-eos", "--steps", `${count}`];
    const { tokens } = JSON.parse(await done("infer", "--model", model, ...steps(8), "--json"));
    assertEquals(tokens, expected.float.tokens);
    const longest = window - expected.prompt_ids.length;
    await done("infer", "--model", model, ...steps(longest));
    await refused(
      `17 tokens are more than the model's window of ${window} (sliding_window), and the decoder knows no windows; ` +
        "use a shorter prompt or fewer steps",
      ...["infer", "--model", model, ...steps(longest + 1)],
    );
    // The default of the class is longer than this model's context.
    const plain = variant(join(directory, "p"), TINY, { config: { ...config, sliding_window: undefined } });
    await done("infer", "--model", plain, ...steps(100));

    const path = join(directory, "x.gguf");
    const { code, err } = await run("export", "--in", model, "--gguf", path);
    assertEquals([code, err], [
      0,
      `rabbit: warning: export: ${model} has no tokenizer, so ${path} has none\n` +
      `rabbit: warning: export: llama.cpp does not support the sliding window of this architecture: beyond ${window} ` +
      "tokens its results differ from the model's\n",
    ]);
    const back = join(directory, "back");
    await run("import", "--gguf", path, "--out", back);
    const { architectures, model_type, sliding_window } = json(join(back, "config.json"));
    assertEquals([architectures, model_type, sliding_window], [["MistralForCausalLM"], "mistral", window]);
    const again = JSON.parse((await run("infer", "--model", back, ...steps(8), "--json")).out);
    assertEquals(again.tokens, tokens);
  });
});

Deno.test("counts that no file of that size can hold end in one line", async () => {
  await inTemporary(async (directory) => {
    const vocabulary = Object.fromEntries(Array.from({ length: 320 }, (_, n) => [`t${n}`, n]));
    const files = { "vocab.json": JSON.stringify(vocabulary), "merges.txt": "" };
    const cases: [Record<string, unknown>, RegExp][] = [
      [{ num_hidden_layers: 10_000 }, /tensor "model\.layers\.2\.input_layernorm\.weight": missing/],
      [{ vocab_size: 2 ** 26 }, /shape: \[320,64\], but config\.json calls for \[67108864,64\]/],
      [
        { hidden_size: 2 ** 20, num_attention_heads: 1, num_key_value_heads: 1, head_dim: null },
        /head_dim: 1048576 is more than 1024/,
      ],
      [{ max_position_embeddings: 2 ** 31 - 1 }, /more than the model's|ask for a shorter context/],
    ];
    for (const [n, [config, message]] of cases.entries()) {
      const model = variant(join(directory, `${n}`), TINY, { config, files });
      const far = "max_position_embeddings" in config ? ["--steps", "2000000000"] : [];
      const commands = [["infer", "--model", model, ...IDS, ...far]];
      if (far.length > 0) commands.push(["compare", model, Q8, ...IDS, ...far]);
      // A long context is nothing to an export.
      if (far.length === 0) commands.push(["export", "--in", model, "--gguf", join(directory, "x.gguf")]);
      for (const args of commands) {
        const { code, out, err } = await run(...args);
        assertEquals([code, out], [2, ""], `${args.join(" ")}: ${err}`);
        assert(/^rabbit: [a-z]+: [^\n]+\n$/.test(err) && message.test(err), err);
      }
    }
    // The same in a GGUF file's metadata.
    const path = join(directory, "x.gguf");
    const bytes = Deno.readFileSync(MIXED);
    const key = utf8("llama.block_count");
    const at = bytes.findIndex((_, n) => key.every((byte, k) => bytes[n + k] === byte)) + key.length + 4;
    for (const layers of [10_000, 2 ** 31 - 1]) {
      new DataView(bytes.buffer).setUint32(at, layers, true);
      Deno.writeFileSync(path, bytes);
      const { code, out, err } = await run("import", "--gguf", path, "--out", join(directory, "out"));
      assertEquals([code, out], [2, ""], err);
      assert(/^rabbit: import: [^\n]+(num_hidden_layers|blk\.1\.attn_norm\.weight)[^\n]+\n$/.test(err), err);
    }
  });
});

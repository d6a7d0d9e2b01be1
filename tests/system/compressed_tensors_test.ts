import { assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { FORMATS } from "../../lib/format/blocks.ts";
import { openCheckpoint, TensorReader } from "../../lib/format/checkpoint.ts";
import { qwenOf } from "../support/compressed_tensors.ts";
import { inTemporary } from "../support/files.ts";
import { expected, IDS, ROOT, TINY } from "../support/fixtures.ts";
import { needs } from "../support/needs.ts";
import { done, execute } from "../support/program.ts";

/** A Python with transformers, compressed-tensors and torch: a gigabyte of downloads, and five of files. */
const python = Deno.env.get("RABBIT_TORCH");

const what = {
  lacks: python ? [] : ["set RABBIT_TORCH=path of a python with torch, transformers and compressed-tensors"],
};

/** SHA-256 of each tensor of a checkpoint, decoded to binary32; `tied` adds the head that the embedding is. */
async function digestsOf(path: string, tied: boolean): Promise<Record<string, string>> {
  const checkpoint = openCheckpoint(path);
  using reader = new TensorReader(checkpoint);
  const digests: Record<string, string> = {};
  for (const { name, dtype, bytes } of checkpoint.tensors) {
    const format = FORMATS.get(dtype)!;
    const data = new Uint8Array(bytes);
    reader.read(name, 0, data);
    const count = bytes / format.blockBytes;
    const values = new Float32Array(count * format.blockWeights);
    format.decode(new DataView(data.buffer), 0, count, values);
    digests[name] = new Uint8Array(await crypto.subtle.digest("SHA-256", values)).toHex();
  }
  if (tied) digests["lm_head.weight"] = digests["model.embed_tokens.weight"];
  return digests;
}

needs(
  "transformers loads an export: the same weights to the bit, and the same tokens",
  what,
  () =>
    inTemporary(async (directory) => {
      const qwen = qwenOf(join(directory, "qwen"), TINY);
      for (const [source, bits, rule] of [[TINY, "4", "signed"], [TINY, "8", "absmax"], [qwen, "4", "absmax"]]) {
        const quant = join(directory, `quant-${bits}-${rule}`);
        const out = join(directory, `out-${bits}-${rule}`);
        await done("quantize", source, quant, "--bits", bits, "--rule", rule, "--quiet");
        await done("export", quant, "--compressed-tensors", out, "--quiet");
        const script = `${ROOT}tests/support/load_compressed.py`;
        const ids = expected.prompt_ids.map(String);
        const env = { CUDA_VISIBLE_DEVICES: "", HF_HUB_OFFLINE: "1" };
        const ran = await execute(python!, [script, out, "16", ...ids], { env });
        assertEquals(ran.code, 0, ran.err);
        const { weights, tokens } = JSON.parse(ran.out);
        assertEquals(weights, await digestsOf(quant, source === TINY));
        const options = ["--steps", "16", "--ignore-eos", "--activations", "f32", "--json", "--quiet"];
        assertEquals(tokens, JSON.parse(await done("infer", quant, ...IDS, ...options)).tokens);
      }
    }),
);

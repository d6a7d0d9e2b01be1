/**
 * A user of the npm package, for npm_test.ts: every command of the library on a model that the package itself makes. Prints
 * a line of JSON for each.
 *
 *     node npm_user.mjs DIRECTORY
 */

import { writeFileSync } from "node:fs";
import {
  advise,
  CheckpointError,
  compare,
  compareText,
  exportGguf,
  generateModel,
  importGguf,
  open,
  quantize,
  Refusal,
  SystemError,
  verify,
} from "@rabbit/rabbit";
import { encodeBlock, openCheckpoint, Q4B32 } from "@rabbit/rabbit/format";
import { GGML_TYPES } from "@rabbit/rabbit/gguf";
import { Pool, Reference } from "@rabbit/rabbit/kernels";
import { Distribution } from "@rabbit/rabbit/measure";

const [, , directory] = process.argv;
const [float, quant, gguf, back] = ["float", "quant", "model.gguf", "back"].map((name) => `${directory}/${name}`);
const threads = 3;
const print = (name, value) => console.log(JSON.stringify({ name, value }));

/** The class of what is thrown, and its message. */
async function thrown(kind, work) {
  try {
    await work();
  } catch (error) {
    return [error instanceof kind, error.message.replaceAll(directory, "DIR")];
  }
}

generateModel(float, { seed: 5 });
let last = 0;
const quantized = await quantize(float, quant, { bits: 8, threads, progress: (done, total) => last = done / total });
print("quantize", { digest: quantized.digest, last });
print("verify", (await verify(quant, { threads })).digests);
const { match, quant: tokens, logits } = await compare(float, quant, { prompt: [1, 2, 3], threads });
print("compare", { match, tokens, max: logits.max, mean: logits.mean });
const text = await compareText(float, quant, "The cat sat on the mat.", { threads });
print("compareText", { scored: text.scored, kl: text.kl.value });
print("advise", (await advise(float, { text: "The cat sat on the mat.", threads })).use);

const template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
writeFileSync(`${quant}/tokenizer_config.json`, JSON.stringify({ chat_template: template }));
const model = await open(quant, { threads });
const answer = async (prompt, options) => {
  const pieces = [];
  for await (const piece of model.generate(prompt, options)) pieces.push(piece);
  return pieces;
};
print("generate", await answer("Once", { maxTokens: 8 }));
print("sampled", await answer("Once", { maxTokens: 8, temperature: 1, topP: 0.9, seed: 3 }));
print("chat", await answer("Once", { maxTokens: 8, chat: true }));
print("messages", await answer([{ role: "user", content: "Once" }], { maxTokens: 8 }));
await model.close();

print("export", await exportGguf(quant, gguf));
print("import", await importGguf(gguf, back, { dtype: "f16" }));

print("exists", await thrown(Refusal, () => quantize(float, quant, { bits: 8 })));
print("missing", await thrown(SystemError, () => open(`${directory}/nothing`)));
writeFileSync(`${directory}/bad.safetensors`, "no header");
print("bad", await thrown(CheckpointError, () => verify(`${directory}/bad.safetensors`)));
print("directory", await thrown(SystemError, () => quantize(float, `${gguf}/below`)));
print(
  "signal",
  await thrown(Error, () => quantize(float, `${directory}/other`, { signal: AbortSignal.abort(new Error("stop")) })),
);

const block = new Uint8Array(Q4B32.blockBytes);
encodeBlock(Q4B32, new Float32Array(32).fill(0.5), block);
print("format", [[...block], openCheckpoint(float).tensors.length]);
print("gguf", GGML_TYPES.size > 10);
const pool = new Pool({ threads: 2 });
print("kernels", [pool.threads, new Reference().threads]);
pool.close();
const distribution = new Distribution(2);
distribution.set(Float32Array.of(0, 0));
print("measure", distribution.logProbability(1));

/**
 * llama.cpp runs what `rabbit export` writes. It comes with the npm package node-llama-cpp, which is too large to be one of the
 * repository's: NODE_LLAMA_CPP is a directory where `npm install node-llama-cpp` was run.
 */

import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { inTemporary, write } from "../support/files.ts";
import { expected, json, modelNames, MODELS, ROOT, TINY } from "../support/fixtures.ts";
import { copyModel, quantizeTo } from "../support/models.ts";
import { needs } from "../support/needs.ts";
import { execute, rabbit } from "../support/program.ts";

const PACKAGE = Deno.env.get("NODE_LLAMA_CPP");

/** A vocabulary of as many words as the model has ids: llama.cpp's package does not load a model without one. */
function vocabulary(size: number): Record<string, string> {
  const words = Array.from(
    { length: size },
    (_, n) => n < 10 ? `<|${n}|>` : n < 70 ? String.fromCharCode(55 + n) : `w${n}`,
  );
  return { "vocab.json": JSON.stringify(Object.fromEntries(words.map((w, n) => [w, n]))), "merges.txt": "" };
}

needs(
  "llama.cpp gives the known tokens for every exported model",
  { programs: ["node"], variables: { NODE_LLAMA_CPP: "directory where npm install node-llama-cpp was run" } },
  async () => {
    await inTemporary(async (temporary) => {
      const tiny = expected;
      const models = [
        ...modelNames().map((name) => ({
          name,
          from: join(MODELS, name),
          expected: json(join(MODELS, name, "expected.json")),
        })),
        { name: "tiny", from: TINY, expected: { ...tiny, ...tiny.float } },
        { name: "q8", from: await quantizeTo(join(temporary, "a"), TINY, 8), expected: { ...tiny, ...tiny.q8 } },
        { name: "q4", from: await quantizeTo(join(temporary, "b"), TINY, 4), expected: { ...tiny, ...tiny.q4 } },
      ];
      const jobs = [];
      for (const { name, from, expected } of models) {
        const directory = join(temporary, name);
        copyModel(from, directory);
        write(directory, vocabulary(json(join(from, "config.json")).vocab_size));
        const path = join(temporary, `${name}.gguf`);
        const { code, err } = await rabbit(temporary, ["export", "--in", directory, "--gguf", path]);
        assertEquals([code, err], [0, ""], name);
        jobs.push({ path, ids: expected.prompt_ids, steps: expected.tokens.length });
      }
      const args = [`${ROOT}tests/support/llama_cpp.mjs`, Deno.realPathSync(PACKAGE!), JSON.stringify(jobs)];
      const { code, out, err } = await execute("node", args);
      assertEquals(code, 0, err);
      const answers = out.trim().split("\n").map((line) => JSON.parse(line));
      assertEquals(answers.length, models.length);
      for (const [n, { name, expected }] of models.entries()) {
        // It rounds activations to 8 bits where weights are quantized: a near tie may fall otherwise from there on.
        const { tokens, margins } = answers[n];
        const quantized = name === "q8" || name === "q4";
        const same = (tokens as number[]).findIndex((token, n) => token !== expected.tokens[n]);
        if (same < 0) continue;
        assert(quantized && margins[same] < 0.2, `${name}: ${tokens}, not ${expected.tokens}; margins ${margins}`);
      }
    });
  },
);

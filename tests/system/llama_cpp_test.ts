/**
 * llama.cpp runs what `rabbit export` writes, and `rabbit infer` runs what llama.cpp's tools write. It comes with the npm package node-llama-cpp, which is too large to be one of the
 * repository's: NODE_LLAMA_CPP is a directory where `npm install node-llama-cpp` was run.
 */

import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { serializeGguf } from "../../lib/gguf/container.ts";
import { readVocabulary, vocabularyMetadata } from "../../lib/gguf/vocabulary.ts";
import { concat } from "../support/bytes.ts";
import { inTemporary, write } from "../support/files.ts";
import { expected, json, modelNames, MODELS, ROOT, TINY } from "../support/fixtures.ts";
import { readGguf } from "../support/gguf.ts";
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

const NEEDED = {
  programs: ["node"],
  variables: { NODE_LLAMA_CPP: "directory where npm install node-llama-cpp was run" },
};

/** The greedy answers of llama.cpp, and the margins of their tokens. */
async function answersOf(jobs: readonly { path: string; ids: readonly number[]; steps: number }[]) {
  const args = [`${ROOT}tests/support/llama_cpp.mjs`, Deno.realPathSync(PACKAGE!), JSON.stringify(jobs)];
  const { code, out, err } = await execute("node", args);
  assertEquals(code, 0, err);
  const answers: { tokens: number[]; margins: number[] }[] = out.trim().split("\n").map((line) => JSON.parse(line));
  assertEquals(answers.length, jobs.length);
  return answers;
}

needs(
  "llama.cpp gives the known tokens for every exported model",
  NEEDED,
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
      const answers = await answersOf(jobs);
      for (const [n, { name, expected }] of models.entries()) {
        // It rounds activations to 8 bits where weights are quantized: a near tie may fall otherwise from there on.
        const { tokens, margins } = answers[n];
        const quantized = name === "q8" || name === "q4";
        const same = tokens.findIndex((token, n) => token !== expected.tokens[n]);
        if (same < 0) continue;
        assert(quantized && margins[same] < 0.2, `${name}: ${tokens}, not ${expected.tokens}; margins ${margins}`);
      }
    });
  },
);

needs(
  "rabbit infer of a GGUF file gives llama.cpp's tokens",
  NEEDED,
  async () => {
    await inTemporary(async (temporary) => {
      const names = ["derived.gguf", ...[1, 2, 3].map((n) => `superblocks-0000${n}-of-00003.gguf`)];
      for (const name of names) {
        const { metadata, tensors, data } = readGguf(`${ROOT}fixtures/gguf/${name}`);
        const changed = new Map(metadata);
        const rows = tensors.find(({ name }) => name === "token_embd.weight")?.shape[0];
        if (rows !== undefined) {
          const directory = join(temporary, name.slice(0, -5));
          Deno.mkdirSync(directory);
          write(directory, vocabulary(rows));
          const keys = vocabularyMetadata(readVocabulary(directory, rows, {}, "gpt-2"));
          for (const [key, value] of keys) changed.set(key, value);
        }
        const start = serializeGguf(changed, tensors);
        Deno.writeFileSync(join(temporary, name), concat(start, data.subarray(tensors[0].offset)));
      }
      const jobs = names.slice(0, 2).map((name) => ({ path: join(temporary, name), ids: [7, 30, 21], steps: 8 }));
      for (const [n, { tokens, margins }] of (await answersOf(jobs)).entries()) {
        const { path, ids, steps } = jobs[n];
        const args = ["infer", path, "--ids", ids.join(" "), "--steps", `${steps}`, "--ignore-eos", "--json"];
        const { code, out, err } = await rabbit(temporary, args);
        assertEquals([code, err], [0, ""]);
        const own: number[] = JSON.parse(out).tokens;
        const differs = tokens.findIndex((token, n) => token !== own[n]);
        assert(differs < 0 || margins[differs] < 0.2, `${path}: ${own}, llama.cpp: ${tokens}; margins ${margins}`);
      }
    });
  },
);

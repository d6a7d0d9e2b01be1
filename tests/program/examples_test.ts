import { assertEquals, assertMatch } from "@std/assert";
import { generate } from "../../lib/dev/gen.ts";
import { sha256, temporary } from "../support/files.ts";
import { ROOT } from "../support/fixtures.ts";
import { quantizeTo } from "../support/models.ts";
import { execute } from "../support/program.ts";

const directory = temporary();
const float = `${directory}/float`;
const quant = `${directory}/quant`;
generate(float);
await quantizeTo(quant, float, 8);
Deno.writeTextFileSync(`${directory}/text`, "The cat sat on the mat, and the dog looked at it. ".repeat(4));

/** Runs an example; what it wrote to standard output. */
async function example(name: string, ...args: string[]): Promise<string> {
  const program = ["run", "--frozen", "--allow-all", `${ROOT}examples/${name}.ts`];
  const { code, out, err } = await execute(Deno.execPath(), [...program, ...args]);
  assertEquals(code, 0, err);
  return out;
}

Deno.test("examples: every one is run here", () => {
  const names = [...Deno.readDirSync(`${ROOT}examples`)].map(({ name }) => name).sort();
  assertEquals(names, ["compare.ts", "export.ts", "generate.ts", "quantize.ts"]);
});

Deno.test("examples/quantize.ts gives what the program gives", async () => {
  const out = await example("quantize", float, `${directory}/own`);
  const digest = await sha256(`${quant}/model.safetensors`);
  const lines = out.trim().split("\n");
  assertMatch(lines[0], new RegExp(`^\\d+ bytes, 0\\.53\\d of the source, SHA-256 ${digest}$`));
  assertMatch(lines[1], /^(\d+) of \1 tensors are as they should be$/);
  assertMatch(lines[2], /^the weights are off by 0\.\d\d%$/);
});

Deno.test("examples/generate.ts writes the same text for the same seed", async () => {
  const [one, two] = [await example("generate", quant, "Once"), await example("generate", quant, "Once")];
  assertEquals(one, two);
  assertMatch(one, /\S/);
});

Deno.test("examples/compare.ts measures a prompt and a text", async () => {
  const lines = (await example("compare", float, quant, "Once", `${directory}/text`)).trim().split("\n");
  assertMatch(lines[0], /^the answer (stays|changes); logits differ by 0\.\d{4} on average$/);
  assertMatch(lines[1], /^perplexity times [01]\.\d{4} \(standard error 0\.\d{4}\)$/);
  assertMatch(lines[2], /^divergence 0\.\d{5} nats a token$/);
  assertMatch(lines[3], /^\d+\.\d% of the most likely tokens are the same$/);
});

Deno.test("examples/export.ts writes a GGUF file and lists it", async () => {
  const path = `${directory}/model.gguf`;
  const lines = (await example("export", quant, path)).trim().split("\n");
  assertEquals(lines[0], `SHA-256 ${await sha256(path)}`);
  assertMatch(lines[1], /"llama"/);
  assertMatch(lines[2], /^token_embd\.weight Q8_0 \[ 8192, 256 \]$/);
});

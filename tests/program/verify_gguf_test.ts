// `rabbit verify FILE.gguf --against SOURCE`. The file is the tiny model as llama.cpp's Python package quantizes it
// (fixtures/gguf/make_gguf.py).

import { assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { inTemporary, sha256 } from "../support/files.ts";
import { MIXED, ROOT, TINY } from "../support/fixtures.ts";
import { readGguf } from "../support/gguf.ts";
import { quantizeTo, variant } from "../support/models.ts";
import { lines, refused, run } from "../support/program.ts";

const DERIVED = `${ROOT}fixtures/gguf/derived.gguf`;
const { tensors } = readGguf(DERIVED);

/** A path as a line has it: the checkout may lie in a directory with a space in its name. */
const shown = (path: string) => path.includes(" ") ? JSON.stringify(path) : path;

/** A copy of the file with one bit flipped in a tensor. */
function flipped(directory: string, name: string, byte: number, bit = 0): string {
  const file = Deno.readFileSync(DERIVED);
  file[tensors.find((tensor) => tensor.name === name)!.offset + byte] ^= 1 << bit;
  const path = join(directory, "flipped.gguf");
  Deno.writeFileSync(path, file);
  return path;
}

Deno.test("rabbit verify derives a GGUF file from its source", async () => {
  const found = await lines(0, "verify", DERIVED, "--against", TINY);
  const quantized = tensors.filter(({ type }) => type.blockWeights > 1);
  assertEquals([...new Set(tensors.map(({ type }) => type.name))].sort(), ["BF16", "F16", "F32", "Q4_0", "Q8_0"]);
  const blocks = quantized.reduce((sum, { bytes, type }) => sum + bytes / type.blockBytes, 0);
  assertEquals(found.slice(0, 2), [
    `VERIFY model=${shown(DERIVED)} bytes=${Deno.statSync(DERIVED).size} format=GGUF tensors=20 blocks=${blocks}`,
    `VERIFY digest=${await sha256(DERIVED)}`,
  ]);
  assertEquals(
    found.slice(2, -2).sort(),
    tensors.map(({ name }) => `VERIFY tensor=${name} equal=true`).sort(),
  );
  assertEquals(found.slice(-2), [
    `VERIFY against=${shown(`${TINY}/model.safetensors`)} equal=20 different=0`,
    "VERIFY OK",
  ]);
});

Deno.test("rabbit verify names tensor, row and block of a flipped bit in a GGUF file", async () => {
  await inTemporary(async (temporary) => {
    const { name, shape, bytes } = tensors.find(({ type }) => type.name === "Q4_0")!;
    // A nibble of the last block of the second row.
    const found = await lines(1, "verify", flipped(temporary, name, 2 * bytes / shape[0] - 1, 5), "--against", TINY);
    assertEquals(found.filter((line) => line.includes("equal=false")), [
      `VERIFY tensor=${name} equal=false row=1 block=${shape[1] / 32 - 1}`,
    ]);
    assertEquals(found.slice(-2), [
      `VERIFY against=${shown(`${TINY}/model.safetensors`)} equal=19 different=1`,
      "VERIFY DIFFER",
    ]);
  });
});

Deno.test("rabbit verify refuses a GGUF file of another model, and types that can't be derived", async () => {
  await inTemporary(async (temporary) => {
    const no = async (message: string, ...args: string[]) => {
      const { code, out, err } = await run(...args);
      assertEquals([code, out, err], [1, "", `rabbit: verify: ${message}\n`]);
    };
    const scaled = variant(join(temporary, "scaled"), TINY, { config: { rope_theta: 20000 } });
    const { code, err } = await run("verify", DERIVED, "--against", scaled);
    assertEquals([code, err.startsWith(`rabbit: verify: ${DERIVED}: metadata: the source has another rope`)], [
      1,
      true,
    ]);
    const path = flipped(temporary, "token_embd.weight", 0);
    Deno.truncateSync(path, Deno.statSync(path).size - 100);
    const last = tensors.at(-1)!;
    await no(
      `${path}: tensor "${last.name}": offset: the data ends at byte ${last.offset + last.bytes}, but the file has ${
        Deno.statSync(path).size
      } bytes; the file is truncated`,
      ...["verify", path, "--against", TINY],
    );
    await refused(
      `${MIXED}: tensor "blk.0.attn_q.weight": type: Q4_1 can't be derived from floats (F32, F16, BF16, Q8_0, Q4_0 can); ` +
        "compare what it computes with what the source computes",
      ...["verify", MIXED, "--against", TINY],
    );
    const q8 = await quantizeTo(join(temporary, "q8"), TINY, 8);
    const exported = join(temporary, "q8.gguf");
    await run("export", "--quiet", q8, exported);
    await refused(
      `${exported}: an export of a rabbit checkpoint (tensor "model.embed_tokens.weight" was Q8B32), whose blocks follow ` +
        'another rule; import it with the dtype "same", and verify that, with the quantization.json of the checkpoint beside it if it has one',
      ...["verify", exported, "--against", TINY],
    );
    await refused(
      `${q8}/model.safetensors: tensor "model.embed_tokens.weight": dtype: Q8B32 is not a float; ` +
        "give the float checkpoint that the file was made from",
      ...["verify", DERIVED, "--against", q8],
    );
    await refused(
      `${DERIVED} is a GGUF file, which is verified against its source; give it with --against`,
      ...["verify", DERIVED],
    );
    await refused(
      "--rederive is for checkpoints, not for GGUF files",
      "verify",
      DERIVED,
      "--rederive",
      "--against",
      TINY,
    );
  });
});

Deno.test("rabbit verify derives a float GGUF file that rabbit exported", async () => {
  await inTemporary(async (temporary) => {
    const path = join(temporary, "tiny.gguf");
    await run("export", "--quiet", TINY, path);
    assertEquals((await lines(0, "verify", path, "--against", TINY)).at(-1), "VERIFY OK");
  });
});

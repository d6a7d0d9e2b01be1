// Damaged files: whatever the bytes, the readers end in a CheckpointError or in a parse that holds what it says.

import { assert, assertEquals } from "@std/assert";
import { CheckpointError } from "../lib/errors.ts";
import { openCheckpoint } from "../lib/format/checkpoint.ts";
import { type Header, parseHeader } from "../lib/format/safetensors.ts";
import { verify } from "../lib/verify.ts";
import { inTemporary } from "./program.ts";
import {
  blockBytes,
  concat,
  DECLARED,
  type Entry,
  f32,
  headerText,
  knownBlocks,
  Random,
  safetensors,
  utf8,
  write,
  writeShards,
} from "./testing.ts";

/** Bits of an element; of blocks, bits of 32. */
const BITS: Record<string, number> = { F32: 32, BF16: 16, U8: 8, I8: 8, Q4B32: 144, Q8B32: 272 };

/** What mutations put in: what a header is made of, and what it should not be made of. */
const TOKENS = [
  ...'{}[]:,"\\0123456789-+.eE \t\n\0u',
  "true",
  "null",
  "1e3",
  "9007199254740993",
  "18446744073709551615",
  '"shape"',
  '"dtype"',
  '"data_offsets"',
  '"__metadata__"',
  '"Q4B32"',
  '"Q8B32"',
  '"F32"',
  "\\ud800",
  "\u00e9",
  "\u2028",
  "[".repeat(40),
].map(utf8);

/** `bytes` with one to four mistakes: a bit or a byte changed, bytes put in, taken out, doubled, moved, or cut off. */
function damaged(bytes: Uint8Array, random: Random): Uint8Array<ArrayBuffer> {
  let out = bytes.slice();
  for (let count = 1 + random.below(4); count > 0; count--) {
    const at = random.below(out.length + 1);
    const length = 1 + random.below(random.pick([2, 8, 64]));
    const [before, after] = [out.subarray(0, at), out.subarray(at)];
    switch (random.below(8)) {
      case 0:
        out[at] ^= 1 << random.below(8);
        break;
      case 1:
        out[at] = random.bits();
        break;
      case 2:
        out = concat(before, random.pick(TOKENS), after);
        break;
      case 3: {
        const token = random.pick(TOKENS);
        out = concat(before, token, after.subarray(token.length));
        break;
      }
      case 4:
        out = concat(before, after.subarray(length));
        break;
      case 5:
        out = concat(before, after.subarray(0, length), after);
        break;
      case 6: {
        const from = random.below(out.length);
        out = concat(before, out.subarray(from, from + length), after);
        break;
      }
      default:
        if (random.below(4) === 0) out = before.slice();
        // A digit of a number, where one is: the mistakes that leave valid JSON.
        else {
          const digits = [...out.keys()].filter((n) => out[n] >= 48 && out[n] <= 57);
          if (digits.length > 0) out[random.pick(digits)] = 48 + random.below(10);
        }
    }
  }
  return out;
}

/** A header that was accepted must keep what the format promises. */
function checkHeader({ tensors, metadata, width, dataStart }: Header, fileBytes: number): void {
  let covered = 0;
  for (const { dtype, shape, begin, end } of tensors) {
    assert(begin === covered || begin === end && begin <= covered, `${begin} after ${covered}`);
    covered = Math.max(covered, end);
    assert(shape.every((n) => Number.isSafeInteger(n) && n >= 0), String(shape));
    const block = dtype.startsWith("Q");
    if (BITS[dtype]) {
      const units = shape.reduce((a, b) => a * b, 1) / (block ? 32 : 1);
      assertEquals(end - begin, units * BITS[dtype] / 8);
    }
    if (block) assertEquals([width?.name, shape.length, shape[1] % 32], [dtype, 2, 0]);
    if (width && shape.length === 2) assertEquals(dtype, width.name);
  }
  assertEquals(dataStart + covered, fileBytes);
  if (width) {
    const { format, block, scale } = Object.fromEntries(metadata!);
    assertEquals({ format, block, scale }, DECLARED[width.bits as 4 | 8]);
  }
}

const [q4, q8] = [4, 8].map((bits) =>
  concat(...knownBlocks().slice(0, 6).map((b) => blockBytes(bits === 4 ? b.q4 : b.q8)))
);
const VECTOR: Entry = { name: "norm", dtype: "BF16", shape: [3], bytes: new Uint8Array(6) };
const FILES: Record<string, Uint8Array<ArrayBuffer>> = {
  plain: safetensors([f32("a.\u00e9", [2, 3], (n) => n), VECTOR, {
    ...VECTOR,
    name: "none",
    shape: [0, 2],
    bytes: new Uint8Array(),
  }], {
    format: "pt",
  }),
  Q4B32: safetensors([{ name: "w", dtype: "Q4B32", shape: [3, 64], bytes: q4 }, VECTOR], DECLARED[4]),
  Q8B32: safetensors([VECTOR, { name: "w", dtype: "Q8B32", shape: [2, 96], bytes: q8 }], DECLARED[8]),
};

/** Calls `read`; whether it gave something. @throws {Error} anything but a CheckpointError, with the bytes */
async function accepted<T>(
  bytes: Uint8Array,
  read: () => T | Promise<T>,
  check: (result: T) => void,
): Promise<boolean> {
  try {
    check(await read());
    return true;
  } catch (error) {
    if (error instanceof CheckpointError && !/\n/.test(error.message)) return false;
    throw new Error(`these bytes, in base64: ${bytes.toBase64()}`, { cause: error });
  }
}

for (const [name, file] of Object.entries(FILES)) {
  Deno.test(`parseHeader of damaged headers refuses, or keeps its promises (${name})`, async () => {
    const random = new Random(name.charCodeAt(1));
    const header = utf8(headerText(file));
    const dataBytes = file.length - 8 - header.length;
    let good = 0;
    const runs = 5000;
    for (let run = 0; run < runs; run++) {
      const bytes = damaged(header, random);
      const fileBytes = 8 + bytes.length + dataBytes;
      if (await accepted(bytes, () => parseHeader("m", bytes, fileBytes), (h) => checkHeader(h, fileBytes))) good++;
    }
    // Some mistakes change a name, or nothing that matters; most are seen.
    assert(good > 20 && good < runs / 2, `${good} of ${runs} are accepted`);
  });

  Deno.test(`parseHeader of every header cut short refuses (${name})`, async () => {
    const header = utf8(headerText(file));
    for (let length = 0; length < header.length; length++) {
      const cut = header.subarray(0, length);
      assertEquals(await accepted(cut, () => parseHeader("m", cut, file.length), () => {}), false);
    }
  });

  Deno.test(`openCheckpoint and verify of damaged files refuse, or read every byte (${name})`, () =>
    inTemporary(async (directory) => {
      const random = new Random(name.charCodeAt(1) + 1000);
      const path = `${directory}/m`;
      let good = 0;
      for (let run = 0; run < 500; run++) {
        const bytes = damaged(file, random);
        Deno.writeFileSync(path, bytes);
        const checkpoint = { value: undefined as ReturnType<typeof openCheckpoint> | undefined };
        const opened = await accepted(bytes, () => openCheckpoint(path), (result) => {
          assertEquals(result.files.map(({ path, bytes }) => ({ path, bytes })), [{ path, bytes: bytes.length }]);
          checkpoint.value = result;
        });
        if (!opened) continue;
        const blocks = checkpoint.value!.tensors.filter(({ dtype }) => dtype.startsWith("Q"));
        const sound = await accepted(bytes, () => verify(checkpoint.value!, { threads: 1 }), (result) => {
          const count = blocks.reduce((sum, { dtype, bytes }) => sum + bytes * 8 / BITS[dtype], 0);
          assertEquals(result.blocks, count);
        });
        if (sound) good++;
      }
      assert(good > 0, "no damage was harmless");
    }));

  Deno.test(`openCheckpoint of every file cut short, and of every length in its header, refuses (${name})`, () =>
    inTemporary(async (directory) => {
      const path = `${directory}/m`;
      for (let length = 0; length < file.length; length++) {
        Deno.writeFileSync(path, file.subarray(0, length));
        assertEquals(await accepted(file.subarray(0, length), () => openCheckpoint(path), () => {}), false);
      }
      const right = file[0] + 256 * file[1];
      for (let n = 0; n < 500; n++) {
        if (n === right) continue;
        const bytes = file.slice();
        bytes.set([n & 255, n >> 8]);
        Deno.writeFileSync(path, bytes);
        assertEquals(await accepted(bytes, () => openCheckpoint(path), () => {}), false, String(n));
      }
    }));
}

Deno.test("openCheckpoint of damaged indexes refuses, or reads the shards in the directory and no others", () =>
  inTemporary(async (directory) => {
    const random = new Random(77);
    write(directory, { "outside.safetensors": safetensors([VECTOR]) });
    const inside = `${directory}/in`;
    writeShards(inside, {
      "a.safetensors": [VECTOR],
      "b.safetensors": [f32("x", [2], (n) => n), f32("y", [], () => 1)],
    });
    const path = `${inside}/model.safetensors.index.json`;
    const index = Deno.readFileSync(path);
    const climbing = utf8("../");
    let good = 0;
    for (let run = 0; run < 2000; run++) {
      let bytes = damaged(index, random);
      if (random.below(4) === 0) {
        const at = random.below(bytes.length);
        bytes = concat(bytes.subarray(0, at), climbing, bytes.subarray(at));
      }
      Deno.writeFileSync(path, bytes);
      const fine = await accepted(bytes, () => openCheckpoint(inside), ({ files, tensors }) => {
        assertEquals(files.map((file) => file.path), ["a", "b"].map((name) => `${inside}/${name}.safetensors`));
        assertEquals(tensors.map(({ name }) => name), ["norm", "x", "y"]);
      });
      if (fine) good++;
    }
    assert(good > 0, "no damage was harmless");
  }));

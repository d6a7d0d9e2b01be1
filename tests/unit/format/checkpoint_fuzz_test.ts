// Damaged files: whatever the bytes, the readers end in a CheckpointError or in a parse that holds what it says.

import { assert, assertEquals } from "@std/assert";
import { openCheckpoint } from "../../../lib/format/checkpoint.ts";
import { type Header, parseHeader } from "../../../lib/format/safetensors.ts";
import { verify } from "../../../lib/quantize/verify.ts";
import { blockBytes, DECLARED, known, knownBlocks } from "../../support/blocks.ts";
import { concat, utf8 } from "../../support/bytes.ts";
import { inTemporary, write } from "../../support/files.ts";
import { accepted, damaged, rounds, Tally } from "../../support/fuzz.ts";
import { Random } from "../../support/random.ts";
import { type Entry, f32, headerText, safetensors, writeShards } from "../../support/safetensors.ts";

/** Bits of an element; of blocks, bits of 32. */
const BITS: Record<string, number> = { F32: 32, BF16: 16, U8: 8, I8: 8, Q4B32: 144, Q8B32: 272 };

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

const [q4, q8] = [4, 8].map((bits) => concat(...knownBlocks().slice(0, 6).map((b) => blockBytes(known(b, bits)))));
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

for (const [name, file] of Object.entries(FILES)) {
  Deno.test(`parseHeader of damaged headers refuses, or keeps its promises (${name})`, async () => {
    const random = new Random(name.charCodeAt(1));
    const header = utf8(headerText(file));
    const dataBytes = file.length - 8 - header.length;
    const tally = new Tally(`headers (${name})`);
    const runs = rounds(5000);
    for (let run = 0; run < runs; run++) {
      const bytes = damaged(header, random);
      const fileBytes = 8 + bytes.length + dataBytes;
      await accepted(bytes, () => parseHeader("m", bytes, fileBytes), (h) => checkHeader(h, fileBytes), tally);
    }
    tally.print();
    // Some mistakes change a name, or nothing that matters; most are seen.
    assert(tally.accepted > 20 && tally.accepted < runs / 2, `${tally.accepted} of ${runs} are accepted`);
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
      const tally = new Tally(`files that verify reads (${name})`);
      for (let run = 0; run < rounds(500); run++) {
        const start = performance.now();
        const bytes = damaged(file, random);
        Deno.writeFileSync(path, bytes);
        const checkpoint = { value: undefined as ReturnType<typeof openCheckpoint> | undefined };
        const opened = await accepted(bytes, () => openCheckpoint(path), (result) => {
          assertEquals(result.files.map(({ path, bytes }) => ({ path, bytes })), [{ path, bytes: bytes.length }]);
          checkpoint.value = result;
        });
        if (!opened) {
          tally.add(false, start);
          continue;
        }
        const blocks = checkpoint.value!.tensors.filter(({ dtype }) => dtype.startsWith("Q"));
        const sound = await accepted(bytes, () => verify(checkpoint.value!, { threads: 1 }), (result) => {
          const count = blocks.reduce((sum, { dtype, bytes }) => sum + bytes * 8 / BITS[dtype], 0);
          assertEquals(result.blocks, count);
        });
        tally.add(sound, start);
      }
      tally.print();
      assert(tally.accepted > 0, "no damage was harmless");
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
    const climbing = utf8("../../../");
    const tally = new Tally("index.json");
    for (let run = 0; run < rounds(2000); run++) {
      let bytes = damaged(index, random);
      if (random.below(4) === 0) {
        const at = random.below(bytes.length);
        bytes = concat(bytes.subarray(0, at), climbing, bytes.subarray(at));
      }
      Deno.writeFileSync(path, bytes);
      await accepted(bytes, () => openCheckpoint(inside), ({ files, tensors }) => {
        assertEquals(files.map((file) => file.path), ["a", "b"].map((name) => `${inside}/${name}.safetensors`));
        assertEquals(tensors.map(({ name }) => name), ["norm", "x", "y"]);
      }, tally);
    }
    tally.print();
    assert(tally.accepted > 0, "no damage was harmless");
  }));

import { assert, assertEquals } from "@std/assert";
import { partOf } from "../../../lib/quantize/parts.ts";
import { Random } from "../../support/random.ts";

/** Tensors of the kinds that a checkpoint has: matrices, vectors, scalars and empty ones. */
function tensors(random: Random) {
  return Array.from({ length: random.below(8) }, (_, n) => {
    const shape = random.pick([[], [random.below(300)], [random.below(40), 32 * random.below(3)], [3, 5, 7]]);
    return { name: `t${n}`, shape, bytes: shape.reduce((a, b) => a * b, 2) };
  });
}

Deno.test("partOf gives every row of every tensor to one part, in order, and cuts only matrices above a part", () => {
  const random = new Random(7);
  for (let round = 0; round < 2000; round++) {
    const all = tensors(random);
    const total = all.reduce((sum, { bytes }) => sum + bytes, 0);
    const count = 1 + random.below(round % 2 ? 8 : 40);
    const largest = Math.max(0, ...all.map(({ bytes, shape }) => shape.length === 2 ? bytes / shape[0] || 0 : bytes));
    const found: string[] = [];
    for (let number = 1; number <= count; number++) {
      let size = 0;
      for (const { tensor, rows } of partOf(all, { number, count })) {
        const { begin, end } = rows ?? { begin: 0, end: 1 };
        assert(begin < end);
        if (rows) assert(tensor.shape.length === 2 && tensor.bytes * count > total && end <= tensor.shape[0]);
        for (let row = begin; row < end; row++) found.push(rows ? `${tensor.name} ${row}` : tensor.name);
        size += rows ? (end - begin) * tensor.bytes / tensor.shape[0] : tensor.bytes;
      }
      // Both ends are moved by at most half of what can't be cut there.
      assert(size <= total / count + Math.max(largest, total / count) + 1, `${size} of ${total} / ${count}`);
    }
    const expected = all.flatMap(({ name, shape }) => {
      if (found.includes(name)) return [name];
      return Array.from({ length: shape[0] }, (_, row) => `${name} ${row}`);
    });
    assertEquals(found, expected);
  }
});

Deno.test("partOf divides by bytes: equal tensors into equal parts, and a large matrix between its rows", () => {
  const equal = Array.from({ length: 12 }, () => ({ shape: [4, 32], bytes: 72 }));
  for (const count of [1, 2, 3, 4, 6, 12]) {
    for (let number = 1; number <= count; number++) {
      assertEquals(partOf(equal, { number, count }), equal.slice(0, 12 / count).map((tensor) => ({ tensor })));
    }
  }
  const large = [{ shape: [10, 32], bytes: 180 }, { shape: [2], bytes: 20 }];
  const of = (number: number) => partOf(large, { number, count: 4 }).map(({ tensor, rows }) => rows ?? tensor.bytes);
  assertEquals([1, 2, 3, 4].map(of), [
    [{ begin: 0, end: 3 }],
    [{ begin: 3, end: 6 }],
    [{ begin: 6, end: 8 }],
    [{ begin: 8, end: 10 }, 20],
  ]);
});

Deno.test("partOf is exact for sizes whose products exceed 2^53", () => {
  const bytes = 2 ** 46;
  const all = Array.from({ length: 100 }, () => ({ shape: [2 ** 30, 2 ** 16], bytes }));
  for (let number = 1; number <= 100; number++) assertEquals(partOf(all, { number, count: 100 }).length, 1);
  assertEquals(partOf(all, { number: 99_999, count: 99_999 }).length, 1);
});

// The numeric core of calibration: the definition and the engine against an independent implementation, bit for bit, and the
// engine against the definition where that is slower to have: other shapes, numbers of threads, and what is refused.

import { assert, assertAlmostEquals, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { NumericError } from "../../../../lib/errors.ts";
import { type BlockFormat, Q4B32, Q8B32, widthNamed } from "../../../../lib/format/blocks.ts";
import type { Calibration, Inputs, Shape, Solution } from "../../../../lib/quantize/calibrate/calibration.ts";
import { Definition } from "../../../../lib/quantize/calibrate/definition.ts";
import { Engine } from "../../../../lib/quantize/calibrate/engine.ts";
import { fixture } from "../../../support/fixtures.ts";

/** A case of fixtures/solver.json. */
interface Known {
  seed: number;
  columns: number;
  rows: number;
  tokens: number;
  damping: number;
  target: boolean;
  residual: number;
  first: number;
  scale: number;
  solutions: Record<string, { loss: Solution["loss"]; blocks: string }>;
}

/** The generators of fixtures/make_solver.py. */
function values(seed: number, count: number): Float32Array {
  let state = seed;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) / 2 ** 24 - 0.5;
  });
}

function correlated(seed: number, rows: number, columns: number, by: number): Float32Array {
  const x = values(seed, rows * columns);
  for (let at = 0; at < x.length; at++) if (at % columns > 0) x[at] += Math.fround(by * x[at - 1]);
  return x;
}

/** `b` times a factor, added to `a`. */
function moved(a: Float32Array, b: Float32Array, factor: number): Float32Array {
  return a.map((value, at) => value + Math.fround(b[at] * factor));
}

type Made = Omit<Known, "solutions">;

/** What a case adds. */
function inputsOf({ seed, columns, tokens, target, residual }: Made): Inputs {
  const factors = values(seed + 5, tokens).map((value) => Math.abs(value) + 0.25);
  const x = correlated(seed, tokens, columns, 0.75);
  for (let j = 0; j < columns; j++) x[j] *= 64;
  const x0 = target ? moved(x, values(seed + 1, x.length), 0.125) : undefined;
  if (residual === 0) return { tokens, x, x0, factors };
  const r = correlated(seed + 2, tokens, residual, 0.5);
  return { tokens, x, x0, r, r0: moved(r, values(seed + 3, r.length), 0.25), factors };
}

function weightsOf({ seed, columns, rows, scale }: Made): Float32Array {
  const w = correlated(seed + 4, rows, columns, 0.25).map((value) => value * scale);
  w.fill(0, columns, 2 * columns);
  return w.fill(0, 2 * columns, 2 * columns + 32);
}

/** Runs a case up to its factors. */
async function prepared(core: Calibration, made: Made): Promise<void> {
  core.begin({ columns: made.columns, target: made.target, residual: made.residual });
  await core.add(inputsOf(made));
  assertEquals(await core.factor(made.damping), -1);
}

const IMPLEMENTATIONS: Record<string, () => Calibration> = {
  Definition: () => new Definition(),
  "Engine of one thread": () => new Engine({ threads: 1 }),
  "Engine of three threads": () => new Engine({ threads: 3 }),
};

for (const [name, start] of Object.entries(IMPLEMENTATIONS)) {
  Deno.test(`${name} gives the blocks and the losses of the independent implementation`, async () => {
    const core = start();
    for (const known of fixture<Known[]>("solver.json")) {
      await prepared(core, known);
      for (const [width, { loss, blocks }] of Object.entries(known.solutions)) {
        const format = widthNamed(width);
        const { rows, first } = known;
        const solution = await core.solve({ format, rows, first, weights: weightsOf(known) });
        assertEquals(solution.loss, loss);
        assertEquals(solution.blocks.toHex(), blocks);
      }
    }
    core.close();
  });

  Deno.test(`${name} refuses what is not finite`, async () => {
    const core = start();
    const shape = { columns: 32, target: false, residual: 0 };
    for (const bad of [NaN, Infinity, 3e38]) {
      core.begin(shape);
      await core.add({ tokens: 1, x: values(1, 32).fill(bad, 7, 8) });
      await assertRejects(() => core.factor(0.3), NumericError, "not finite");
    }
    core.begin(shape);
    await core.add({ tokens: 3, x: values(1, 96) });
    assertEquals(await core.factor(0.3), -1);
    for (const bad of [NaN, Infinity, -Infinity, 1e30]) {
      const weights = values(2, 64).fill(bad, 40, 41);
      await assertRejects(() => core.solve({ format: Q4B32, rows: 2, first: 0, weights }), NumericError);
    }
    core.close();
  });

  Deno.test(`${name} says where a Hessian is not positive definite, and goes on with more damping`, async () => {
    const core = start();
    core.begin({ columns: 64, target: false, residual: 0 });
    // Columns 20 and 40 are always zero.
    const x = values(3, 64 * 100).map((value, at) => [20, 40].includes(at % 64) ? 0 : value);
    await core.add({ tokens: 100, x });
    assertEquals(await core.factor(0), 40);
    assertEquals(await core.factor(0.01), -1);
    const { loss } = await core.solve({ format: Q4B32, rows: 1, first: 0, weights: values(4, 64) });
    assert(loss.after < loss.before);
    core.close();
  });

  Deno.test(`${name} quantizes for inputs that are all zero`, async () => {
    const core = start();
    core.begin({ columns: 32, target: true, residual: 32 });
    const [x, r] = [new Float32Array(64), new Float32Array(64)];
    await core.add({ tokens: 2, x, x0: x, r, r0: r });
    assertEquals(await core.factor(0.3), -1);
    const weights = values(4, 32);
    const { loss, blocks } = await core.solve({ format: Q8B32, rows: 1, first: 0, weights });
    assert(loss.after <= loss.before && loss.after < 1e-3);
    const decoded = new Float32Array(32);
    Q8B32.decode(new DataView(blocks.buffer), 0, 1, decoded);
    for (let j = 0; j < 32; j++) assertAlmostEquals(decoded[j], weights[j], 0.005);
    core.close();
  });

  Deno.test(`${name} refuses lengths that don't fit, and calls out of order`, async () => {
    const core = start();
    const wrong: Shape[] = [
      { columns: 33, target: false, residual: 0 },
      { columns: 0, target: false, residual: 0 },
      { columns: 32, target: false, residual: 16 },
    ];
    for (const shape of wrong) assertThrows(() => core.begin(shape), RangeError);
    core.begin({ columns: 32, target: true, residual: 32 });
    const x = values(1, 64);
    const bad: Inputs[] = [
      { tokens: 2, x },
      { tokens: 2, x, x0: x, r: x },
      { tokens: 3, x, x0: x, r: x, r0: x },
      { tokens: 2, x, x0: x.subarray(1), r: x, r0: x },
      { tokens: 2, x, x0: x, r: x, r0: x, factors: x },
      { tokens: 0, x: x.subarray(64), x0: x.subarray(64), r: x.subarray(64), r0: x.subarray(64) },
    ];
    for (const inputs of bad) await assertRejects(() => core.add(inputs), RangeError);
    const rows = { format: Q4B32, rows: 1, first: 0, weights: values(2, 32) };
    await core.add({ tokens: 2, x, x0: x, r: x, r0: x });
    await assertRejects(() => core.solve(rows), RangeError);
    await core.factor(0.3);
    await assertRejects(() => core.factor(0.3), RangeError);
    await assertRejects(() => core.add({ tokens: 2, x, x0: x, r: x, r0: x }), RangeError);
    for (const change of [{ first: 32 }, { first: 1 }, { first: -16 }, { rows: 0 }, { rows: 2 }]) {
      await assertRejects(() => core.solve({ ...rows, ...change }), RangeError);
    }
    core.close();
  });
}

/** Shapes with several panels of tokens at once, calls of several lengths, blocks that are not full, and one tile more. */
const SHAPES: Made[] = [
  { seed: 1, columns: 160, rows: 35, tokens: 700, damping: 0.1, target: true, residual: 96, first: 16, scale: 0.1 },
  { seed: 2, columns: 32, rows: 1, tokens: 1, damping: 0.5, target: true, residual: 0, first: 0, scale: 3e4 },
  { seed: 3, columns: 64, rows: 33, tokens: 2500, damping: 0.3, target: false, residual: 0, first: 0, scale: 1e-6 },
];

Deno.test("Engine gives what Definition gives, at every number of threads", async () => {
  const solved = async (core: Calibration, made: Made, format: BlockFormat) => {
    await prepared(core, made);
    const { rows, first } = made;
    return await core.solve({
      format,
      rows,
      first,
      weights: weightsOf({ ...made, rows: Math.max(rows, 3) }).subarray(0, rows * made.columns),
    });
  };
  const engines = [1, 2, 3].map((threads) => new Engine({ threads }));
  for (const made of SHAPES) {
    for (const format of [Q4B32, Q8B32]) {
      const wanted = await solved(new Definition(), made, format);
      for (const engine of engines) assertEquals(await solved(engine, made, format), wanted);
    }
  }
  for (const engine of engines) engine.close();
});

Deno.test("rows are solved alike in one call and in several", async () => {
  const made = SHAPES[0];
  const engine = new Engine({ threads: 2 });
  await prepared(engine, made);
  const { rows, first, columns } = made;
  const weights = weightsOf(made);
  const whole = await engine.solve({ format: Q4B32, rows, first, weights });
  const parts: number[] = [];
  for (let row = 0; row < rows; row += 16) {
    const some = weights.subarray(row * columns, (row + 16) * columns);
    const part = { format: Q4B32, rows: some.length / columns, first: first + row, weights: some };
    parts.push(...(await engine.solve(part)).blocks);
  }
  assertEquals(parts, [...whole.blocks]);
  engine.close();
});

Deno.test("the target makes the quantized model's outputs the float model's", async () => {
  // X0 = 1.25 X, so without damping the float model's outputs are those of 1.25 W.
  const engine = new Engine({ threads: 1 });
  const x = values(9, 64 * 400);
  engine.begin({ columns: 64, target: true, residual: 0 });
  await engine.add({ tokens: 400, x, x0: x.map((value) => value * 1.25) });
  assertEquals(await engine.factor(0), -1);
  const weights = values(10, 64 * 4);
  const { blocks } = await engine.solve({ format: Q8B32, rows: 4, first: 0, weights });
  const decoded = new Float32Array(256);
  Q8B32.decode(new DataView(blocks.buffer), 0, 8, decoded);
  for (let at = 0; at < 256; at++) assertAlmostEquals(decoded[at], 1.25 * weights[at], 0.02);
  engine.close();
});

Deno.test("Engine stops when its signal is aborted", async () => {
  const controller = new AbortController();
  const engine = new Engine({ threads: 2, signal: controller.signal });
  engine.begin({ columns: 64, target: false, residual: 0 });
  controller.abort(new Error("stopped"));
  await assertRejects(() => engine.add({ tokens: 2, x: values(1, 128) }), Error, "stopped");
  engine.close();
});

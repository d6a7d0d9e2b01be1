// Fused multiply-adds: the definition and both modules of kernels against fixtures/fma.json, which Python's fractions made.

import { assert, assertEquals } from "@std/assert";
import { allocate } from "../../../lib/kernels/codec_wasm.ts";
import { fma, isFused } from "../../../lib/kernels/fused.ts";
import { EMULATED_BASE64, WASM_BASE64 } from "../../../lib/kernels/wasm/kernels_wasm.ts";
import { needs } from "../../support/needs.ts";
import { execute } from "../../support/program.ts";
import { fixture, ROOT } from "../../support/fixtures.ts";
import { Random } from "../../support/random.ts";

type Fma = (w: number, x: number, sum: number) => number;

const CASES = fixture<string[]>("fma.json").map((line) => {
  return line.split(" ").map((bits) => parseInt(bits, 16));
});

const view = new DataView(new ArrayBuffer(4));

function valueOf(bits: number): number {
  view.setUint32(0, bits);
  return view.getFloat32(0);
}

/** The bits of a binary32; every NaN counts as the same. */
function bitsOf(value: number): number {
  if (Number.isNaN(value)) return 0x7fc00000;
  view.setFloat32(0, value);
  assert(Object.is(view.getFloat32(0), value), `${value} is no binary32`);
  return view.getUint32(0);
}

function assertKnown(compute: Fma): void {
  for (const [w, x, sum, expected] of CASES) {
    const got = bitsOf(compute(valueOf(w), valueOf(x), valueOf(sum)));
    if (got !== expected) assertEquals(hex(got), hex(expected), [w, x, sum].map(hex).join(" "));
  }
}

function hex(bits: number): string {
  return bits.toString(16).padStart(8, "0");
}

/** The `fused` of a module. */
function fusedOf(base64: string): Fma {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const env = { memory: allocate(1), abort: () => assert(false) };
  return new WebAssembly.Instance(new WebAssembly.Module(bytes), { env }).exports.fused as Fma;
}

const twice: Fma = (w, x, sum) => Math.fround(Math.fround(w * x) + sum);
const inBinary64: Fma = (w, x, sum) => Math.fround(w * x + sum);

Deno.test("fma gives the known answers, which other ways of rounding don't", () => {
  assertEquals(CASES.length, 3600);
  assertKnown(fma);
  for (const [other, least] of [[twice, 400], [inBinary64, 40]] as const) {
    const wrong = CASES.filter(([w, x, sum, expected]) => {
      return bitsOf(other(valueOf(w), valueOf(x), valueOf(sum))) !== expected;
    });
    assert(wrong.length >= least, `${wrong.length}`);
  }
});

Deno.test("The emulating kernels give the known answers, and those of fma for random bits", () => {
  const fused = fusedOf(EMULATED_BASE64);
  assertKnown(fused);
  const random = new Random(3);
  for (let n = 0; n < 200_000; n++) {
    // The exponents are close to each other in half of the cases.
    const exponent = random.below(255);
    const any = () => {
      const own = n % 2 ? random.below(255) : Math.max(0, Math.min(254, 127 + (exponent >> 3) + random.below(40) - 20));
      return valueOf((random.below(2) * 2 ** 31) + own * 2 ** 23 + random.below(2 ** 23));
    };
    const [w, x, sum] = [any(), any(), any()];
    assertEquals(bitsOf(fused(w, x, sum)), bitsOf(fma(w, x, sum)), `${w} ${x} ${sum}`);
  }
});

Deno.test("isFused tells one rounding from two; the kernels give the known answers where it holds", () => {
  assert(isFused(fma));
  assert(!isFused(twice));
  const fused = fusedOf(WASM_BASE64);
  if (isFused(fused)) assertKnown(fused);
});

const X64 = Deno.build.arch === "x86_64";

needs(
  "A processor without FMA gives the same bits",
  { lacks: X64 ? [] : ["needs x86-64"] },
  async () => {
    const env = { DENO_V8_FLAGS: "--no-enable-fma3", RABBIT_FUZZ_MODELS: "8" };
    const run = (...args: string[]) => execute(Deno.execPath(), args, { env, cwd: ROOT });
    // The engine has no such instruction then, so that the kernels are the emulating ones.
    const script = `
const { allocate, instantiate } = await import("${ROOT}lib/kernels/codec_wasm.ts");
const { isFused } = await import("${ROOT}lib/kernels/fused.ts");
const { WASM_BASE64 } = await import("${ROOT}lib/kernels/wasm/kernels_wasm.ts");
const bytes = Uint8Array.from(atob(WASM_BASE64), (c) => c.charCodeAt(0));
const memory = allocate(1);
const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes), { env: { memory, abort() {} } });
console.log(isFused(exports.fused), isFused(instantiate(memory).fused));`;
    assertEquals(await run("eval", script), { code: 0, out: "false true\n", err: "" });
    const { code, err } = await run("test", "--no-check", "--allow-all", "tests/unit/kernels/pool_fuzz_test.ts");
    assertEquals(code, 0, err);
  },
);

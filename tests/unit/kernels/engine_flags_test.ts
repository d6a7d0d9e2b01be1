/**
 * The engine's flags: what they are for each machine, and that V8 does with them what they are there for.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { dirname } from "@std/path/dirname";
import binaryen from "assemblyscript/binaryen";
import { engineFlags } from "../../../lib/kernels/engine_flags.ts";
import { EMULATED_BASE64, WASM_BASE64 } from "../../../lib/kernels/wasm/kernels_wasm.ts";
import { MARGIN_BYTES } from "../../../lib/kernels/codec_wasm.ts";
import { inTemporary } from "../../support/files.ts";
import { ROOT, TINY } from "../../support/fixtures.ts";
import { needs } from "../../support/needs.ts";
import { execute, text } from "../../support/program.ts";

const REVECTORIZE = "--experimental-wasm-revectorize";

Deno.test("only Linux on x86-64 is asked for 256-bit operations", () => {
  assert(engineFlags({ os: "linux", arch: "x86_64" }).includes(REVECTORIZE));
  for (const machine of [{ os: "linux", arch: "aarch64" }, { os: "darwin", arch: "x86_64" }]) {
    assert(!engineFlags(machine).includes(REVECTORIZE));
  }
});

Deno.test("docs/performance.md: what it says to run with the flags runs with them", async () => {
  const line = Deno.readTextFileSync(`${ROOT}docs/performance.md`).match(/^DENO_V8_FLAGS=\$\(.*$/m)![0];
  const path = `${dirname(Deno.execPath())}:${Deno.env.get("PATH")}`;
  const shown = line.replace("main.ts --version", "eval 'console.log(Deno.env.get(\"DENO_V8_FLAGS\"))'")
    .replace("run --allow-all eval", "eval");
  for (const [command, wanted] of [[line, /^rabbit \d/], [shown, /--no-wasm-bounds-checks/]] as const) {
    const { code, out } = await execute("sh", ["-c", command], { cwd: ROOT, env: { PATH: path } });
    assertEquals(code, 0, command);
    assertMatch(out, wanted);
  }
});

Deno.test("the task `rabbit` runs in the directory where it is called", () =>
  inTemporary(async (cwd) => {
    const args = ["task", "--quiet", "--config", `${ROOT}deno.json`, "rabbit", "gen", "--out", "a model"];
    // Where a task runs these tests, it has said where that was called.
    const { INIT_CWD: _, ...env } = Deno.env.toObject();
    const { code, err } = await execute(Deno.execPath(), args, { cwd, env, clearEnv: true });
    assertEquals([code, err], [0, ""]);
    assert(Deno.statSync(`${cwd}/a model/model.safetensors`).isFile);
  }));

/** Runs the program with one fault: the kernel that normalizes rows is given an address beyond the end of its memory. */
const FAULTY = `
const real = WebAssembly.Instance;
WebAssembly.Instance = function (module, imports) {
  const { exports } = new real(module, imports);
  return { exports: { ...exports, rms_norm: (_, ...rest) => exports.rms_norm(0xf0000000, ...rest) } };
};
await import(${JSON.stringify(new URL("../../../main.ts", import.meta.url))});`;

Deno.test("RABBIT_CHECKED=1: a wrong address of a kernel is an error; without it the process ends by SIGSEGV", () =>
  inTemporary(async (cwd) => {
    Deno.writeTextFileSync(`${cwd}/faulty.ts`, FAULTY);
    const ran = async (checked: string) => {
      const env = { NO_COLOR: "1", RABBIT_CHECKED: checked };
      const flags = ["run", "--allow-env=RABBIT_CHECKED", `${ROOT}lib/kernels/engine_flags.ts`];
      const printed = await execute(Deno.execPath(), flags, { env });
      const args = ["run", "--no-check", "--allow-all", "--config", `${ROOT}deno.json`, `${cwd}/faulty.ts`];
      return await new Deno.Command(Deno.execPath(), {
        args: [...args, "infer", "--model", TINY, "--ids", "1 2 3", "--threads", "1"],
        env: { ...env, DENO_V8_FLAGS: printed.out.trim() },
      }).output();
    };
    const [checked, unchecked] = [await ran("1"), await ran("")];
    assertEquals(text(checked), {
      code: 2,
      out: text(checked).out,
      err: "rabbit: infer: internal error, please report it: memory access out of bounds\n",
    });
    // macOS has another signal for it.
    assert(["SIGSEGV", "SIGBUS"].includes(String(unchecked.signal)), `${unchecked.signal}`);
  }));

Deno.test("the margin at the end of a memory is larger than what an instruction of a kernel adds to an address", () => {
  const offsets = [WASM_BASE64, EMULATED_BASE64].flatMap((base64) => {
    const module = binaryen.readBinary(Uint8Array.fromBase64(base64));
    return [...module.emitText().matchAll(/\boffset=(\d+)/g)].map(([, offset]) => Number(offset));
  });
  assert(offsets.length > 2000);
  // The widest access is 32 bytes: two of 16, which V8 puts together.
  assert(Math.max(...offsets) + 32 <= MARGIN_BYTES);
});

/** Compiles the kernels, all at once and on one thread, and prints the index of each export. V8 prints the rest. */
const SCRIPT = `
const { allocate, instantiate } = await import("${ROOT}lib/kernels/codec_wasm.ts");
const kernels = instantiate(allocate(1));
for (const [name, kernel] of Object.entries(kernels)) {
  if (typeof kernel === "function") console.log("export " + name + " " + kernel.name);
}`;

const AVX2 = Deno.build.os === "linux" && Deno.build.arch === "x86_64" &&
  /^flags.* avx2( |$)/m.test(Deno.readTextFileSync("/proc/cpuinfo"));

needs(
  "V8 makes 256-bit operations of the products",
  { lacks: AVX2 ? [] : ["needs Linux and a processor with AVX2"] },
  async () => {
    const flags = [
      ...engineFlags(),
      "--trace-wasm-revectorize",
      "--no-liftoff",
      "--no-wasm-lazy-compilation",
      "--single-threaded",
    ];
    const { code, out, err } = await execute(Deno.execPath(), ["eval", SCRIPT], {
      env: { DENO_V8_FLAGS: flags.join(",") },
    });
    assertEquals([code, err], [0, ""]);
    const decided = new Set(
      out.split("Begin revec function wasm-function#").slice(1)
        .filter((trace) => /: Decided to vectorize, [1-9]/.test(trace)).map((trace) => trace.match(/^\d+/)![0]),
    );
    const names = Object.fromEntries(
      [...out.matchAll(/^export (\w+) (\d+)$/gm)].map(([, name, index]) => [name, index]),
    );
    const products = Object.keys(names).filter((name) => /^(f32|i8|i16)_/.test(name) && !name.startsWith("i16_q4"));
    assert(products.length >= 14, `${products}`);
    assertEquals(products.filter((name) => !decided.has(names[name])), []);
  },
);

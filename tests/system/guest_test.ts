/**
 * `deno task guest` with the executable that RABBIT_BIN names: boots under QEMU, a quarter of a minute each.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { findTools, Missing } from "../../tools/guest/guest.ts";
import { inTemporary } from "../support/files.ts";
import { ROOT, TINY } from "../support/fixtures.ts";
import { EXECUTABLE, has, needs } from "../support/needs.ts";
import { execute, rabbit, type Ran } from "../support/program.ts";

const PROGRAMS = ["qemu-system-x86_64", "busybox"];

/** What a guest lacks though the executable and the programs are there: a kernel, which is downloaded once. */
function missing(): string[] {
  if (!Deno.env.get("RABBIT_BIN") || !PROGRAMS.every(has)) return [];
  try {
    findTools();
    return [];
  } catch (error) {
    if (error instanceof Missing) return [error.message];
    throw error;
  }
}
const kernel = missing();

/** Runs the task. */
function guest(args: readonly string[], env: Record<string, string> = {}): Promise<Ran> {
  return execute(Deno.execPath(), ["run", "--allow-all", `${ROOT}tools/guest/main.ts`, ...args], { env });
}

function boots(name: string, fn: (directory: string) => Promise<void>): void {
  needs(name, { programs: PROGRAMS, variables: EXECUTABLE, missing: kernel }, () => inTemporary(fn));
}

async function run(directory: string, ...commands: string[]): Promise<void> {
  for (const command of commands) {
    const ran = await rabbit(directory, command.split(" "));
    assertEquals(ran.code, 0, ran.err);
  }
}

boots(
  "a guest boots, finds that four bits keep the answer of the development model, and the task exits 0",
  async () => {
    const { code, out, err } = await guest([]);
    assertEquals({ code, err }, { code: 0, err: "" }, out);
    assertMatch(out, /^COMPARE reference_float=unknown reference_quant=unknown$/m);
    assertMatch(out, /^COMPARE result match=true tokens=8 max_diff=0\.000000 mean_diff=0\.000000000$/m);
    assertMatch(out, /^COMPARE OK\nGUEST memory total=\d+ idle=\d+ most=\d+ peak_rss=\d+\nGUEST exit=0\n$/m);
  },
);

boots(
  "a quantized file that is broken makes the guest and the task exit 2, with one line that says where",
  async (dir) => {
    await run(dir, "gen --exact 4 --out dev", "quantize --in dev --out q4 --bits 4");
    const path = `${dir}/q4/model.safetensors`;
    const bytes = Deno.readFileSync(path);
    const dataStart = 8 + new DataView(bytes.buffer).getUint32(0, true);
    bytes.set([0x00, 0x7e], dataStart); // the first scale is NaN
    Deno.writeFileSync(path, bytes);
    const { code, out } = await guest([`${dir}/dev`, path]);
    assertEquals(code, 2, out);
    const lines = out.split("\n").filter((line) => line !== "" && !line.startsWith("GUEST "));
    assertEquals(lines.length, 1, out);
    assertMatch(lines[0], /^rabbit: compare: \/model-q4\.safetensors: .*scale/);
  },
);

boots(
  "a quantized model with another answer makes the guest and the task exit 1; arguments after -- reach it",
  async (dir) => {
    await run(
      dir,
      "gen --exact 8 --out dev",
      "gen --seed 1 --exact 8 --out other",
      "quantize --in other --out q8 --bits 8",
    );
    const command = ["compare", "/model.safetensors", "/model-q8.safetensors", "--ids", "5 6 7", "--steps", "3"];
    const { code, out } = await guest([`${dir}/dev`, `${dir}/q8`, "--", ...command]);
    assertEquals(code, 1, out);
    assertMatch(out, /^COMPARE result match=false tokens=3 /m);
    assertMatch(out, /^COMPARE DIFFER$/m);
  },
);

// The tiny model: the development model takes minutes of emulation.
boots("a calibration in a guest gives the digest of the host", async (dir) => {
  const options = "--calibrate self --tokens 64 --window 32 --threads 1".split(" ");
  const host = await rabbit(dir, ["quantize", TINY, "out", ...options]);
  const [digest] = /digest=[0-9a-f]{64}$/m.exec(host.out)!;
  const command = ["quantize", "/model.safetensors", "/out", ...options];
  const { code, out } = await guest([TINY, "--memory", "512", "--", ...command]);
  assertEquals(code, 0, out);
  assertMatch(out, new RegExp(`^QUANT ratio=.* ${digest}$`, "m"));
});

boots("with too little memory the task says in one line how much is enough, and exits 2", async () => {
  const { code, out } = await guest(["--memory", "64"]);
  assertEquals(code, 2, out);
  assertMatch(out, /^guest: no result with a memory of 64 MiB, \d+ are enough: .+\n$/);
});

Deno.test("the guest task says in one sentence what to install", async () => {
  await inTemporary(async (directory) => {
    // A PATH with nothing in it; the places where Debian has them are searched too.
    const { code, out, err } = await guest([], { PATH: directory, RABBIT_BIN: `${directory}/none` });
    assertEquals({ code, out }, { code: 2, out: "" });
    assertMatch(err, /^guest: (a guest needs more: apt-get install .*|no executable .*: deno task compile, .*)\n$/);
    assert(!err.includes("    at "), err);
  });
});

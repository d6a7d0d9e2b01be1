import { assertEquals, assertMatch, assertThrows } from "@std/assert";
import { embedded } from "../../tools/bill_of_materials.ts";
import { platformOf } from "../../tools/platform.ts";
import config from "../../deno.json" with { type: "json" };
import { utf8 } from "../support/bytes.ts";
import { inTemporary, sha256, tree } from "../support/files.ts";
import { ROOT } from "../support/fixtures.ts";
import { EXECUTABLE, needs, path } from "../support/needs.ts";
import { execute } from "../support/program.ts";

const { version } = config;

/** A file of zeros with little-endian numbers of 16 or 32 bits and texts at places. */
function file(parts: Record<number, number | string>, wide: readonly number[] = []): Uint8Array {
  const bytes = new Uint8Array(400);
  const view = new DataView(bytes.buffer);
  for (const [at, part] of Object.entries(parts).map(([at, part]) => [Number(at), part] as const)) {
    if (typeof part === "string") bytes.set(utf8(part), at);
    else if (wide.includes(at)) view.setUint32(at, part, true);
    else view.setUint16(at, part, true);
  }
  return bytes;
}

Deno.test("the platform of an executable is in its header", () => {
  const elf = (machine: number, text: string) => platformOf(file({ 0: "\x7fELF", 18: machine, 100: text }));
  assertEquals(elf(62, "GLIBC_2.2.5\0GLIBC_2.17\0GLIBC_2.9\0GLIBC_PRIVATE\0"), {
    wheel: "manylinux_2_17_x86_64",
    npm: { os: "linux", cpu: "x64", libc: "glibc" },
  });
  // The last one is no whole name.
  assertEquals(elf(183, "GLIBC_2.28\0GLIBC_2.31 is a later one").wheel, "manylinux_2_28_aarch64");
  // Two load commands: LC_SEGMENT_64 of 40 bytes, and LC_BUILD_VERSION or LC_VERSION_MIN_MACOSX.
  const wide = [0, 4, 16, 32, 36, 72, 76, 80, 84];
  const macho = (processor: number, command: Record<number, number>) =>
    platformOf(file({ 0: 0xfeedfacf, 4: processor, 16: 2, 32: 0x19, 36: 40, ...command }, wide));
  assertEquals(macho(0x0100000c, { 72: 0x32, 76: 24, 80: 1, 84: 0x000c0300 }), {
    wheel: "macosx_12_0_arm64",
    npm: { os: "darwin", cpu: "arm64" },
  });
  assertEquals(macho(0x01000007, { 72: 0x24, 76: 16, 80: 0x000a0f00 }).wheel, "macosx_10_15_x86_64");
  for (const bytes of [utf8("#!/bin/sh\n"), file({ 0: "\x7fELF", 18: 243 }), file({ 0: "MZ" })]) {
    assertThrows(() => platformOf(bytes), Error, "not an executable for Linux or macOS");
  }
  assertThrows(() => elf(62, "no version"), Error, "needs no glibc");
});

Deno.test("the packages that the executable embeds are those of deno.lock, with what they need", () => {
  const lock = JSON.parse(Deno.readTextFileSync(`${ROOT}deno.lock`));
  const names = embedded(config.imports, lock).map(({ name, version }) => `${name}@${version}`);
  for (const wanted of ["cli-progress@3.12.0", "deno-std@1.4.0", "string-width@4.2.3", "ansi-regex@5.0.1"]) {
    assertEquals(names.includes(wanted), true, wanted);
  }
  assertEquals(names.filter((name) => /typescript|puppeteer|fflate|ajv/.test(name)), []);
  const one = { integrity: "sha512-AAEC" };
  const made = embedded({ x: "npm:@a/b@1/c.js", y: "npm:d@2", fflate: "npm:f@1", z: "./z.ts" }, {
    specifiers: { "npm:@a/b@1": "1.5.0", "npm:d@2": "2.0.0_e@3.0.0", "npm:f@1": "1.0.0" },
    npm: {
      "@a/b@1.5.0": { ...one, dependencies: ["e", "g@1.0.0"] },
      "d@2.0.0_e@3.0.0": one,
      "e@3.0.0": one,
      "g@1.0.0": one,
    },
  });
  assertEquals(made.map(({ name, version, sha512 }) => `${name} ${version} ${sha512}`), [
    "@a/b 1.5.0 000102",
    "d 2.0.0 000102",
    "e 3.0.0 000102",
    "g 1.0.0 000102",
  ]);
});

Deno.test("what can't be packed is refused in one line", async () => {
  for (
    const [args, message] of [
      [["none"], /^packages: cannot read none: .*\n$/],
      [["deno.json"], /^packages: the executable was not compiled by Deno .*\n$/],
      [["--help"], /^packages: unknown option --help; usage: .*\n$/],
      [["a", "b"], /^packages: usage: .*\n$/],
    ] as const
  ) {
    const script = ["run", "--frozen", "--allow-all", `${ROOT}tools/packages.ts`];
    const { code, out, err } = await execute(Deno.execPath(), [...script, ...args], { cwd: ROOT });
    assertEquals([code, out], [2, ""]);
    assertMatch(err, message);
  }
});

/** Checks a wheel as the specification says, by Python: every file is in RECORD with its hash and size. */
const CHECK_WHEEL = `
import base64, csv, hashlib, io, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    names = wheel.namelist()
    record = next(name for name in names if name.endswith(".dist-info/RECORD"))
    rows = {path: (digest, size) for path, digest, size in csv.reader(io.StringIO(wheel.read(record).decode()))}
    assert sorted(rows) == sorted(names), names
    for name in names:
        data = wheel.read(name)
        digest = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        assert name == record or rows[name] == (digest, str(len(data))), name
    assert {entry.date_time for entry in wheel.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    print(sorted(names))
`;

needs(
  "the wheel and the npm package are the same each time, and install the executable where there is no Deno",
  { variables: EXECUTABLE, programs: ["python3", "npm", "npx", "node", "sha256sum"] },
  () =>
    inTemporary(async (directory) => {
      const made = `${directory}/made`;
      // Programs of the system, without Deno.
      const bin = `${directory}/bin`;
      Deno.mkdirSync(bin);
      for (const name of ["node", "npm", "npx", "sh", "env"]) Deno.symlinkSync(path(name)!, `${bin}/${name}`);
      const env = { PATH: bin, HOME: directory };
      const run = async (program: string, args: string[], options: Deno.CommandOptions = {}) => {
        const { code, out, err } = await execute(program, args, { cwd: directory, ...options });
        assertEquals(code, 0, `${program} ${args.join(" ")}: ${err}`);
        return out;
      };
      const build = async (output: string, TZ: string) => {
        const script = ["run", "--frozen", "--allow-all", `${ROOT}tools/packages.ts`];
        await run(Deno.execPath(), [...script, Deno.env.get("RABBIT_BIN")!, "--output", output], {
          cwd: ROOT,
          env: { TZ },
        });
      };
      await build(made, "UTC");
      await build(`${directory}/again`, "Asia/Tokyo");
      const names = tree(made).sort();
      assertEquals(tree(`${directory}/again`).sort(), names);
      for (const name of names) {
        assertEquals(await sha256(`${made}/${name}`), await sha256(`${directory}/again/${name}`), name);
      }
      const [sums, bill, npm, wheel] = ["SHA256SUMS", ".cdx.json", ".tgz", ".whl"].map((end) =>
        names.find((name) => name.endsWith(end))!
      );
      assertEquals(names.length, 4);
      assertEquals(
        (await run("sha256sum", ["-c", sums], { cwd: made })).trim().split("\n").sort(),
        [bill, npm, wheel].map((name) => `${name}: OK`).sort(),
      );

      const { metadata, components, dependencies } = JSON.parse(Deno.readTextFileSync(`${made}/${bill}`));
      assertEquals(metadata.component.hashes, [{ alg: "SHA-256", content: await sha256(Deno.env.get("RABBIT_BIN")!) }]);
      const found = components.map(({ name, version }: Record<string, string>) => `${name} ${version}`);
      for (const wanted of [`deno ${Deno.version.deno}`, `v8 ${Deno.version.v8}`, "cli-progress 3.12.0"]) {
        assertEquals(found.includes(wanted), true, wanted);
      }
      assertEquals(components.filter(({ licenses }: { licenses?: unknown }) => licenses === undefined), []);
      assertEquals(dependencies.length, components.length + 1);

      const listed = await run("python3", ["-c", CHECK_WHEEL, `${made}/${wheel}`]);
      assertMatch(listed, /\.data\/scripts\/rabbit'/);
      await run("python3", ["-m", "venv", "venv"]);
      await run(`${directory}/venv/bin/pip`, ["install", "-q", "--no-index", `${made}/${wheel}`]);
      Deno.mkdirSync(`${directory}/user`);
      const user = `${directory}/user`;
      await run("npm", ["install", "--offline", "--no-audit", "--no-fund", `${made}/${npm}`], {
        cwd: user,
        env,
        clearEnv: true,
      });
      for (const rabbit of [`${directory}/venv/bin/rabbit`, `${user}/node_modules/.bin/rabbit`]) {
        const options = { env, clearEnv: true };
        assertMatch(
          await run(rabbit, ["--version"], options),
          new RegExp(`^rabbit ${version.replaceAll(".", "\\.")}\\b`),
        );
        await run(rabbit, ["gen", `${rabbit}-model`], options);
        assertMatch(await run(rabbit, ["gate", "--threads", "1"], options), /^GATE OK$/m);
      }
      const npx = await run("npx", ["--yes", "--offline", `./${npm}`, "--version"], { cwd: made, env, clearEnv: true });
      assertMatch(npx, /^rabbit /);
      // It is the executable itself, not a program that starts it.
      assertEquals(await sha256(`${directory}/venv/bin/rabbit`), await sha256(Deno.env.get("RABBIT_BIN")!));
    }),
);

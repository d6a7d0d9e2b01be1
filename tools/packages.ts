/**
 * `deno task packages [EXECUTABLE] [--output DIR]`: packs the executable for pip and npm, so that it can be installed where
 * there is no Deno. Without EXECUTABLE it is compiled first. DIR (default: dist/) gets
 *
 * - `rabbit_cli-VERSION-py3-none-PLATFORM.whl`, whose script is the executable itself: no Python starts with it
 * - `rabbit-cli-OS-CPU-VERSION.tgz`, the npm package `@rabbit/cli-OS-CPU` (`deno task npm` makes that of the library)
 * - `rabbit-OS-CPU-VERSION.cdx.json`, the bill of materials, which both packages contain
 * - `SHA256SUMS` of these files
 *
 * The same executable gives the same bytes: entries are sorted and have one fixed time.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { dirname } from "@std/path/dirname";
import { gzipSync, type Zippable, zipSync } from "fflate";
import { packTar } from "modern-tar";
import { billOfMaterials, embedded } from "./bill_of_materials.ts";
import { type Platform, platformOf } from "./platform.ts";
import config from "../deno.json" with { type: "json" };

const SUMMARY = "Makes, checks and runs quantized checkpoints of Llama-family models";

const root = dirname(import.meta.dirname!);
const USAGE = "usage: deno task packages [EXECUTABLE] [--output DIR]";
const { _: [given, ...more], output } = parseArgs(Deno.args, {
  string: ["_", "output"],
  default: { output: `${root}/dist` },
  unknown: (option: string) => option.startsWith("-") ? fail(`unknown option ${option}; ${USAGE}`) : true,
});
if (more.length > 0) fail(USAGE);
Deno.mkdirSync(output, { recursive: true });
const executable = given === undefined ? compile(`${output}/rabbit`) : read(String(given));
const { version, license } = config;
const deno = Deno.version;
if (!holds(executable, `Deno/${deno.deno}`)) {
  fail(`the executable was not compiled by Deno ${deno.deno}, which runs this task; use the same one`);
}
const platform = platformOf(executable);
const { os, cpu } = platform.npm;
const bill = billOfMaterials({
  version,
  sha256: await sha256(executable, (bytes) => bytes.toHex()),
  deno: deno.deno,
  v8: deno.v8,
  packages: embedded(config.imports, JSON.parse(Deno.readTextFileSync(`${root}/deno.lock`))),
  licenseOf: licensesOf(cacheOf()),
});
const files: [string, Uint8Array][] = [
  [`rabbit-${os}-${cpu}-${version}.cdx.json`, utf8(bill)],
  [`rabbit-cli-${os}-${cpu}-${version}.tgz`, await npmPackage(platform)],
  [`rabbit_cli-${version}-py3-none-${platform.wheel}.whl`, await wheel(platform)],
];
const sums = await Promise.all(
  files.map(async ([name, bytes]) => `${await sha256(bytes, (sum) => sum.toHex())}  ${name}\n`),
);
for (const [name, bytes] of [...files, ["SHA256SUMS", utf8(sums.join(""))] as const]) {
  Deno.writeFileSync(`${output}/${name}`, bytes);
  console.log(`${output}/${name}`);
}

/** The wheel: https://packaging.python.org/specifications/binary-distribution-format/ */
async function wheel({ wheel: tag }: Platform): Promise<Uint8Array> {
  const name = `rabbit_cli-${version}`;
  const info = `${name}.dist-info`;
  const contents: Record<string, Uint8Array> = {
    [`${name}.data/scripts/rabbit`]: executable,
    [`${info}/METADATA`]: utf8(
      [
        "Metadata-Version: 2.4",
        "Name: rabbit-cli",
        `Version: ${version}`,
        `Summary: ${SUMMARY}`,
        `License-Expression: ${license}`,
        "License-File: LICENSE",
        "",
      ].join("\n"),
    ),
    [`${info}/WHEEL`]: utf8(
      `Wheel-Version: 1.0\nGenerator: rabbit ${version}\nRoot-Is-Purelib: false\nTag: py3-none-${tag}\n`,
    ),
    [`${info}/licenses/LICENSE`]: Deno.readFileSync(`${root}/LICENSE`),
    [`${info}/sboms/rabbit.cdx.json`]: utf8(bill),
  };
  const record = `${info}/RECORD`;
  const lines = await Promise.all(
    Object.entries(contents).map(async ([path, bytes]) => {
      const sum = await sha256(bytes, (sum) => sum.toBase64({ alphabet: "base64url", omitPadding: true }));
      return `${path},sha256=${sum},${bytes.length}\n`;
    }),
  );
  contents[record] = utf8(`${lines.join("")}${record},,\n`);
  const zippable: Zippable = {};
  for (const [path, bytes] of Object.entries(contents)) {
    // The upper half is the mode of Unix, which pip keeps.
    zippable[path] = [bytes, { os: 3, attrs: modeOf(path) << 16 }];
  }
  // In the local time of this machine: a ZIP file has no time zone.
  return zipSync(zippable, { mtime: new Date(1980, 0, 1) });
}

/** The npm package. */
async function npmPackage({ npm }: Platform): Promise<Uint8Array> {
  const description = {
    name: `@rabbit/cli-${npm.os}-${npm.cpu}`,
    version,
    description: SUMMARY,
    license,
    bin: { rabbit: "bin/rabbit" },
    os: [npm.os],
    cpu: [npm.cpu],
    ...npm.libc && { libc: [npm.libc] },
    preferUnplugged: true,
  };
  const contents: Record<string, Uint8Array> = {
    "package/LICENSE": Deno.readFileSync(`${root}/LICENSE`),
    "package/bin/rabbit": executable,
    "package/package.json": utf8(JSON.stringify(description, null, 2) + "\n"),
    "package/rabbit.cdx.json": utf8(bill),
  };
  const tar = await packTar(
    Object.entries(contents).map(([name, body]) => {
      const mode = modeOf(name) & 0o777;
      return { header: { name, size: body.length, mode, mtime: new Date(0), uid: 0, gid: 0 }, body };
    }),
  );
  return gzipSync(tar, { mtime: 0 });
}

/** The type and the permissions of a file in a package. */
function modeOf(path: string): number {
  return path.endsWith("/rabbit") ? 0o100755 : 0o100644;
}

/** Reads the executable that is given. */
function read(path: string): Uint8Array<ArrayBuffer> {
  try {
    return Deno.readFileSync(path);
  } catch (error) {
    return fail(`cannot read ${path}: ${error instanceof Error ? error.message : error}`);
  }
}

/** Compiles the executable, and removes it when it has been read. */
function compile(path: string): Uint8Array<ArrayBuffer> {
  const { success } = new Deno.Command(Deno.execPath(), {
    args: ["run", "--frozen", "--allow-all", `${root}/tools/compile.ts`, "--output", path],
  }).outputSync();
  if (!success) fail("deno task compile failed; run it alone to see why");
  try {
    return Deno.readFileSync(path);
  } finally {
    Deno.removeSync(path);
  }
}

/** The directory of Deno's cache with npm packages, one directory for each registry. */
function cacheOf(): string {
  const { stdout } = new Deno.Command(Deno.execPath(), { args: ["info", "--json"] }).outputSync();
  return JSON.parse(new TextDecoder().decode(stdout)).npmCache;
}

/** Reads licenses from the cached packages. */
function licensesOf(cache: string): (name: string, version: string) => string | undefined {
  return (name, version) => {
    for (const { name: registry } of Deno.readDirSync(cache)) {
      try {
        const { license } = JSON.parse(Deno.readTextFileSync(`${cache}/${registry}/${name}/${version}/package.json`));
        if (typeof license === "string") return license;
      } catch (error) {
        if (!(error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory)) throw error;
      }
    }
    return undefined;
  };
}

/** Whether bytes contain an ASCII text. */
function holds(bytes: Uint8Array, text: string): boolean {
  const wanted = utf8(text);
  for (let at = bytes.indexOf(wanted[0]); at >= 0; at = bytes.indexOf(wanted[0], at + 1)) {
    if (wanted.every((byte, n) => bytes[at + n] === byte)) return true;
  }
  return false;
}

async function sha256(bytes: Uint8Array, write: (sum: Uint8Array) => string): Promise<string> {
  return write(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>)));
}

function utf8(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

function fail(why: string): never {
  console.error(`packages: ${why}`);
  Deno.exit(2);
}

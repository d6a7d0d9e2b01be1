/**
 * `deno task picture [FLOAT QUANT… OPTIONS]`: writes docs/report.png, the picture in README. It shows the beginning of the
 * page that `rabbit report` writes with these arguments, or that of the built-in model. It needs Chromium, from CHROMIUM
 * or as `chromium` on the PATH.
 *
 * @module
 */

import { dirname } from "@std/path/dirname";

/** What is shown of the page, in CSS pixels, and pixels of the picture for each. */
const [SIZE, SCALE] = ["1100,1350", "1.5"];

const root = dirname(import.meta.dirname!);
const picture = `${root}/docs/report.png`;
const chromium = Deno.env.get("CHROMIUM") || "chromium";
// The task runs in the repository; the paths are relative to where it was called.
const cwd = Deno.env.get("INIT_CWD") ?? Deno.cwd();
const temporary = Deno.makeTempDirSync();
try {
  // Asked first: a report of a large model takes minutes.
  await run(chromium, ["--version"]);
  await run(chromium, [
    ...["--headless", "--no-sandbox", "--hide-scrollbars", `--user-data-dir=${temporary}/profile`],
    ...[`--force-device-scale-factor=${SCALE}`, `--window-size=${SIZE}`, `--screenshot=${temporary}/report.png`],
    `file://${await report()}`,
  ]);
  Deno.copyFileSync(`${temporary}/report.png`, picture);
  console.log(picture);
} catch (error) {
  console.error(`picture: ${(error as Error).message}`);
  Deno.exitCode = 2;
} finally {
  Deno.removeSync(temporary, { recursive: true });
}

/** Writes the page. @returns its path */
async function report(): Promise<string> {
  const out = `${temporary}/report.html`;
  if (Deno.args.length === 0) {
    const [model, quant] = [`${temporary}/model`, `${temporary}/model-q8`];
    await rabbit("gen", model);
    await rabbit("quantize", model, quant, "--bits", "8");
    await rabbit("report", model, quant, "--out", out);
  } else {
    await rabbit("report", ...Deno.args, "--out", out);
  }
  return out;
}

function rabbit(...args: string[]): Promise<void> {
  return run(Deno.execPath(), ["run", "--quiet", "--frozen", "--allow-all", `${root}/main.ts`, ...args, "--quiet"]);
}

/** Runs a program to its end. @throws {Error} with one line, if there is no such program, or it fails */
async function run(program: string, args: readonly string[]): Promise<void> {
  try {
    const { success, stderr } = await new Deno.Command(program, { args: [...args], cwd, stdin: "null" }).output();
    if (success) return;
    throw new Error(new TextDecoder().decode(stderr).trimEnd().split("\n").at(-1) || `${program} failed`);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    throw new Error(`no program ${program}; install chromium, or set CHROMIUM=path`, { cause: error });
  }
}

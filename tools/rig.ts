/**
 * `deno task rig [MODEL] [--name NAME] [--no-smallest] [--table]`: measures memory and speed of each width in a guest
 * and on the host. Boots one guest for the float model and one for each width, each with only the files that it needs,
 * runs the same command on the host, and searches for the smallest guest. Writes the rows as JSON lines to
 * bench/results/quantization (float and Q8B32) and bench/results/quantization-q4 (float and Q4B32), each with a
 * README.md that has the table. The exit status is 1 if a quantized guest does not save as much memory as expected.
 * MODEL is the directory of a float checkpoint (default: the development model). --no-smallest skips the search, which
 * takes seven boots per width; --table only writes the README.md files again from the existing rows.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { basename } from "@std/path/basename";
import { Q8B32, WIDTHS } from "../lib/format/blocks.ts";
import { develop, findTools, Image, Missing, qemuVersion, run, type Tools } from "./guest/guest.ts";

const RESULTS = `${import.meta.dirname}/../bench/results`;
/** The directory of the rows of each width. */
const DIRECTORIES = WIDTHS.map((width) => {
  return [width.name, `${RESULTS}/quantization${width === Q8B32 ? "" : `-q${width.bits}`}`] as const;
});
/** The models, in the order of the measurement. */
const SUBJECTS = ["float", ...WIDTHS.map(({ name }) => name)];
const STEPS = ["--steps", "8", "--ignore-eos"];
const MIB = 2 ** 20;

/** The precision of the search for the smallest guest, in MiB. */
const STEP_MIB = 4;

/** The tolerated difference between the memory saved and the bytes saved in the file: boots vary by a MiB or two. */
const TOLERANCE = { bytes: 3 * MIB, part: 0.02 };

/** The measurements of one run, in bytes unless the name has another unit; null if not measured. */
interface Row {
  model: string;
  width: string;
  where: "guest" | "host";
  /** The emulation, if any. */
  emulation: string;
  rabbit: string;
  kernel: string;
  qemu: string | null;
  cpu: string;
  file: number;
  mapped: number;
  pinned: number;
  memory_total: number;
  /** Memory in use before rabbit starts: the kernel and the unpacked archive. */
  memory_idle: number | null;
  /** The maximum memory in use while rabbit ran. */
  memory_used: number | null;
  /** The resident memory of rabbit at the end, and its peak. */
  rss: number;
  rss_peak: number;
  /** The smallest value of QEMU's -m that works. */
  smallest_mib: number | null;
  tokens: number[];
  activations: string;
  threads: number;
  prefill_tokens_per_s: number;
  decode_tokens_per_s: number;
}

/** The part of a row that `rabbit infer --json` prints. */
function inferred(json: string) {
  const { mapped, pinned, tokens, prefill, decode, rss } = JSON.parse(json);
  const round = (value: number) => Math.round(value * 10) / 10;
  return {
    mapped: mapped.bytes,
    pinned: pinned.bytes,
    rss: rss.bytes,
    tokens,
    activations: decode.activations,
    threads: decode.threads,
    prefill_tokens_per_s: round(prefill.tokens_per_s),
    decode_tokens_per_s: round(decode.tokens_per_s),
  };
}

/** The part that both rows of a width share. */
interface Subject {
  readonly model: string;
  readonly width: string;
  readonly rabbit: string;
  readonly cpu: string;
  readonly file: number;
}

async function onHost(subject: Subject, path: string, tools: Tools): Promise<Row> {
  const process = new Deno.Command(tools.rabbit, {
    args: ["infer", path, "--json", ...STEPS],
    stdout: "piped",
  }).spawn();
  let peak = 0;
  const watch = setInterval(() => {
    try {
      const status = Deno.readTextFileSync(`/proc/${process.pid}/status`);
      peak = Math.max(peak, Number(/^VmHWM:\s*(\d+)/m.exec(status)?.[1] ?? 0) * 1024);
    } catch {
      // The process has ended.
    }
  }, 10);
  const { success, stdout } = await process.output();
  clearInterval(watch);
  if (!success) throw new Missing(`rabbit infer ${path} failed`);
  const found = inferred(new TextDecoder().decode(stdout));
  const total = /^MemTotal:\s*(\d+)/m.exec(Deno.readTextFileSync("/proc/meminfo"))!;
  return {
    ...subject,
    where: "host",
    emulation: "none",
    kernel: /^[\d.]+/.exec(Deno.osRelease())?.[0] ?? "unknown",
    qemu: null,
    memory_total: Number(total[1]) * 1024,
    memory_idle: null,
    memory_used: null,
    smallest_mib: null,
    ...found,
    rss_peak: Math.max(peak, found.rss),
  };
}

async function inGuest(subject: Subject, path: string, tools: Tools, bisect: boolean): Promise<Row> {
  const image = new Image(tools, [path]);
  try {
    const args = [...image.command, "--json", ...STEPS];
    const { status, lines } = await image.boot({ args });
    const text = lines.join("\n");
    if (status !== 0) throw new Missing(`the guest ended with exit status ${status}:\n${text}`);
    const number = (name: string) => Number(new RegExp(`^GUEST memory .*\\b${name}=(\\d+)`, "m").exec(text)![1]);
    return {
      ...subject,
      where: "guest",
      emulation: "tcg",
      kernel: /kernel=(\S+)/.exec(text)![1],
      qemu: qemuVersion(tools),
      memory_total: number("total"),
      memory_idle: number("idle"),
      memory_used: number("most"),
      rss_peak: number("peak_rss"),
      smallest_mib: bisect ? await smallest(image, args) : null,
      ...inferred(lines.find((line) => line.startsWith("{"))!),
    };
  } finally {
    image.close();
  }
}

/** The least memory in MiB, in steps of {@link STEP_MIB}, with which a guest succeeds. */
async function smallest(image: Image, args: readonly string[]): Promise<number> {
  const works = async (memory: number) => {
    const { status, lines } = await image.boot({ args, memory });
    console.log(`  -m ${memory}: ${status === 0 ? "works" : lines.findLast((line) => !line.startsWith("GUEST exit"))}`);
    return status === 0;
  };
  // The search begins at twice the archive, which the kernel needs to unpack it.
  const twice = 2 * image.bytes / MIB;
  let bad = Math.floor(twice / STEP_MIB) * STEP_MIB;
  while (await works(bad)) bad -= 16 * STEP_MIB;
  let good = bad + 16 * STEP_MIB;
  while (!await works(good)) [bad, good] = [good, good + 16 * STEP_MIB];
  while (good - bad > STEP_MIB) {
    const middle = bad + Math.floor((good - bad) / 2 / STEP_MIB) * STEP_MIB;
    if (await works(middle)) good = middle;
    else bad = middle;
  }
  return good;
}

/** Checks the claim that a quantized guest uses less memory than the float one, by the bytes saved in the file. */
function claims(rows: readonly Row[]): { text: string; holds: boolean }[] {
  const guests = rows.filter(({ where }) => where === "guest");
  return guests.filter(({ width }) => width !== "float").map((quantized) => {
    const float = guests.find(({ model, width }) => model === quantized.model && width === "float")!;
    const shrank = float.file - quantized.file;
    const idle = float.memory_idle! - quantized.memory_idle!, used = float.memory_used! - quantized.memory_used!;
    const holds = Math.abs(idle - shrank) <= TOLERANCE.bytes + TOLERANCE.part * shrank &&
      used >= shrank - TOLERANCE.bytes;
    const text = `${quantized.model}: the ${quantized.width} file is ${mib(shrank)} MiB smaller; its guest has ` +
      `${mib(idle)} MiB less in use before rabbit starts and ${mib(used)} MiB less while it runs. ` +
      (holds ? "The claim holds." : "THE CLAIM DOES NOT HOLD.");
    return { text, holds };
  });
}

function mib(bytes: number | null): string {
  return bytes === null ? "" : (bytes / MIB).toFixed(1);
}

/** The table of all rows of a directory. */
function table(rows: readonly Row[]): string {
  const columns: [string, (row: Row) => string][] = [
    ["model", ({ model }) => model],
    ["width", ({ width }) => width],
    ["where", ({ where }) => where],
    ["file B", ({ file }) => String(file)],
    ["mapped B", ({ mapped }) => String(mapped)],
    ["pinned B", ({ pinned }) => String(pinned)],
    ["total", ({ memory_total }) => mib(memory_total)],
    ["idle", ({ memory_idle }) => mib(memory_idle)],
    ["used", ({ memory_used }) => mib(memory_used)],
    ["RSS", ({ rss }) => mib(rss)],
    ["peak RSS", ({ rss_peak }) => mib(rss_peak)],
    ["least -m", ({ smallest_mib }) => String(smallest_mib ?? "")],
    ["prefill/s", ({ prefill_tokens_per_s }) => prefill_tokens_per_s.toFixed(1)],
    ["decode/s", ({ decode_tokens_per_s }) => decode_tokens_per_s.toFixed(1)],
    ["activations", ({ activations }) => activations],
    ["tokens", ({ tokens }) => tokens.join(" ")],
  ];
  const line = (cells: string[]) => `| ${cells.join(" | ")} |`;
  return [
    line(columns.map(([name]) => name)),
    line(columns.map(() => "---")),
    ...rows.map((row) => line(columns.map(([, cell]) => cell(row)))),
  ].join("\n");
}

/** Writes the README.md of a directory from all its rows. */
function publish(directory: string, width: string): void {
  const files = [...Deno.readDirSync(directory)].map((file) => file.name).filter((file) => file.endsWith(".jsonl"));
  const all: Row[] = files.sort().flatMap((file) =>
    Deno.readTextFileSync(`${directory}/${file}`).trimEnd().split("\n").map((line) => JSON.parse(line))
  );
  const distinct = (of: (row: Row) => string | null) => [...new Set(all.map(of))].filter((value) => value).join(", ");
  const [guest, host] = ["guest", "host"].map((where) =>
    distinct((row) => row.where === where ? `${row.kernel}` : null)
  );
  const text = `# Float and ${width}, in a guest and on the host

Generated by \`deno task rig\` from the rows in ${
    files.map((file) => `\`${file}\``).join(", ")
  }. Memory is in MiB: \`total\`,
\`idle\` and \`used\` are those of the whole guest, from /proc/meminfo (MemTotal, and MemTotal - MemAvailable before rabbit
starts and its maximum while rabbit runs). RSS is that of rabbit, and its peak is VmHWM; both include 45 MiB of pages of the
executable, which \`idle\` includes too, since they are files of the archive. \`least -m\` is the smallest guest that
succeeds. Rates are in tokens per second with two threads.

${table(all)}

${claims(all).map(({ text }) => `- ${text}`).join("\n")}

Guests run under QEMU ${
    distinct(({ qemu }) => qemu)
  } with software emulation (\`-accel tcg -cpu max -smp 2\`) and kernel
${guest}, so the rates of guests can be compared only with those of other guests. The host has ${
    distinct(({ cpu }) => cpu)
  } and
kernel ${host}, and ran other programs at the same time. ${distinct(({ rabbit }) => rabbit)}.
`;
  Deno.writeTextFileSync(`${directory}/README.md`, text);
  new Deno.Command(Deno.execPath(), { args: ["fmt", "--quiet", `${directory}/README.md`] }).outputSync();
}

async function rig(): Promise<boolean> {
  const args = parseArgs(Deno.args, {
    string: ["name", "kernel", "_"],
    boolean: ["smallest", "table"],
    negatable: ["smallest"],
    default: { smallest: true },
  });
  if (args.table) {
    for (const [width, directory] of DIRECTORIES) publish(directory, width);
    return true;
  }
  const model = args._.at(0)?.toString();
  const tools = findTools(args.kernel);
  const cpu = /^model name\s*: (.*)/m.exec(Deno.readTextFileSync("/proc/cpuinfo"))?.[1] ?? Deno.build.arch;
  const version = run(tools.rabbit, ["--version"])!.trim();
  const temporary = Deno.makeTempDirSync({ prefix: "rabbit-rig-" });
  try {
    const name = args.name ?? (model === undefined ? "development" : basename(model));
    const models = model === undefined
      ? develop(tools.rabbit, temporary, WIDTHS)
      : quantized(tools.rabbit, model, temporary);
    const rows: Row[] = [];
    for (const [index, path] of models.entries()) {
      const file = Deno.statSync(`${path}/model.safetensors`).size;
      const subject: Subject = { model: name, width: SUBJECTS[index], rabbit: version, cpu, file };
      for (const row of [await onHost(subject, path, tools), await inGuest(subject, path, tools, args.smallest)]) {
        rows.push(row);
        console.log(JSON.stringify(row));
      }
    }
    for (const [width, directory] of DIRECTORIES) {
      Deno.mkdirSync(directory, { recursive: true });
      const own = rows.filter((row) => row.width === "float" || row.width === width);
      Deno.writeTextFileSync(`${directory}/${name}.jsonl`, own.map((row) => JSON.stringify(row) + "\n").join(""));
      publish(directory, width);
    }
    for (const { text } of claims(rows)) console.log(text);
    return claims(rows).every(({ holds }) => holds);
  } finally {
    Deno.removeSync(temporary, { recursive: true });
  }
}

/** Quantizes `float` at every width. Returns the directories, `float` first. */
function quantized(rabbit: string, float: string, directory: string): string[] {
  return [
    float,
    ...WIDTHS.map(({ bits }) => {
      const out = `${directory}/q${bits}`;
      const made = run(rabbit, ["quantize", float, out, "--bits", String(bits)]);
      if (made === undefined) throw new Missing(`rabbit quantize ${float} --bits ${bits} failed`);
      return out;
    }),
  ];
}

try {
  Deno.exitCode = await rig() ? 0 : 1;
} catch (error) {
  if (!(error instanceof Missing)) throw error;
  console.error(`rig: ${error.message}`);
  Deno.exitCode = 2;
}

/**
 * `deno task rig [--model DIR] [--name NAME] [--no-smallest] [--table]`: what each width costs in a guest's memory and gives in
 * speed. Boots a guest for the float model and for each width, each with only the files that it needs, runs the same on
 * the host, and finds the smallest guest. Writes the rows as JSON lines to bench/results/quantization (float and Q8B32)
 * and bench/results/quantization-q4 (float and Q4B32), and a README.md with a table that is made from them. Exit status
 * 1 when the quantized guest does not save what it should. Without --model: the development model. --no-smallest leaves
 * out the search, which is seven boots a width; --table makes the README.md files anew from the rows that are there.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { basename } from "@std/path/basename";
import { Q8B32, WIDTHS } from "../lib/format/blocks.ts";
import { develop, findTools, Image, Missing, qemuVersion, run, type Tools } from "./guest/guest.ts";

const RESULTS = `${import.meta.dirname}/../bench/results`;
/** Where the rows of each width are. */
const DIRECTORIES = WIDTHS.map((width) => {
  return [width.name, `${RESULTS}/quantization${width === Q8B32 ? "" : `-q${width.bits}`}`] as const;
});
/** What is measured, in this order. */
const SUBJECTS = ["float", ...WIDTHS.map(({ name }) => name)];
const STEPS = ["--steps", "8", "--ignore-eos"];
const MIB = 2 ** 20;

/** The smallest guest is found to this many MiB. */
const STEP_MIB = 4;

/** How far the memory that is saved may be from the bytes that the file shrank: boots differ by a MiB or two. */
const TOLERANCE = { bytes: 3 * MIB, part: 0.02 };

/** One run. Bytes where nothing else is said; null where it is not measured. */
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
  /** In use before rabbit starts: the kernel and the unpacked archive. */
  memory_idle: number | null;
  /** The most that was in use while rabbit ran. */
  memory_used: number | null;
  /** What rabbit has at the end, and has had. */
  rss: number;
  rss_peak: number;
  /** Of -m. */
  smallest_mib: number | null;
  tokens: number[];
  activations: string;
  threads: number;
  prefill_tokens_per_s: number;
  decode_tokens_per_s: number;
}

/** What `rabbit infer --json` prints, as a part of a row. */
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

/** What the rows of one width have in common. */
interface Subject {
  readonly model: string;
  readonly width: string;
  readonly rabbit: string;
  readonly cpu: string;
  readonly file: number;
}

async function onHost(subject: Subject, path: string, tools: Tools): Promise<Row> {
  const process = new Deno.Command(tools.rabbit, {
    args: ["infer", "--json", "--model", path, ...STEPS],
    stdout: "piped",
  }).spawn();
  let peak = 0;
  const watch = setInterval(() => {
    try {
      const status = Deno.readTextFileSync(`/proc/${process.pid}/status`);
      peak = Math.max(peak, Number(/^VmHWM:\s*(\d+)/m.exec(status)?.[1] ?? 0) * 1024);
    } catch {
      // It has ended.
    }
  }, 10);
  const { success, stdout } = await process.output();
  clearInterval(watch);
  if (!success) throw new Missing(`rabbit infer --model ${path} failed`);
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

/** The least memory in MiB, in steps of {@link STEP_MIB}, with which a guest does its work. */
async function smallest(image: Image, args: readonly string[]): Promise<number> {
  const works = async (memory: number) => {
    const { status, lines } = await image.boot({ args, memory });
    console.log(`  -m ${memory}: ${status === 0 ? "works" : lines.findLast((line) => !line.startsWith("GUEST exit"))}`);
    return status === 0;
  };
  // The archive twice is what the kernel needs to unpack it; the search starts around that.
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

/** The claim: a quantized guest has less in use than the float one, by the bytes that the file shrank. */
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

/** The table of a directory, from all the rows that are there. */
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

/** Writes the README.md of a directory from all the rows in it. */
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

Made by \`deno task rig\` from the rows in ${
    files.map((file) => `\`${file}\``).join(", ")
  }. Memory is in MiB: \`total\`,
\`idle\` and \`used\` are the whole guest's by /proc/meminfo (MemTotal - MemAvailable before rabbit starts, and the most while
it runs); RSS is rabbit's own, its peak is VmHWM, and both have 45 MiB of pages of the executable in them, which
are in \`idle\` already: they are files of the archive. \`least -m\` is the smallest guest that did the work. Rates are tokens a second with two threads.

${table(all)}

${claims(all).map(({ text }) => `- ${text}`).join("\n")}

Guests run under QEMU ${
    distinct(({ qemu }) => qemu)
  } with its software emulation (\`-accel tcg -cpu max -smp 2\`), kernel
${guest}: their rates are the emulation's and compare only with each other. The host has ${distinct(({ cpu }) => cpu)},
kernel ${host}, and others at work on it. ${distinct(({ rabbit }) => rabbit)}.
`;
  Deno.writeTextFileSync(`${directory}/README.md`, text);
  new Deno.Command(Deno.execPath(), { args: ["fmt", "--quiet", `${directory}/README.md`] }).outputSync();
}

async function rig(): Promise<boolean> {
  const args = parseArgs(Deno.args, {
    string: ["model", "name", "kernel"],
    boolean: ["smallest", "table"],
    negatable: ["smallest"],
    default: { smallest: true },
  });
  if (args.table) {
    for (const [width, directory] of DIRECTORIES) publish(directory, width);
    return true;
  }
  const tools = findTools(args.kernel);
  const cpu = /^model name\s*: (.*)/m.exec(Deno.readTextFileSync("/proc/cpuinfo"))?.[1] ?? Deno.build.arch;
  const version = run(tools.rabbit, ["--version"])!.trim();
  const temporary = Deno.makeTempDirSync({ prefix: "rabbit-rig-" });
  try {
    const name = args.name ?? (args.model ? basename(args.model) : "development");
    const models = args.model
      ? quantized(tools.rabbit, args.model, temporary)
      : develop(tools.rabbit, temporary, WIDTHS);
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

/** Quantizes `float` to every width. Returns all directories, that of `float` first. */
function quantized(rabbit: string, float: string, directory: string): string[] {
  return [
    float,
    ...WIDTHS.map(({ bits }) => {
      const out = `${directory}/q${bits}`;
      const made = run(rabbit, ["quantize", "--bits", String(bits), "--in", float, "--out", out]);
      if (made === undefined) throw new Missing(`rabbit quantize --bits ${bits} --in ${float} failed`);
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

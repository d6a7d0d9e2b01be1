/**
 * Boots a guest under QEMU's software emulation: a Debian kernel, and an initramfs with the executable and checkpoints.
 *
 * @module
 */

import { dirname } from "@std/path/dirname";
import { join } from "@std/path/join";
import { type BlockFormat, DEFAULT_WIDTH, WIDTHS } from "../../lib/format/blocks.ts";
import { type Entry, writeArchive } from "./cpio.ts";

/** Something that the guest needs is missing. The message has the remedy. */
export class Missing extends Error {
  override name = "Missing";
}

/** The programs and files of the host that a guest needs. */
export interface Tools {
  readonly qemu: string;
  readonly busybox: string;
  readonly kernel: string;
  readonly rabbit: string;
}

/** The result of a boot. */
export interface Boot {
  /** The exit status of rabbit, or 2 if the guest could not run it. */
  readonly status: number;
  /** The output of the guest, without that of the firmware and the kernel. */
  readonly lines: readonly string[];
  /** The run time of QEMU. */
  readonly seconds: number;
}

const MIB = 2 ** 20;

/** Memory of the kernel while it unpacks the archive: 75 MiB were enough in tests. */
const KERNEL_BYTES = 90 * MIB;

/** The limit of a boot. A model of real size runs for minutes without output. */
const TIMEOUT_MS = 20 * 60_000;

/** COMMAND_LINE_SIZE of x86 and MAX_INIT_ARGS of the kernel. */
const MAX_COMMAND_LINE = 2047, MAX_ARGUMENTS = 32;

const META_PACKAGE = "linux-image-cloud-amd64";
const ROOT = dirname(dirname(import.meta.dirname!));

/** Finds the tools, and downloads the kernel if there is none yet. @throws {Missing} */
export function findTools(kernel?: string): Tools {
  const qemu = find("qemu-system-x86_64");
  const busybox = find("busybox");
  const packages = [
    ...(qemu ? [] : ["qemu-system-x86"]),
    // Debian's package `busybox` is linked dynamically and cannot be /init.
    ...(busybox && libraries(busybox).length === 0 ? [] : ["busybox-static"]),
  ];
  if (packages.length > 0) throw new Missing(`a guest needs more: apt-get install ${packages.join(" ")}`);
  const rabbit = Deno.env.get("RABBIT_BIN") || `${ROOT}/rabbit`;
  if (!exists(rabbit)) throw new Missing(`no executable ${rabbit}: deno task compile, or name it in RABBIT_BIN`);
  if (kernel !== undefined && !exists(kernel)) throw new Missing(`no kernel ${kernel}: --kernel names a vmlinuz`);
  return { qemu: qemu!, busybox: busybox!, kernel: kernel ?? findKernel(), rabbit: Deno.realPathSync(rabbit) };
}

/** QEMU's version. */
export function qemuVersion({ qemu }: Tools): string {
  return /version (\S+)/.exec(run(qemu, ["--version"]) ?? "")?.[1] ?? "unknown";
}

/** The path of Debian's kernel, which is downloaded by apt-get and unpacked, not installed. */
function findKernel(): string {
  const directory = join(Deno.env.get("XDG_CACHE_HOME") || join(Deno.env.get("HOME") || "/tmp", ".cache"), "rabbit");
  Deno.mkdirSync(directory, { recursive: true });
  const kernels = [...Deno.readDirSync(directory)].map(({ name }) => name).filter((name) => /^vmlinuz-/.test(name));
  if (kernels.length > 0) return join(directory, kernels.sort().at(-1)!);

  const temporary = Deno.makeTempDirSync({ dir: directory });
  try {
    const name = /Depends: (linux-image-\S+)/.exec(run("apt-cache", ["depends", META_PACKAGE]) ?? "")?.[1];
    // When run as root, apt downloads as another user, who may not write here.
    const got = name && run("apt-get", ["-qq", "-o", "APT::Sandbox::User=root", "download", name], temporary);
    const [archive] = [...Deno.readDirSync(temporary)];
    if (
      got === undefined || archive === undefined || run("dpkg-deb", ["-x", archive.name, "."], temporary) === undefined
    ) {
      throw new Missing(
        `a guest needs a kernel: apt-get update, so that ${META_PACKAGE} can be downloaded, or --kernel`,
      );
    }
    const [image] = [...Deno.readDirSync(join(temporary, "boot"))].filter(({ name }) => name.startsWith("vmlinuz-"));
    Deno.renameSync(join(temporary, "boot", image.name), join(directory, image.name));
    return join(directory, image.name);
  } finally {
    Deno.removeSync(temporary, { recursive: true });
  }
}

/** Writes a development model whose answer the default width keeps, and quantizes it. Returns the directories. */
export function develop(rabbit: string, directory: string, widths: readonly BlockFormat[]): string[] {
  const float = `${directory}/dev`;
  const commands = [
    ["gen", float, "--exact", String(DEFAULT_WIDTH.bits)],
    ...widths.map(({ bits }) => ["quantize", float, `${float}-q${bits}`, "--bits", String(bits)]),
  ];
  for (const args of commands) {
    if (run(rabbit, args) === undefined) throw new Missing(`${rabbit} ${args.join(" ")} failed`);
  }
  return [float, ...widths.map(({ bits }) => `${float}-q${bits}`)];
}

/** An initramfs with checkpoints, at most one of each width, and the config.json of the first. */
export class Image {
  /** The size of the archive. */
  readonly bytes: number;
  /** The default command of the guest. */
  readonly command: readonly string[];
  readonly #directory = Deno.makeTempDirSync({ prefix: "rabbit-guest-" });
  readonly #tools: Tools;

  /** Builds the initramfs. @param models directories or files */
  constructor(tools: Tools, models: readonly string[]) {
    this.#tools = tools;
    try {
      const checkpoints = models.map((model, index) => {
        const file = exists(model) ? model : join(model, "model.safetensors");
        if (!exists(file)) throw new Missing(`no checkpoint ${file}`);
        // Invalid files are accepted: rabbit has to refuse them in the guest.
        const width = declaredWidth(file) ?? (index === 0 ? undefined : DEFAULT_WIDTH);
        return { file, path: pathOf(width) };
      });
      const paths = checkpoints.map(({ path }) => path);
      if (new Set(paths).size < paths.length) throw new Missing(`two checkpoints of one width: both are ${paths[0]}`);
      this.command = paths.length === 1 ? ["infer", paths[0]] : ["compare", ...paths];
      if (this.command.join(" ") === `compare ${pathOf()} ${pathOf(DEFAULT_WIDTH)}`) this.command = [];
      const file = (path: string, file: string, executable = false): Entry => ({ path, content: { file }, executable });
      this.bytes = writeArchive(this.archive, [
        { path: "/dev/console", content: { device: [5, 1] } },
        { path: "/dev/null", content: { device: [1, 3] } },
        { path: "/proc", content: "directory" },
        file("/init", `${import.meta.dirname}/init`, true),
        file("/bin/busybox", tools.busybox, true),
        ...libraries(tools.rabbit).map((path) => file(path, path, true)),
        file("/rabbit", tools.rabbit, true),
        file("/config.json", join(dirname(checkpoints[0].file), "config.json")),
        ...checkpoints.map((checkpoint) => file(checkpoint.path, checkpoint.file)),
      ]);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  get archive(): string {
    return join(this.#directory, "initramfs");
  }

  /**
   * An upper bound of the required memory, in MiB. The kernel needs twice the archive to unpack it. rabbit later needs
   * less: the weights of one model and 47 MiB.
   */
  get enough(): number {
    return Math.ceil((KERNEL_BYTES + 2 * this.bytes) / MIB / 64 + 1) * 64;
  }

  /** Boots with `memory` MiB. The kernel's command line passes `args` to rabbit. `print` gets each line of output. */
  async boot(
    { args = this.command, memory = this.enough, print = () => {} }: {
      args?: readonly string[];
      memory?: number;
      print?: (line: string) => void;
    } = {},
  ): Promise<Boot> {
    // rootfstype=ramfs, since tmpfs, the default, may use only half of the memory that the packed archive leaves.
    const append = ["console=ttyS0", "quiet", "loglevel=1", "panic=-1", "rootfstype=ramfs", "--", ...args.map(quote)]
      .join(" ");
    if (append.length > MAX_COMMAND_LINE || args.length > MAX_ARGUMENTS) {
      throw new Missing(
        `the kernel's command line takes ${MAX_ARGUMENTS} arguments and ${MAX_COMMAND_LINE} characters`,
      );
    }
    const start = performance.now();
    const process = new Deno.Command(this.#tools.qemu, {
      // deno-fmt-ignore
      args: [
        "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", String(memory), "-nographic", "-no-reboot",
        "-net", "none", "-kernel", this.#tools.kernel, "-initrd", this.archive, "-append", append,
      ],
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    const stop = () => process.kill("SIGKILL");
    const timer = setTimeout(stop, TIMEOUT_MS);
    for (const signal of ["SIGINT", "SIGTERM"] as const) Deno.addSignalListener(signal, stop);
    try {
      const errors = new Response(process.stderr).text();
      const lines: string[] = [], before: string[] = [];
      let status: number | undefined;
      for await (const line of linesOf(process.stdout)) {
        // The output of the firmware does not end with a newline.
        const shown = lines.length === 0 ? /GUEST .*/.exec(line)?.[0] : line;
        if (shown === undefined || status !== undefined) {
          before.push(line);
        } else {
          lines.push(shown);
          print(shown);
          const exit = /^GUEST exit=(\d+)$/.exec(shown);
          if (exit) status = Number(exit[1]);
        }
      }
      await process.status;
      if (status === undefined) {
        const panic = /Kernel panic.*/.exec([...before, ...lines].join("\n"))?.[0];
        const why = ((await errors).trim() || panic || "it was stopped").replaceAll(/\s+/g, " ");
        const memories = memory < this.enough ? `${memory} MiB, ${this.enough} are enough` : `${memory} MiB`;
        lines.push(`guest: no result with a memory of ${memories}: ${why}`);
        print(lines.at(-1)!);
      }
      return { status: status ?? 2, lines, seconds: (performance.now() - start) / 1000 };
    } finally {
      clearTimeout(timer);
      for (const signal of ["SIGINT", "SIGTERM"] as const) Deno.removeSignalListener(signal, stop);
    }
  }

  /** Removes the archive. */
  close(): void {
    Deno.removeSync(this.#directory, { recursive: true });
  }
}

/** The path of a checkpoint in a guest. `rabbit compare` uses those of the float model and the default width. */
export function pathOf(width?: BlockFormat): string {
  return width === undefined ? "/model.safetensors" : `/model-q${width.bits}.safetensors`;
}

/** The width that a file declares in its metadata, which come first. */
function declaredWidth(path: string): BlockFormat | undefined {
  using file = Deno.openSync(path);
  const start = new Uint8Array(256);
  const got = file.readSync(start) ?? 0;
  const text = new TextDecoder().decode(start.subarray(0, got));
  return WIDTHS.find(({ declaration }) => text.includes(`"${declaration}"`));
}

/** Quotes an argument for the kernel's command line, which has double quotes but no way to escape one. */
function quote(arg: string): string {
  // deno-lint-ignore no-control-regex
  if (/["\u0000-\u001f\u007f-\uffff]/.test(arg)) throw new Missing(`the kernel's command line can't hold ${arg}`);
  return /\s/.test(arg) || arg === "" ? `"${arg}"` : arg;
}

/** The libraries of a program, from ldd; none if it is static. */
export function libraries(program: string): string[] {
  const text = run("ldd", [program]) ?? "";
  return [...text.matchAll(/^\s+(?:\S+ => )?(\/\S+) \(0x/gm)].map(([, path]) => path);
}

async function* linesOf(stream: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<string> {
  let rest = "";
  for await (const text of stream.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split(/\r*\n/);
    rest = lines.pop()!;
    yield* lines;
  }
  if (rest !== "") yield rest;
}

/** The path of a program; undefined if not found. */
function find(program: string): string | undefined {
  const places = [...(Deno.env.get("PATH") ?? "").split(":"), "/usr/bin", "/bin"];
  return places.map((place) => join(place || ".", program)).find(exists);
}

function exists(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}

/** The output of a program; undefined if it fails or does not exist. */
export function run(program: string, args: string[], cwd?: string): string | undefined {
  try {
    const { success, stdout } = new Deno.Command(program, { args, cwd, env: { LC_ALL: "C" }, stderr: "null" })
      .outputSync();
    return success ? new TextDecoder().decode(stdout) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Tests that need more than Deno and the tools of every Unix (a POSIX shell, coreutils). Where something is missing such
 * a test is ignored, and its name in the output says what to install. Where CI is true it fails with the same words:
 * .ci/run installs everything, and a test that is ignored there would be noticed by nobody.
 *
 * @module
 */

/** How to get a program whose Debian package has another name, and what it must be able to do, where not every one can. */
const PROGRAMS: Readonly<Record<string, { get?: string; probe?: readonly string[] }>> = {
  // macOS has bash 3.
  bash: { get: "bash 4 or later", probe: ["-c", "((BASH_VERSINFO >= 4))"] },
  busybox: { get: "busybox-static" },
  ldd: { get: "libc-bin" },
  node: { get: "Node" },
  "qemu-system-x86_64": { get: "qemu-system-x86" },
  sbatch: { get: "slurm-client" },
  // That of the BSDs has other options.
  script: { get: "script of util-linux (Debian: bsdutils)", probe: ["--version"] },
  umount: { get: "mount" },
  unshare: { get: "util-linux" },
};

/** What the tests of the executable need: `variables` of `Needs`. */
export const EXECUTABLE = { RABBIT_BIN: "path of the executable that deno task compile makes" };

/** What a test needs, and the options of `Deno.test`. */
export interface Needs extends Omit<Deno.TestDefinition, "name" | "fn" | "ignore"> {
  /** Programs that must be on the PATH. */
  readonly programs?: readonly string[];
  /** Variables of the environment that must be set, and what they hold. */
  readonly variables?: Readonly<Record<string, string>>;
  /** Files that Linux has and other systems do not, as /dev/full. */
  readonly files?: readonly string[];
  /** The test mounts file systems. */
  readonly mounts?: boolean;
  /** What else is missing, each as something to do: `set CHROMIUM=path`. Empty where all is there. */
  readonly missing?: readonly string[];
  /**
   * What nothing installs for the tests, as instructions of the processor, or packages of gigabytes: no failure where CI
   * is true.
   */
  readonly lacks?: readonly string[];
}

/**
 * Declares a test that is run where all that it needs is there.
 *
 * ```ts ignore
 * needs("fish completes flags", { programs: ["fish"] }, async () => { … });
 * // fish completes flags (ignored: install fish) ... ignored
 * ```
 */
export function needs(name: string, what: Needs, fn: () => void | Promise<void>): void {
  const { programs = [], variables = {}, files = [], mounts = false, missing: more = [], lacks = [], ...options } =
    what;
  const all = mounts ? [...programs, ...MOUNTING] : programs;
  const install = all.filter((program) => !has(program)).map((program) => PROGRAMS[program]?.get ?? program);
  const unset = Object.entries(variables).filter(([name]) => !Deno.env.get(name));
  const missing = [
    ...(install.length > 0 ? [`install ${[...new Set(install)].join(", ")}`] : []),
    ...unset.map(([name, value]) => `set ${name}=${value}`),
    ...files.filter((file) => !isThere(file)).map((file) => `needs the ${file} of Linux`),
    ...(mounts && !mayMount() ? ["run as root on Linux, where a file system can be mounted"] : []),
    ...more,
  ];
  const why = [...missing, ...lacks].join("; ");
  if (missing.length > 0 && Deno.env.get("CI") === "true") {
    Deno.test(name, options, () => {
      throw new Error(`CI is true and this test can't run: ${why}`);
    });
  } else if (why !== "") {
    Deno.test(`${name} (ignored: ${why})`, { ...options, ignore: true }, fn);
  } else {
    Deno.test(name, options, fn);
  }
}

/** Whether a program is on the PATH and, where that is not enough, does what the tests ask of it. */
export function has(program: string): boolean {
  const probe = PROGRAMS[program]?.probe;
  if (probe === undefined) return path(program) !== undefined;
  return path(program) !== undefined && succeeds(program, probe);
}

/** The path of a program, or undefined where the PATH has none. */
export function path(program: string): string | undefined {
  const places = (Deno.env.get("PATH") ?? "").split(":").map((directory) => `${directory || "."}/${program}`);
  return places.find(isExecutable);
}

/** Whether a path is that of a file that may be executed. */
export function isExecutable(path: string): boolean {
  return isThere(path, ({ isFile, mode }) => isFile && (mode! & 0o111) !== 0);
}

function isThere(path: string, isRight: (info: Deno.FileInfo) => boolean = () => true): boolean {
  try {
    return isRight(Deno.statSync(path));
  } catch {
    return false;
  }
}

const MOUNTING = ["mount", "umount"];

/** Whether this process may mount a file system, as far as can be told: root of a container often may not. */
function mayMount(): boolean {
  if (Deno.build.os !== "linux" || Deno.uid() !== 0) return false;
  // What to install is said apart.
  if (!MOUNTING.every(has)) return true;
  const directory = Deno.makeTempDirSync({ prefix: "rabbit-test-" });
  try {
    return succeeds("mount", ["-t", "tmpfs", "tmpfs", directory]) && succeeds("umount", [directory]);
  } finally {
    Deno.removeSync(directory);
  }
}

function succeeds(program: string, args: readonly string[]): boolean {
  const silent = { stdin: "null", stdout: "null", stderr: "null" } as const;
  try {
    return new Deno.Command(program, { args: [...args], ...silent }).outputSync().success;
  } catch {
    return false;
  }
}

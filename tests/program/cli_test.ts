/**
 * The real program, as a shell would run it: what it prints, its exit status, and what it leaves behind.
 * RABBIT_BIN=path runs the same tests on the executable.
 */

import { assert, assertAlmostEquals, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import config from "../../deno.json" with { type: "json" };
import { DECLARED } from "../support/blocks.ts";
import { concat, utf8 } from "../support/bytes.ts";
import { inTemporary, sha256, tree, write } from "../support/files.ts";
import { ROOT, TINY, WEIGHTS } from "../support/fixtures.ts";
import { copyModel } from "../support/models.ts";
import { needs } from "../support/needs.ts";
import { execute, PROGRAM, rabbit, type Ran, shellLine } from "../support/program.ts";
import { container, type Entry, f32, safetensors } from "../support/safetensors.ts";

const DOWN = "model.layers.0.mlp.down_proj.weight";
const NORM = "model.norm.weight";

/** The commands that the help lists. */
const COMMANDS = [...(await rabbit(".", ["--help"])).out.matchAll(/^ {2}([a-z]+) {2}/gm)].map(([, name]) => name);

/** A matrix of F32 weights that `weight` gives for row and column. */
function matrix(
  name: string,
  rows: number,
  columns: number,
  weight = (r: number, c: number) => Math.sin(r * 7 + c),
): Entry {
  return f32(name, [rows, columns], (n) => weight(Math.floor(n / columns), n % columns));
}

/** A vector, which quantize keeps. */
function vector(name: string): Entry {
  return f32(name, [8], () => 1);
}

const { 4: Q4, 8: Q8 } = DECLARED;

/** A matrix of blocks whose scales are one but for that of `row` and `block`. */
function blocks(name: string, bits: 4 | 8, row = -1, block = -1, scale = 0x3c00): Entry {
  const blockBytes = 2 + 4 * bits;
  const bytes = new Uint8Array(8 * blockBytes);
  for (let n = 0; n < 8; n++) {
    new DataView(bytes.buffer).setUint16(n * blockBytes, n === row * 2 + block ? scale : 0x3c00, true);
  }
  return { name, dtype: `Q${bits}B32`, shape: [4, 64], bytes };
}

/** Writes the files of a checkpoint directory: the weights, and what a user needs beside them. */
function checkpoint(directory: string, weights: Uint8Array | Record<string, Uint8Array | string>): void {
  const files = weights instanceof Uint8Array ? { [WEIGHTS]: weights } : weights;
  write(directory, { "config.json": "{}\n", "vocab.json": "{}\n", "merges.txt": "\n", ...files });
}

/** A small sound source. */
const SOUND = safetensors([matrix(DOWN, 4, 64), vector(NORM)]);

/** Runs a command that must fail with exactly `line` on standard error, nothing on standard output, and no change. */
async function refusedIn(cwd: string, args: string[], status: number, line: string): Promise<void> {
  const before = tree(cwd);
  const ran = await rabbit(cwd, args);
  const what = `rabbit ${args.join(" ")}`;
  assertEquals(ran, { code: status, out: "", err: `rabbit: ${line}\n` }, what);
  assertEquals(tree(cwd), before, `${what} left something behind`);
}

/** Calls `test` with each item; two run at a time, which suits small machines. */
async function inPairs<T>(items: readonly T[], test: (item: T) => Promise<void>): Promise<void> {
  for (let n = 0; n < items.length; n += 2) await Promise.all(items.slice(n, n + 2).map(test));
}

/** The keys of lines `NAME key=value …`, in order, without repetitions. */
function keys(lines: string): string[] {
  return [...new Set([...lines.matchAll(/ ([a-z_]+)=/g)].map(([, key]) => key))];
}

/** The keys of a JSON object and of the objects in its lists, in order, without the names of the lists. */
function jsonKeys(value: Record<string, unknown>): string[] {
  return [
    ...new Set(
      Object.entries(value).flatMap(([key, inner]) =>
        Array.isArray(inner) && typeof inner[0] === "object" ? inner.flatMap(jsonKeys) : [key]
      ),
    ),
  ];
}

function sound({ code, err }: Ran, status = 0): void {
  assertEquals({ code, err }, { code: status, err: "" });
}

// Help and usage

Deno.test("--help lists the commands by groups, --version prints the version", async () => {
  const help = await rabbit(".", ["--help"]);
  sound(help);
  const [first, development, other] = help.out.split(/^development:$|^other:$/m);
  const listed = (text: string) => [...text.matchAll(/^ {2}([a-z]+) {2}/gm)].map(([, name]) => name).sort();
  assertEquals(listed(development), ["gate", "gen", "matmul"]);
  assertEquals(listed(other), ["completions", "man"]);
  // A command that is none of these is a file of lib/cli.
  assert(listed(first).length >= 9);
  for (const name of listed(first)) assert(Deno.statSync(`${ROOT}lib/cli/${name}.ts`).isFile);
  assertMatch(help.out, /\brabbit help COMMAND\b/);
  for (const word of ["-h", "help"]) assertEquals(await rabbit(".", [word]), help);
  const version = await rabbit(".", ["--version"]);
  assertEquals({ ...version, out: "" }, { code: 0, out: "", err: "" });
  // The git revision where there is one.
  assertMatch(version.out, /^rabbit \d+\.\d+\.\d+( \([0-9a-f]{7,}(-dirty)?\))?\n$/);
  assertStringIncludes(version.out, `rabbit ${config.version}`);
  assertEquals((await rabbit(".", [])).code, 2);
});

Deno.test("help COMMAND, COMMAND --help and COMMAND -h are the same, whatever stands beside", () =>
  inPairs([...COMMANDS, "help"], async (name) => {
    const help = await rabbit(".", name === "help" ? ["--help"] : [name, "--help"]);
    sound(help);
    const words = [["help", name], ["-h", name], ["--help", name]];
    if (name !== "help") words.push([name, "-h"], [name, "-h", "--json", "--threads", "0"]);
    const takesThreads = help.out.includes("--threads");
    for (const args of words.filter((args) => takesThreads || !args.includes("--threads"))) {
      assertEquals(await rabbit(".", args), help, args.join(" "));
    }
  }));

for (const name of COMMANDS) {
  Deno.test(`${name} --help has usage, exit status and an example, in 80 columns`, async () => {
    const help = await rabbit(".", [name, "--help"]);
    sound(help);
    assertMatch(help.out, new RegExp(`^usage: rabbit ${name} `, "m"));
    assertMatch(help.out, /^exit status: 0 [^]*, 2\s+trouble$/m);
    assertMatch(help.out, new RegExp(`^example: rabbit ${name}( |$)`, "m"));
    // Examples are for pasting.
    const long = help.out.split("\n").filter((line) => line.length > 80 && !line.startsWith("example: "));
    assertEquals(long, []);
  });
}

const USAGE: [string[], string][] = [
  [["verfy"], 'unknown command "verfy"; did you mean verify?'],
  [["xyzzyx"], 'unknown command "xyzzyx"; see rabbit --help'],
  [["hlep"], 'unknown command "hlep"; did you mean help?'],
  [["help", "verfy"], 'unknown command "verfy"; did you mean verify?'],
  [["help", "nonsense"], 'unknown command "nonsense"; see rabbit --help'],
  [["--help", "xyzzyx"], 'unknown command "xyzzyx"; see rabbit --help'],
  [["help", "verify", "gate"], 'unexpected argument "gate"; see rabbit --help'],
  [["--version", "verify"], 'unexpected argument "verify"; see rabbit --help'],
  [["gate", "help"], 'gate: unexpected argument "help"; see rabbit gate --help'],
  [["inspect", "help"], "inspect: cannot open help: no such file or directory"],
  [["inspect", "--", "-h"], "inspect: cannot open -h: no such file or directory"],
  [["infer", "--model", "-h"], "infer: cannot open -h: no such file or directory"],
  [["inspect", "-hx"], 'inspect: unknown option "-hx"; see rabbit inspect --help'],
  [["--frob"], 'unknown option "--frob"; see rabbit --help'],
  [["--verion"], 'unknown option "--verion"; did you mean --version?'],
  [["-v"], 'unknown option "-v"; see rabbit --help'],
  [["--quiet", "gate"], "--quiet is an option of commands; give it after the command"],
  [["-q", "gate"], "-q is an option of commands; give it after the command"],
  [["help", "--verion"], 'unknown option "--verion"; did you mean --version?'],
  [["quantize", "--bist", "4"], 'quantize: unknown option "--bist"; did you mean --bits?'],
  [["quantize", "--bist=4"], 'quantize: unknown option "--bist"; did you mean --bits?'],
  [["inspect", "--against", "a"], 'inspect: unknown option "--against"; see rabbit inspect --help'],
  [["verify", "-x", "a"], 'verify: unknown option "-x"; see rabbit verify --help'],
  [["quantize"], "quantize: FLOAT is missing; see rabbit quantize --help"],
  [["quantize", "a"], "quantize: OUT is missing; see rabbit quantize --help"],
  [["quantize", "--in", "a"], "quantize: OUT is missing; see rabbit quantize --help"],
  [["quantize", "--out", "a"], "quantize: FLOAT is missing; see rabbit quantize --help"],
  [["compare", "a"], "compare: QUANT is missing; see rabbit compare --help"],
  [["compare"], "compare: cannot open /model.safetensors: no such file or directory"],
  [["advise"], "advise: FLOAT is missing; see rabbit advise --help"],
  [["infer"], "infer: CHECKPOINT is missing; see rabbit infer --help"],
  [["export", "a"], "export: GGUF is missing; see rabbit export --help"],
  [["import", "a"], "import: OUT is missing; see rabbit import --help"],
  [["gen"], "gen: OUT is missing; see rabbit gen --help"],
  [["verify"], "verify: CHECKPOINT is missing; see rabbit verify --help"],
  [["inspect"], "inspect: CHECKPOINT is missing; see rabbit inspect --help"],
  [["quantize", "a", "b", "--in", "c"], 'quantize: unexpected argument "b"; FLOAT is given by --in already'],
  [["quantize", "a", "b", "--out", "c"], 'quantize: unexpected argument "b"; OUT is given by --out already'],
  [["infer", "a", "--model", "b"], 'infer: unexpected argument "a"; CHECKPOINT is given by --model already'],
  [["advise", "a", "--in", "b"], 'advise: unexpected argument "a"; FLOAT is given by --in already'],
  [["export", "a", "b", "--gguf", "c"], 'export: unexpected argument "b"; GGUF is given by --gguf already'],
  [["import", "a", "b", "--gguf", "c"], 'import: unexpected argument "b"; GGUF is given by --gguf already'],
  [["gen", "a", "--out", "b"], 'gen: unexpected argument "a"; OUT is given by --out already'],
  [["verify", "a", "b"], 'verify: unexpected argument "b"; see rabbit verify --help'],
  [["quantize", "a", "b", "c"], 'quantize: unexpected argument "c"; see rabbit quantize --help'],
  [["quantize", "--in", "a", "--out", "b", "c"], 'quantize: unexpected argument "c"; FLOAT is given by --in already'],
  [["quantize", "--in"], "quantize: --in needs a value"],
  [["quantize", "--in", "--out", "b"], "quantize: --in needs a value"],
  [["quantize", "--in", "", "--out", "b"], "quantize: --in is empty"],
  [["quantize", "--in=", "--out", "b"], "quantize: --in is empty"],
  [["quantize", "a", ""], "quantize: OUT is empty"],
  [["quantize", "", "b"], "quantize: FLOAT is empty"],
  [["quantize", "a", "--", ""], "quantize: OUT is empty"],
  [["gen", ""], "gen: OUT is empty"],
  [["export", "a", ""], "export: GGUF is empty"],
  [["compare", "a", "b", ""], "compare: CONFIG is empty"],
  [["report", "a", "b", "", "--out", "x.html"], "report: QUANT is empty"],
  [["quantize", "--in", "a", "--in", "b", "--out", "c"], "quantize: --in is given 2 times"],
  [["quantize", "--in", "a", "--out", "b", "--force=yes"], "quantize: --force takes no value"],
  [["quantize", "--in", "a", "--out", "b", "--bits", "5"], 'quantize: --bits takes 4 or 8, found "5"'],
  [["gen", "--out", "a", "--exact", "16"], 'gen: --exact takes 4 or 8, found "16"'],
  [["matmul", "--columns", "33"], 'matmul: --columns takes a multiple of 32, found "33"'],
  [["matmul", "--bits", "5"], 'matmul: --bits takes 4 or 8 or 16, found "5"'],
  [["matmul", "--bits", "16", "--activations", "i8"], 'matmul: --activations takes f32 for --bits 16, found "i8"'],
  [["matmul", "--rows", "0"], 'matmul: --rows takes a whole number of 1 to 16777216, found "0"'],
  [["gen", "--out", "a", "--seed", "-1"], 'gen: --seed takes a whole number of 0 to 4294967295, found "-1"'],
  [["verify", "a", "--threads", "0"], 'verify: --threads takes a whole number of 1 to 256, found "0"'],
  [["verify", "a", "--threads", "1.5"], 'verify: --threads takes a whole number of 1 to 256, found "1.5"'],
  [["quantize", "--in", "gone", "--out", "b"], "quantize: cannot open gone: no such file or directory"],
  [["verify", "gone"], "verify: cannot open gone: no such file or directory"],
  [["inspect", "gone"], "inspect: cannot open gone: no such file or directory"],
  [["inspect", "--", "--gone"], "inspect: cannot open --gone: no such file or directory"],
];

Deno.test("a wrong command line is refused in one line that says what to do", () =>
  inTemporary(async (cwd) => {
    await inPairs(USAGE, ([args, line]) => refusedIn(cwd, args, 2, line));
  }));

Deno.test("with --json an error is one JSON object on standard error, with the same exit status", () =>
  inTemporary(async (cwd) => {
    const [kind, file] = ["checkpoint", "cut.safetensors"];
    Deno.writeFileSync(`${cwd}/cut.safetensors`, SOUND.subarray(0, -40));
    checkpoint(`${cwd}/in`, SOUND);
    checkpoint(`${cwd}/infinite`, safetensors([blocks("w", 4, 2, 1, 0x7c00)], Q4));
    Deno.mkdirSync(`${cwd}/out`);
    Deno.writeTextFileSync(`${cwd}/out/${WEIGHTS}`, "old");
    const ends = "[0,1024] ends after the data, which has 1016 bytes; the file is truncated";
    const wrong: [string[], number, Record<string, string>][] = [
      [["verify", file], 1, {
        ...{ kind, file, tensor: DOWN, field: "data_offsets" },
        ...{ message: `${file}: tensor "${DOWN}": data_offsets: ${ends}`, advice: "the file is truncated" },
      }],
      [["inspect", file], 2, {
        ...{ kind, file, tensor: DOWN, field: "data_offsets" },
        ...{ message: `${file}: tensor "${DOWN}": data_offsets: ${ends}`, advice: "the file is truncated" },
      }],
      [["inspect", "gone; gone"], 2, {
        ...{ kind: "system", file: "gone; gone" },
        message: "cannot open gone; gone: no such file or directory",
      }],
      [["quantize", "in", "out"], 2, {
        ...{ kind: "output", file: `out/${WEIGHTS}` },
        ...{ message: `out/${WEIGHTS} exists already; --force replaces it`, advice: "--force replaces it" },
      }],
      [["quantize", "in"], 2, {
        ...{ kind: "usage", message: "OUT is missing; see rabbit quantize --help" },
        advice: "see rabbit quantize --help",
      }],
      [["verfy", "in"], 2, {
        ...{ kind: "usage", message: 'unknown command "verfy"; did you mean verify?', advice: "did you mean verify?" },
      }],
      [["infer", TINY, "--ids", "1", "--steps", "300"], 2, {
        kind: "limit",
        message: "301 tokens are more than the model's context of 256 (max_position_embeddings); " +
          "use a shorter prompt or fewer steps",
        advice: "use a shorter prompt or fewer steps",
      }],
    ];
    await inPairs(wrong, async ([args, code, object]) => {
      const ran = await rabbit(cwd, [...args, "--json"]);
      assertEquals([ran.code, ran.out, ran.err.split("\n").length], [code, "", 2], args.join(" "));
      assertEquals(JSON.parse(ran.err), object);
    });
    // What follows -- is an argument.
    const plain = await rabbit(cwd, ["inspect", "--", "--json"]);
    assertEquals(plain.err, "rabbit: inspect: cannot open --json: no such file or directory\n");
  }));

// What the commands print

Deno.test("an argument is given by itself, or by the flag that stands for it: the same files, the same lines", () =>
  inTemporary(async (cwd) => {
    const same = async (plain: string[], flags: string[], output?: string) => {
      const results = [];
      for (const args of [plain, flags]) {
        const ran = await rabbit(cwd, args);
        sound(ran);
        const made = output === undefined
          ? []
          : Deno.statSync(`${cwd}/${output}`).isDirectory
          ? await Promise.all(tree(`${cwd}/${output}`).map((name) => sha256(`${cwd}/${output}/${name}`)))
          : [await sha256(`${cwd}/${output}`)];
        results.push({ out: ran.out.replaceAll(/\b(ms|tokens_per_s|bytes|peak|peak_rss)=\S+/g, ""), made });
        if (output !== undefined) Deno.renameSync(`${cwd}/${output}`, `${cwd}/first-${results.length}-${output}`);
      }
      assertEquals(results[1], results[0], plain.join(" "));
      if (output !== undefined) Deno.renameSync(`${cwd}/first-1-${output}`, `${cwd}/${output}`);
    };
    await same(["gen", "dev"], ["gen", "--out", "dev"], "dev");
    await same(["quantize", "dev", "q8", "--bits", "8"], ["quantize", "--bits=8", "--out", "q8", "--in", "dev"], "q8");
    await same(["quantize", "dev", "q4"], ["quantize", "dev", "--out", "q4"], "q4");
    await same(["infer", "q8", "--steps", "2"], ["infer", "--model", "q8", "--steps", "2"]);
    await same(["export", "q8", "q8.gguf", "--pre", "gpt-2"], [
      ...["export", "--in", "q8", "--gguf", "q8.gguf", "--pre", "gpt-2"],
    ], "q8.gguf");
    await same(["import", "q8.gguf", "back"], ["import", "--gguf", "q8.gguf", "--out", "back"], "back");
    copyModel(TINY, `${cwd}/tiny`);
    await same(["advise", "tiny"], ["advise", "--in", "tiny"]);
  }));

Deno.test("--quiet leaves out the warnings, and no error", () =>
  inTemporary(async (cwd) => {
    Deno.writeFileSync(`${cwd}/lone.safetensors`, SOUND);
    const loud = await rabbit(cwd, ["quantize", "lone.safetensors", "a"]);
    assertMatch(loud.err, /^rabbit: warning: quantize: /);
    for (const [n, flag] of ["--quiet", "-q"].entries()) {
      const { code, out, err } = await rabbit(cwd, ["quantize", "lone.safetensors", `b${n}`, flag]);
      assertEquals([code, err, out.replace(`b${n}/`, "a/")], [0, "", loud.out]);
    }
    const line = "rabbit: quantize: a/model.safetensors exists already; --force replaces it\n";
    assertEquals((await rabbit(cwd, ["quantize", "lone.safetensors", "a", "-q"])).err, line);
    const json = await rabbit(cwd, ["quantize", "lone.safetensors", "c", "--json"]);
    assertEquals(json.err.trimEnd().split("\n").map((line) => JSON.parse(line)), [
      ...["config.json", "vocab.json", "merges.txt"].map((name) => ({
        kind: "warning",
        message: `quantize: . has no ${name}, so the new checkpoint has none`,
      })),
    ]);
  }));

Deno.test("gate passes at every width, in lines and in JSON", async () => {
  const lines = await rabbit(".", ["gate", "--threads", "2"]);
  sound(lines);
  assertEquals(
    lines.out.split("\n").sort(),
    [
      "",
      "GATE OK",
      "GATE bits=4 match=true tokens=8 max_diff=0.000000 pass=true",
      "GATE bits=8 match=true tokens=8 max_diff=0.000000 pass=true",
    ],
  );
  const json = await rabbit(".", ["gate", "--json"]);
  sound(json);
  const { list, verdict } = JSON.parse(json.out) as { list: Record<string, unknown>[]; verdict: string };
  assertEquals(verdict, "OK");
  assertEquals(list.length, 2);
  for (const width of list) assertEquals([width.match, width.max_diff, width.pass], [true, 0, true]);
});

Deno.test("matmul times a product of every width, and its figures agree with each other", async () => {
  // Bytes of a row of 64 weights: two blocks of a scale and 32 weights, or 64 bfloat16 values.
  for (const [bits, format, rowBytes] of [["4", "Q4B32", 36], ["8", "Q8B32", 68], ["16", "BF16", 128]] as const) {
    const args = ["matmul", "--bits", bits, "--rows", "128", "--columns", "64", "--threads", "2"];
    const { code, out, err } = await rabbit(".", args);
    assertEquals([code, err], [0, ""]);
    const [first, second, ...rest] = out.split("\n");
    const head = `MATMUL format=${format} rows=128 columns=64 bytes=${
      128 * rowBytes
    } threads=2 activations=f32 passes=30`;
    assertEquals([first, rest], [head, [""]]);
    assertMatch(second, /^MATMUL ms_median=\S+ ms_min=\S+ ms_max=\S+ gb_per_s=\S+ weights_per_s=\d+$/);
    const found = JSON.parse((await rabbit(".", [...args, "--json"])).out);
    assert(found.ms_min > 0 && found.ms_min <= found.ms_median && found.ms_median <= found.ms_max);
    assertAlmostEquals(found.gb_per_s * found.ms_median, 128 * rowBytes / 1e6, 1e-9);
    assertAlmostEquals(found.weights_per_s * found.ms_median / 1000, 128 * 64, 1e-6);
  }
  const plain = JSON.parse((await rabbit(".", ["matmul", "--rows", "64", "--activations", "i8", "--json"])).out);
  assertEquals([plain.format, plain.columns, plain.activations], ["Q4B32", 576, "i8"]);
});

Deno.test("gen, quantize, verify and inspect print their lines, and --json the same keys and values", () =>
  inTemporary(async (cwd) => {
    const both = async (args: string[], fresh?: string) => {
      const lines = await rabbit(cwd, args);
      sound(lines);
      if (fresh) Deno.removeSync(`${cwd}/${fresh}`, { recursive: true });
      const json = await rabbit(cwd, [...args, "--json"]);
      sound(json);
      assertEquals(json.out.split("\n").length, 2, "one line");
      const object = JSON.parse(json.out);
      assertEquals(jsonKeys(object).filter((key) => key !== "verdict"), keys(lines.out), args[0]);
      return { lines: lines.out, object };
    };

    const gen = await both(["gen", "--out", "in"], "in");
    const size = Deno.statSync(`${cwd}/in/${WEIGHTS}`).size;
    assertEquals(gen.lines, `GEN model=in/model.safetensors bytes=${size} tensors=38 seed=0 exact=none\n`);

    for (const [bits, ratio] of [[4, "0.282"], [8, "0.532"]] as const) {
      const out = `q${bits}`;
      const quantize = await both(["quantize", "--in", "in", "--out", out, "--bits", `${bits}`], out);
      const path = `${cwd}/${out}/${WEIGHTS}`;
      const { size: bytes } = Deno.statSync(path);
      const digest = await sha256(path);
      assertEquals(
        quantize.lines,
        `QUANT model=${out}/model.safetensors bytes=${bytes} source_bytes=${size} tensors=38 quantized=29 kept=9 ` +
          `bits=${bits} block=32 scale=f16\nQUANT ratio=${ratio} digest=${digest}\n`,
      );
      assertEquals(quantize.object, {
        ...{ model: `${out}/model.safetensors`, bytes, source_bytes: size, tensors: 38, quantized: 29, kept: 9 },
        ...{ bits, block: 32, scale: "f16", ratio: bytes / size, digest },
      });
      assertEquals(tree(`${cwd}/${out}`), ["config.json", "merges.txt", WEIGHTS, "vocab.json"]);
      for (const name of ["config.json", "merges.txt", "vocab.json"]) {
        assertEquals(await sha256(`${cwd}/${out}/${name}`), await sha256(`${cwd}/in/${name}`));
      }

      const verify = await both(["verify", out]);
      assertEquals(
        verify.lines,
        `VERIFY model=${out}/model.safetensors bytes=${bytes} format=rabbit-q${bits}b32 tensors=38 quantized=29 ` +
          `kept=9 blocks=163840\nVERIFY digest=${digest}\nVERIFY OK\n`,
      );
      assertEquals(verify.object.verdict, "OK");

      const against = await both(["verify", out, "--against", "in"]);
      assertEquals(against.lines.match(/^VERIFY tensor=\S+ equal=true( rms=0\.\d{6})?$/gm)?.length, 38);
      assertMatch(
        against.lines,
        /^VERIFY against=in\/model\.safetensors equal=38 different=0 rms=0\.\d{6}\nVERIFY OK$/m,
      );

      const inspect = await both(["inspect", `${out}/${WEIGHTS}`]);
      const [first, ...rest] = inspect.lines.trimEnd().split("\n");
      assertEquals(
        first,
        `INSPECT model=${out}/model.safetensors bytes=${bytes} files=1 format=rabbit-q${bits}b32 tensors=38 parameters=5245184`,
      );
      assertEquals(rest.length, 38);
      assertMatch(
        rest[0],
        new RegExp(
          `^INSPECT tensor=model\\.embed_tokens\\.weight dtype=Q${bits}B32 shape=\\[8192,256\\] bytes=\\d+ offset=\\d+$`,
        ),
      );
    }
  }));

Deno.test("the bytes do not depend on the number of threads", () =>
  inTemporary(async (cwd) => {
    sound(await rabbit(cwd, ["gen", "--out", "in"]));
    const digests = new Set<string>();
    for (const threads of ["1", "2", "5"]) {
      sound(await rabbit(cwd, ["quantize", "--in", "in", "--out", threads, "--threads", threads]));
      digests.add(await sha256(`${cwd}/${threads}/${WEIGHTS}`));
    }
    assertEquals(digests.size, 1);
  }));

Deno.test("quantize takes a file for its source, makes the parents of --out, and warns of missing companions", () =>
  inTemporary(async (cwd) => {
    Deno.writeFileSync(`${cwd}/lone.safetensors`, SOUND);
    const { code, out, err } = await rabbit(cwd, ["quantize", "--in", "lone.safetensors", "--out", "deep/er/out"]);
    assertEquals(code, 0);
    assertMatch(out, /^QUANT model=deep\/er\/out\/model\.safetensors bytes=\d+ .*quantized=1 kept=1/);
    assertEquals(
      err,
      ["config.json", "vocab.json", "merges.txt"].map((name) =>
        `rabbit: warning: quantize: . has no ${name}, so the new checkpoint has none\n`
      ).join(""),
    );
    assertEquals(tree(`${cwd}/deep`), ["er/", "er/out/", `er/out/${WEIGHTS}`]);
  }));

Deno.test("quantize copies the optional companions that are there", () =>
  inTemporary(async (cwd) => {
    checkpoint(`${cwd}/in`, {
      [WEIGHTS]: SOUND,
      "tokenizer.json": "{}",
      "generation_config.json": "{}",
      "chat_template.jinja": "",
      "other.txt": "",
    });
    sound(await rabbit(cwd, ["quantize", "--in", "in", "--out", "out"]));
    const copied = ["config.json", "generation_config.json", "merges.txt", WEIGHTS, "tokenizer.json", "vocab.json"];
    assertEquals(tree(`${cwd}/out`), ["chat_template.jinja", ...copied]);
  }));

Deno.test("--dry-run prints what would be written, and writes nothing", () =>
  inTemporary(async (cwd) => {
    checkpoint(`${cwd}/in`, SOUND);
    const before = tree(cwd);
    const dry = await rabbit(cwd, ["quantize", "--in", "in", "--out", "out", "--dry-run"]);
    sound(dry);
    assertEquals(tree(cwd), before);
    const wet = await rabbit(cwd, ["quantize", "--in", "in", "--out", "out"]);
    assertEquals(dry.out.replace(/ dry_run=true| memory=\d+/g, ""), wet.out.replace(/ digest=.*/, ""));
    const line = "quantize: out/model.safetensors exists already; --force replaces it";
    await refusedIn(cwd, ["quantize", "--in", "in", "--out", "out", "--dry-run"], 2, line);
  }));

Deno.test("a sharded source is read as one", () =>
  inTemporary(async (cwd) => {
    checkpoint(`${cwd}/in`, shards());
    sound(await rabbit(cwd, ["quantize", "--in", "in", "--out", "out"]));
    checkpoint(`${cwd}/one`, safetensors([matrix("a", 2, 32), matrix("b", 4, 32), vector("c")]));
    sound(await rabbit(cwd, ["quantize", "--in", "one", "--out", "out1"]));
    assertEquals(await sha256(`${cwd}/out/${WEIGHTS}`), await sha256(`${cwd}/out1/${WEIGHTS}`));
    const verify = await rabbit(cwd, ["verify", "out", "--against", "in"]);
    sound(verify);
    assertMatch(verify.out, /^VERIFY against=in equal=3 different=0 /m);
    const { size } = Deno.statSync(`${cwd}/in/s1.safetensors`);
    const sizes = size + Deno.statSync(`${cwd}/in/s2.safetensors`).size;
    const inspect = await rabbit(cwd, ["inspect", "in"]);
    assertStringIncludes(inspect.out, `INSPECT model=in bytes=${sizes} files=2 format=none tensors=3 parameters=200\n`);
    assertStringIncludes(inspect.out, " file=in/s2.safetensors\n");
  }));

Deno.test("verify --against says where a checkpoint differs, with status 1", () =>
  inTemporary(async (cwd) => {
    checkpoint(`${cwd}/in`, SOUND);
    checkpoint(
      `${cwd}/other`,
      safetensors([
        matrix(DOWN, 4, 64, (r, c) => Math.sin(r * 7 + c) * (r === 2 && c >= 32 ? -1 : 1)),
        { ...vector(NORM), bytes: new Uint8Array(32) },
        vector("extra"),
      ]),
    );
    sound(await rabbit(cwd, ["quantize", "--in", "other", "--out", "out"]));
    const { code, out, err } = await rabbit(cwd, ["verify", "out", "--against", "in"]);
    assertEquals({ code, err }, { code: 1, err: "" });
    assertMatch(out, new RegExp(`^VERIFY tensor=${DOWN} equal=false row=2 block=1 rms=\\d`, "m"));
    assertStringIncludes(out, `VERIFY tensor=${NORM} equal=false byte=2\n`);
    assertStringIncludes(out, 'VERIFY tensor=extra equal=false problem="not in the source"\n');
    assertMatch(out, /different=3 rms=\d\.\d{6}\nVERIFY DIFFER\n$/);
    const line =
      "verify: other/model.safetensors: __metadata__: declares no width, so it is not a quantized checkpoint; " +
      "only those can be compared with a source";
    await refusedIn(cwd, ["verify", "other", "--against", "in"], 1, line);
    await refusedIn(
      cwd,
      ["verify", "out", "--against", "gone"],
      2,
      "verify: cannot open gone: no such file or directory",
    );
  }));

// Refusals of files

function entry(name: string, dtype: string, shape: number[], begin: number, end: number): string {
  return `"${name}":${JSON.stringify({ dtype, shape, data_offsets: [begin, end] })}`;
}

const A = entry("a", "F32", [2, 32], 0, 256);
const lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 269060552\n";
const zeros = (n: number) => new Uint8Array(n);

/** A name, a file, and what verify says of it after its path. */
const FILES: [string, Uint8Array, string][] = [
  ["empty", zeros(0), "not a safetensors file: 0 bytes, too short for a header"],
  ["lfs", utf8(lfs), "not a safetensors file but a git-lfs pointer; fetch the file with `git lfs pull`"],
  [
    "long-header",
    Uint8Array.of(0, 0, 0, 0, 1, 0, 0, 0),
    "header: length is 4294967296 bytes, the limit is 100000000; not a safetensors file",
  ],
  [
    "cut-header",
    SOUND.subarray(0, 40),
    `header: length is ${
      new DataView(SOUND.buffer).getUint32(0, true)
    } bytes, but only 32 follow in the file; the file is truncated`,
  ],
  [
    "cut",
    SOUND.subarray(0, -40),
    `tensor "${DOWN}": data_offsets: [0,1024] ends after the data, which has 1016 bytes; the file is truncated`,
  ],
  [
    "longer",
    concat(SOUND, zeros(16)),
    "data_offsets: the tensors cover 1056 bytes of data, but the file has 1072",
  ],
  ["not-utf8", container(Uint8Array.of(0x7b, 0xff, 0x7d)), "header: not valid UTF-8"],
  ["array", container("[]"), 'header: expected "{" first, found "[]"'],
  ["cut-json", container('{"a":'), "header: not valid JSON: expected a value, found the end at character 5"],
  [
    "duplicate",
    container(`{${A},${entry("a", "F32", [2, 32], 256, 512)}}`, zeros(512)),
    `header: not valid JSON: duplicate key "a" at character ${A.length + 2}`,
  ],
  [
    "overlap",
    container(`{${A},${entry("b", "F32", [1, 32], 192, 320)}}`, zeros(320)),
    'tensor "b": data_offsets: [192,320] overlaps the previous tensor, which ends at 256',
  ],
  [
    "hole",
    container(`{${A},${entry("b", "F32", [1, 8], 320, 352)}}`, zeros(352)),
    'tensor "b": data_offsets: [320,352] leaves a gap after byte 256',
  ],
  [
    "backwards",
    container(`{${entry("a", "F32", [2, 32], 256, 0)}}`, zeros(256)),
    'tensor "a": data_offsets: [256,0] ends before it begins',
  ],
  [
    "short",
    container(`{${entry("a", "F32", [4, 32], 0, 128)}}`, zeros(128)),
    'tensor "a": data_offsets: [0,128] covers 128 bytes, but shape [4,32] of F32 needs 512',
  ],
  [
    "negative",
    container(`{${entry("a", "F32", [-2, -32], 0, 256)}}`, zeros(256)),
    'tensor "a": shape: expected whole numbers of 0 to 2^53-1, found -2',
  ],
  [
    "fraction",
    container(`{${entry("a", "F32", [2.5], 0, 10)}}`, zeros(10)),
    'tensor "a": shape: expected whole numbers of 0 to 2^53-1, found 2.5',
  ],
  [
    "overflow",
    container(`{${entry("a", "F32", [2 ** 40, 2 ** 40], 0, 0)}}`),
    `tensor "a": shape: [${2 ** 40},${2 ** 40}] has more than 2^53 bytes`,
  ],
  [
    "dtype",
    container(`{${entry("a", "Q9", [2], 0, 2)}}`, zeros(2)),
    'tensor "a": dtype: unknown dtype "Q9"',
  ],
  [
    "name",
    container(`{${entry("a\\nb\\u0085", "Q9", [2], 0, 2)}}`, zeros(2)),
    'tensor "a\\nb\\u0085": dtype: unknown dtype "Q9"',
  ],
  [
    "no-metadata",
    safetensors([blocks("w", 4)]),
    'tensor "w": __metadata__: dtype Q4B32 needs "rabbit-q4b32", found nothing',
  ],
  [
    "no-block",
    safetensors([blocks("w", 4)], { format: Q4.format, scale: Q4.scale }),
    '__metadata__ "block": Q4B32 needs "32", found nothing',
  ],
  [
    "block-64",
    safetensors([blocks("w", 4)], { ...Q4, block: "64" }),
    '__metadata__ "block": Q4B32 needs "32", found "64"',
  ],
  [
    "block-number",
    safetensors([blocks("w", 4)], { ...Q4, block: 32 }),
    '__metadata__ "block": expected a string, found 32',
  ],
  [
    "scale-f32",
    safetensors([blocks("w", 4)], { ...Q4, scale: "f32" }),
    '__metadata__ "scale": Q4B32 needs "f16", found "f32"',
  ],
  [
    "other-width",
    safetensors([blocks("w", 4)], Q8),
    'tensor "w": dtype: Q4B32 in a file of format "rabbit-q8b32"; a file has only one width',
  ],
  [
    "unknown-width",
    safetensors([vector("w")], { ...Q4, format: "rabbit-q5b32" }),
    '__metadata__ "format": unknown width "rabbit-q5b32"',
  ],
  [
    "float-matrix",
    safetensors([blocks("v", 4), matrix("w", 2, 32)], Q4),
    'tensor "w": dtype: a two-dimensional F32 tensor in a file of format "rabbit-q4b32"; it must be Q4B32',
  ],
  [
    "one-dimension",
    safetensors([{ ...blocks("w", 4), shape: [256] }], Q4),
    'tensor "w": shape: expected two dimensions for Q4B32, found [256]',
  ],
  [
    "ragged",
    safetensors([{ ...blocks("w", 4), shape: [8, 33] }], Q4),
    'tensor "w": shape: [8,33]: 33 columns are not a multiple of 32',
  ],
  [
    "infinite",
    safetensors([blocks("v", 4), blocks("w", 4, 2, 1, 0x7c00)], Q4),
    'tensor "w": scale: row 2 block 1: the scale is not finite; the file is damaged, make or download it again',
  ],
  [
    "minus-infinite",
    safetensors([blocks("w", 4, 3, 0, 0xfc00)], Q4),
    'tensor "w": scale: row 3 block 0: the scale is not finite; the file is damaged, make or download it again',
  ],
  [
    "not-a-number",
    safetensors([blocks("w", 8, 0, 0, 0x7e01)], Q8),
    'tensor "w": scale: row 0 block 0: the scale is not finite; the file is damaged, make or download it again',
  ],
];

Deno.test("verify answers no to a file that breaks the format, naming file, tensor and field", () =>
  inTemporary(async (cwd) => {
    for (const [name, bytes] of FILES) Deno.writeFileSync(`${cwd}/${name}.safetensors`, bytes);
    await inPairs(FILES, ([name, _, problem]) => {
      const path = `${name}.safetensors`;
      return refusedIn(cwd, ["verify", path], 1, `verify: ${path}: ${problem}`);
    });
  }));

Deno.test("inspect reads the header alone: it refuses a bad header, and does not see a bad scale", () =>
  inTemporary(async (cwd) => {
    for (const [name, bytes, problem] of FILES.filter((_, n) => n % 6 === 0 || n > FILES.length - 4)) {
      const path = `${name}.safetensors`;
      Deno.writeFileSync(`${cwd}/${path}`, bytes);
      if (problem.includes("is not finite")) sound(await rabbit(cwd, ["inspect", path]));
      else await refusedIn(cwd, ["inspect", path], 2, `inspect: ${path}: ${problem}`);
    }
  }));

Deno.test("the smallest sound files pass", () =>
  inTemporary(async (cwd) => {
    const files = {
      none: container("{}"),
      padded: container("{}      "),
      vacant: safetensors([{ ...matrix("a", 0, 32) }, vector("b")]),
      q4: safetensors([blocks("w", 4)], Q4),
      minus: safetensors([blocks("w", 8, 1, 1, 0x8001)], Q8),
    };
    for (const [name, bytes] of Object.entries(files)) {
      Deno.writeFileSync(`${cwd}/${name}.safetensors`, bytes);
      const ran = await rabbit(cwd, ["verify", `${name}.safetensors`]);
      sound(ran);
      assertMatch(ran.out, /\nVERIFY OK\n$/);
    }
  }));

/** A name, a source, and what quantize says of it after its path, at four bits and at eight. */
const nan = (r: number, c: number) => r === 5 && c === 40 ? NaN : 1;
const SOURCES: [string, Uint8Array, string, string?][] = [
  ["lfs", utf8(lfs), "not a safetensors file but a git-lfs pointer; fetch the file with `git lfs pull`"],
  [
    "ragged",
    safetensors([vector(NORM), matrix(DOWN, 2, 40)]),
    `tensor "${DOWN}": shape: [2,40]: 40 columns are not a multiple of 32; the format has no partial block`,
  ],
  [
    "nan",
    safetensors([matrix(DOWN, 8, 64, nan)]),
    `tensor "${DOWN}": row 5 column 40 (block 1): weight is NaN; only finite weights can be quantized`,
  ],
  [
    "infinite",
    safetensors([matrix(DOWN, 8, 64, (r, c) => r === 7 && c === 63 ? -Infinity : 1)]),
    `tensor "${DOWN}": row 7 column 63 (block 1): weight is -Infinity; only finite weights can be quantized`,
  ],
  [
    "overflow",
    safetensors([matrix(DOWN, 4, 64, (r, c) => r === 1 && c === 3 ? 1e7 : 1)]),
    `tensor "${DOWN}": row 1 block 0: the scale ${Math.fround(1e7 / 7)} overflows binary16 (65504); ` +
    "the weights are too large for Q4B32",
    `tensor "${DOWN}": row 1 block 0: the scale ${Math.fround(1e7 / 127)} overflows binary16 (65504); ` +
    "the weights are too large for Q8B32",
  ],
  [
    "float8",
    safetensors([{ name: DOWN, dtype: "F8_E4M3", shape: [4, 32], bytes: zeros(128).fill(0x38) }]),
    `tensor "${DOWN}": dtype: F8_E4M3 is not a float format that can be quantized (F64, F32, F16, BF16); ` +
    "convert the checkpoint to BF16 first",
  ],
  [
    "integers",
    safetensors([{ name: "up_proj.qweight", dtype: "I32", shape: [4, 32], bytes: zeros(512) }]),
    'tensor "up_proj.qweight": dtype: I32 is not a float format that can be quantized (F64, F32, F16, BF16); ' +
    "convert the checkpoint to BF16 first",
  ],
  [
    "quantized",
    safetensors([blocks(DOWN, 4)], Q4),
    '__metadata__ "format": already quantized to Q4B32; give the float checkpoint that it was made from',
  ],
];

Deno.test("quantize refuses a source that it can't encode, and leaves nothing behind", () =>
  inTemporary(async (cwd) => {
    for (const [name, bytes, four, eight = four] of SOURCES) {
      checkpoint(`${cwd}/${name}`, bytes);
      for (const [bits, problem] of [["4", four], ["8", eight]]) {
        const args = ["quantize", "--in", name, "--out", "new/out", "--bits", bits];
        await refusedIn(cwd, args, 2, `quantize: ${name}/${WEIGHTS}: ${problem}`);
      }
    }
    // What is there stays, even when it was to be replaced.
    checkpoint(`${cwd}/out`, { [WEIGHTS]: "old" });
    await refusedIn(
      cwd,
      ["quantize", "--in", "nan", "--out", "out", "--force"],
      2,
      `quantize: nan/${WEIGHTS}: ${SOURCES[2][2]}`,
    );
    assertEquals(Deno.readTextFileSync(`${cwd}/out/${WEIGHTS}`), "old");
  }));

/** Two shards and their index, whose entries `more` adds to or replaces. */
function shards(more: Record<string, string> = {}): Record<string, Uint8Array | string> {
  const weight_map = { a: "s1.safetensors", b: "s2.safetensors", c: "s2.safetensors", ...more };
  return {
    "s1.safetensors": safetensors([matrix("a", 2, 32)]),
    "s2.safetensors": safetensors([matrix("b", 4, 32), vector("c")]),
    "model.safetensors.index.json": JSON.stringify({ metadata: {}, weight_map }),
  };
}

Deno.test("a bad index is refused, and never leads out of its directory", () =>
  inTemporary(async (cwd) => {
    const index = "in/model.safetensors.index.json";
    Deno.writeFileSync(`${cwd}/outside.safetensors`, safetensors([vector("x")]));
    const cases: [Record<string, Uint8Array | string>, string][] = [
      ...["../outside.safetensors", `${cwd}/outside.safetensors`, "sub/s3.safetensors", "..", ""].map((
        name,
      ): [Record<string, string | Uint8Array>, string] => [
        shards({ x: name }),
        `${index}: tensor "x": weight_map: expected the name of a file in this directory, found ${
          JSON.stringify(name)
        }`,
      ]),
      [
        shards({ x: "s3.safetensors" }),
        `${index}: weight_map: the shard "s3.safetensors" is not in the directory; fetch it again`,
      ],
      [
        shards({ x: "s1.safetensors" }),
        'in/s1.safetensors: tensor "x": missing, although model.safetensors.index.json places it here',
      ],
      [
        shards({ c: "s1.safetensors" }),
        'in/s2.safetensors: tensor "c": model.safetensors.index.json places it in "s1.safetensors"',
      ],
      [
        { ...shards(), "s1.safetensors": safetensors([matrix("a", 2, 32), vector("c")]) },
        'in/s1.safetensors: tensor "c": model.safetensors.index.json places it in "s2.safetensors"',
      ],
      [
        { ...shards(), "s1.safetensors": safetensors([matrix("a", 2, 32), vector("d")]) },
        'in/s1.safetensors: tensor "d": model.safetensors.index.json does not list it',
      ],
      [{ [index.slice(3)]: "{" }, `${index}: not valid JSON: expected a key, found the end at character 1`],
      [
        { [index.slice(3)]: "{}" },
        `${index}: weight_map: expected an object of tensor names and shard names, found nothing`,
      ],
      [{ [index.slice(3)]: '{"weight_map":{}}' }, `${index}: weight_map: lists no tensors`],
      [{}, "in: no model.safetensors and no model.safetensors.index.json in this directory; is it a checkpoint?"],
    ];
    for (const [files, problem] of cases) {
      checkpoint(`${cwd}/in`, files);
      await refusedIn(cwd, ["quantize", "--in", "in", "--out", "out"], 2, `quantize: ${problem}`);
      await refusedIn(cwd, ["verify", "in"], 1, `verify: ${problem}`);
      Deno.removeSync(`${cwd}/in`, { recursive: true });
    }
  }));

// Refusals of outputs

Deno.test("quantize never writes into the directory of its source", () =>
  inTemporary(async (cwd) => {
    checkpoint(`${cwd}/in`, SOUND);
    const digest = await sha256(`${cwd}/in/${WEIGHTS}`);
    Deno.symlinkSync("in", `${cwd}/link`);
    for (const out of ["in", "./in/", "in/../in", "link", `${cwd}/in`]) {
      const line =
        `quantize: ${out} is the directory of the source, which would be overwritten; choose another directory`;
      await inPairs(
        [["in"], ["in", "--force"], [`in/${WEIGHTS}`, "--force"], ["link", "--force"]],
        ([source, ...force]) => refusedIn(cwd, ["quantize", "--in", source, "--out", out, ...force], 2, line),
      );
    }
    // A directory of hard links is a checkpoint like any other.
    Deno.mkdirSync(`${cwd}/links`);
    for (const name of tree(`${cwd}/in`)) Deno.linkSync(`${cwd}/in/${name}`, `${cwd}/links/${name}`);
    const line = `quantize: in/${WEIGHTS} is the source itself (links/${WEIGHTS}), which would be overwritten; ` +
      "choose another directory";
    await refusedIn(cwd, ["quantize", "--in", "links", "--out", "in", "--force"], 2, line);
    sound(await rabbit(cwd, ["quantize", "--in", "links", "--out", "out"]));
    assertEquals(await sha256(`${cwd}/in/${WEIGHTS}`), digest);
  }));

Deno.test("an existing checkpoint is replaced with --force only", () =>
  inTemporary(async (cwd) => {
    checkpoint(`${cwd}/in`, SOUND);
    checkpoint(`${cwd}/out`, { [WEIGHTS]: "old", "config.json": "old", "mine.txt": "mine" });
    const args = ["quantize", "--in", "in", "--out", "out"];
    await refusedIn(cwd, args, 2, "quantize: out/model.safetensors exists already; --force replaces it");
    assertEquals(Deno.readTextFileSync(`${cwd}/out/${WEIGHTS}`), "old");
    sound(await rabbit(cwd, [...args, "--force"]));
    sound(await rabbit(cwd, ["verify", "out", "--against", "in"]));
    assertEquals(tree(`${cwd}/out`), ["config.json", "merges.txt", "mine.txt", WEIGHTS, "vocab.json"]);
    assertEquals(Deno.readTextFileSync(`${cwd}/out/config.json`), "{}\n");
    const gen = "gen: out/model.safetensors exists already; --force replaces it";
    await refusedIn(cwd, ["gen", "--out", "out"], 2, gen);

    checkpoint(`${cwd}/sharded`, shards());
    const line = "quantize: sharded holds a sharded checkpoint (model.safetensors.index.json); " +
      "choose another directory or remove it first";
    await refusedIn(cwd, ["quantize", "--in", "in", "--out", "sharded", "--force"], 2, line);
  }));

Deno.test("an output that can't be a directory, or be written, is refused", () =>
  inTemporary(async (cwd) => {
    checkpoint(`${cwd}/in`, SOUND);
    Deno.writeTextFileSync(`${cwd}/file`, "mine");
    for (const force of [[], ["--force"]]) {
      for (const args of [["quantize", "--in", "in"], ["gen"]]) {
        const refusals = {
          file: "file is a file, and the checkpoint needs a directory; choose another name",
          "file/below": "cannot read file/below: a part of the path is not a directory",
        };
        for (const [out, refusal] of Object.entries(refusals)) {
          await refusedIn(cwd, [...args, "--out", out, ...force], 2, `${args[0]}: ${refusal}`);
        }
      }
    }
    assertEquals(Deno.readTextFileSync(`${cwd}/file`), "mine");
  }));

Deno.test("an output without permission is refused", () =>
  inTemporary(async (cwd) => {
    checkpoint(`${cwd}/in`, SOUND);
    Deno.mkdirSync(`${cwd}/locked`, { mode: 0o555 });
    // Root may write anywhere but where the kernel lets no one.
    const out = Deno.uid() === 0 ? "/proc" : "locked";
    const { code, out: printed, err } = await rabbit(cwd, ["quantize", "--in", "in", "--out", `${out}/new`]);
    assertEquals({ code, printed }, { code: 2, printed: "" });
    assertMatch(err, new RegExp(`^rabbit: quantize: [^\\n]*${out}[^\\n]*\\n$`));
  }));

// Manners

Deno.test("RABBIT_DEBUG=1 adds the stack, which is never there otherwise", () =>
  inTemporary(async (cwd) => {
    const args = ["inspect", "gone"];
    const line = "rabbit: inspect: cannot open gone: no such file or directory\n";
    assertEquals((await rabbit(cwd, args)).err, line);
    const { code, err } = await rabbit(cwd, args, { RABBIT_DEBUG: "1" });
    assertEquals(code, 2);
    assert(err.startsWith(line));
    assertMatch(err, /\n {4}at .*lib\/files\/read\.ts/);
  }));

Deno.test("RABBIT_CHECKED=1 is refused where the engine does not check addresses", async () => {
  const run = (flag: string) => rabbit(ROOT, ["inspect", TINY], { RABBIT_CHECKED: "1", DENO_V8_FLAGS: flag });
  const { code, out, err } = await run("--no-wasm-bounds-checks");
  assertEquals([code, out], [2, ""]);
  assertMatch(err, /^rabbit: inspect: RABBIT_CHECKED is set, but this program runs without bounds checks; .*\n$/);
  // An executable has its flags from when it was compiled.
  if (!Deno.env.get("RABBIT_BIN")) assertEquals((await run("--wasm-bounds-checks")).code, 0);
});

Deno.test("a reader that goes away is no error", () =>
  inTemporary(async (cwd) => {
    // More than fits into a pipe.
    const many = Array.from({ length: 20_000 }, (_, n) => ({ ...vector(`tensor.${n}`), shape: [0], bytes: zeros(0) }));
    Deno.writeFileSync(`${cwd}/many.safetensors`, safetensors(many));
    const line = shellLine([...PROGRAM, "inspect", "many.safetensors"]);
    const script = `{ ${line}; echo "status $?" >&2; } | head -1`;
    const ran = await execute("sh", ["-c", script], { cwd, env: { RABBIT_DEBUG: "" } });
    assertMatch(ran.out, /^INSPECT model=many\.safetensors [^\n]*\n$/);
    assertEquals(ran.err, "status 0\n");
  }));

Deno.test("the exit status is the answer without a reader too", () =>
  inTemporary(async (cwd) => {
    await rabbit(cwd, ["gen", "a"]);
    await rabbit(cwd, ["gen", "b", "--seed", "1"]);
    await rabbit(cwd, ["quantize", "a", "q"]);
    for (const [source, status] of [["a", 0], ["b", 1]] as const) {
      for (const json of [[], ["--json"]]) {
        // The reader ends long before the first line.
        const line = shellLine([...PROGRAM, "verify", "q", "--against", source, ...json]);
        const script = `{ ${line}; echo "status $?" >&2; } | true`;
        const { err } = await execute("sh", ["-c", script], { cwd, env: { RABBIT_DEBUG: "" } });
        assertEquals(err, `status ${status}\n`);
      }
    }
  }));

const FULL = "output that a full disk does not take is an error of one line, for every kind of output";

needs(FULL, { files: ["/dev/full"] }, () =>
  inTemporary(async (cwd) => {
    Deno.writeFileSync(`${cwd}/one.safetensors`, safetensors([vector("x")]));
    const [where, reason] = ["cannot write to standard output", "no space left on the device"];
    for (const args of [["inspect", "one.safetensors"], ["inspect", "one.safetensors", "--json"], ["man"]]) {
      const line = shellLine([...PROGRAM, ...args]);
      const shell = (script: string) => execute("sh", ["-c", script], { cwd, env: { RABBIT_DEBUG: "" } });
      const message = `${where}: ${reason}; free some space or write elsewhere`;
      const { code, out, err } = await shell(`${line} > /dev/full`);
      assertEquals([code, out], [2, ""]);
      if (args.includes("--json")) assertEquals(JSON.parse(err).message, message);
      else assertEquals(err, `rabbit: ${args[0]}: ${message}\n`);
      // 1 would be an answer.
      assertEquals((await shell(`${line} > /dev/full 2> /dev/full`)).code, 2);
    }
  }));

Deno.test("values with spaces and control characters stay one word of one line", () =>
  inTemporary(async (cwd) => {
    Deno.writeFileSync(`${cwd}/a b.safetensors`, safetensors([vector("x\ny z")]));
    const { out } = await rabbit(cwd, ["inspect", "a b.safetensors"]);
    const [first, second] = out.split("\n");
    assertMatch(first, /^INSPECT model="a b\.safetensors" /);
    assertMatch(second, /^INSPECT tensor="x\\ny z" /);
  }));

// gen

Deno.test("gen writes the same bytes for the same seed", () =>
  inTemporary(async (cwd) => {
    const digest = async (out: string, ...more: string[]) => {
      sound(await rabbit(cwd, ["gen", "--out", out, ...more]));
      return await sha256(`${cwd}/${out}/${WEIGHTS}`);
    };
    const first = await digest("a");
    assertEquals(await digest("b"), first);
    assertEquals(await digest("c", "--seed", "0"), first);
    assert(await digest("d", "--seed", "1") !== first);
    assertEquals(await digest("d", "--force"), first);
    assertEquals(tree(`${cwd}/d`), ["config.json", "merges.txt", WEIGHTS, "vocab.json"]);
  }));

for (const bits of ["4", "8"]) {
  Deno.test(`gen --exact ${bits} gives weights that quantizing does not change`, () =>
    inTemporary(async (cwd) => {
      sound(await rabbit(cwd, ["gen", "--out", "in", "--exact", bits]));
      sound(await rabbit(cwd, ["quantize", "--in", "in", "--out", "out", "--bits", bits]));
      const verify = await rabbit(cwd, ["verify", "out", "--against", "in", "--json"]);
      sound(verify);
      const { rms, list } = JSON.parse(verify.out) as { rms: number; list: { rms?: number }[] };
      assertEquals(rms, 0);
      assertEquals(list.filter((tensor) => (tensor.rms ?? 0) !== 0), []);
    }));
}

Deno.test("gen writes a tokenizer that loads: every merge's parts and product are in the vocabulary", () =>
  inTemporary(async (cwd) => {
    sound(await rabbit(cwd, ["gen", "--out", "in"]));
    const read = (name: string) => Deno.readTextFileSync(`${cwd}/in/${name}`);
    const vocabulary = new Map<string, number>(Object.entries(JSON.parse(read("vocab.json"))));
    assertEquals(vocabulary.size, 8192);
    assertEquals(JSON.parse(read("config.json")).vocab_size, 8192);
    assertEquals([...vocabulary.values()].sort((a, b) => a - b), Array.from({ length: 8192 }, (_, n) => n));
    const [version, ...merges] = read("merges.txt").trimEnd().split("\n");
    assertMatch(version, /^#version/);
    const words = merges.map((merge) => merge.split(" "));
    assertEquals(words.filter((parts) => parts.length !== 2), []);
    assertEquals(words.filter((parts) => ![...parts, parts.join("")].every((token) => vocabulary.has(token))), []);
    assertEquals(new Set(merges).size, merges.length);
  }));

import { assertEquals } from "@std/assert";
import { tree } from "../support/files.ts";
import { ROOT } from "../support/fixtures.ts";
import { needs } from "../support/needs.ts";
import { execute } from "../support/program.ts";

/** The layers, lowest first. A module imports from its own layer and from lower ones. */
const LAYERS: readonly (readonly RegExp[])[] = [
  [/^lib\/(errors|libc|options|pace|random)\.ts$/, /^lib\/measure\/(distribution|metrics)\.ts$/],
  [/^lib\/files\//],
  [/^lib\/format\//],
  [/^lib\/kernels\//],
  [/^lib\/(model|text)\//, /^lib\/quantize\/(chunks|chunk_worker)\.ts$/],
  [/^lib\/(quantize|measure|gguf|compressed|dev)\//],
  [/^lib\/calibrate\//],
  [/^lib\/library\//],
  [/^lib\/proof\//],
  [/^lib\/report\//],
  [/^lib\/cli\//],
  [/^main\.ts$/, /^lib\/mod\.ts$/],
];

/** Modules that import nothing at all. */
const ALONE = ["lib/errors.ts", "lib/random.ts", "lib/measure/distribution.ts"];

/** Neighbours in one layer that may not know each other. */
const APART: readonly (readonly [RegExp, RegExp])[] = [
  [/^lib\/quantize\//, /^lib\/(model|text|measure|gguf)\//],
  [/^lib\/measure\//, /^lib\/(files|format|kernels|model|quantize|gguf)\//],
  [/^lib\/kernels\//, /^lib\/format\/(checkpoint|given|safetensors|json)\.ts$/],
];

/** Modules whose flags are those of another program: V8's and the compiler's, and the properties of a style sheet. */
const OTHER_FLAGS = [/^lib\/kernels\/(engine_flags|wasm\/build)\.ts$/, /^lib\/report\/(page|style|tensor_table)\.ts$/];

/** Commands of other programs that messages name, with a flag. */
const OTHER_COMMANDS = /llama-[a-z-]+ --[a-z-]+/g;

/** The one module that may read deno.json. */
const VERSION = "lib/cli/version.ts";

const files = tree(ROOT + "lib").map((path) => `lib/${path}`).filter((path) => path.endsWith(".ts"))
  .filter((path) => !path.endsWith(".as.ts"));
const modules = [...files, "main.ts"].filter((path) => path !== "lib/kernels/wasm/build.ts");

/** What a module imports or re-exports, statically or not, or starts as a worker: paths from the root of the repository. */
function imports(path: string): string[] {
  const text = Deno.readTextFileSync(ROOT + path);
  const specifiers = [
    ...text.matchAll(/^(?:import|export|\})\s[^"';]*?from "([^"]+)"|^import "([^"]+)"/gm),
    ...text.matchAll(/\bimport\("([^"]+)"\)/g),
    ...text.matchAll(/new URL\("([^"]+\.ts)", import\.meta\.url\)/g),
  ].map(([, a, b]) => a ?? b);
  return specifiers.map((specifier) =>
    specifier.startsWith(".") ? new URL(specifier, `file:///${path}`).pathname.slice(1) : specifier
  );
}

/** What a module imports from the repository, lib and main.ts or not: all of it has to be in a layer. */
function own(path: string): string[] {
  return imports(path).filter((target) => !/^(npm:|jsr:|node:|@|rabbit\/|[a-z-]+$)/.test(target));
}

function layer(path: string): number {
  return LAYERS.findIndex((patterns) => patterns.some((pattern) => pattern.test(path)));
}

Deno.test("every module of lib belongs to a layer", () => {
  assertEquals(modules.filter((path) => layer(path) < 0), []);
});

Deno.test("no import points up", () => {
  const wrong = modules.flatMap((path) =>
    own(path).filter((target) => !(target === "deno.json" && path === VERSION))
      .filter((target) =>
        layer(target) < 0 || layer(target) > layer(path) || APART.some(([a, b]) => a.test(path) && b.test(target))
      )
      .map((target) => `${path} imports ${target}`)
  );
  assertEquals(wrong, []);
});

Deno.test("no module but those of the command line names a flag of rabbit", () => {
  const wrong = files.filter((path) => !path.startsWith("lib/cli/") && !OTHER_FLAGS.some((other) => other.test(path)))
    .flatMap((path) => flagsIn(Deno.readTextFileSync(ROOT + path)).map((flag) => `${path}: ${flag}`));
  assertEquals(wrong, []);
});

Deno.test("the reader of flags finds them in every kind of text, and not in comments", () => {
  const source = [
    "// not --aa",
    "/** nor --bb,",
    " * nor `--cc` */",
    'const one = "use --one"; // not --dd',
    "const two = `a ${x} --two-words`;",
    "const three = '--three=x';",
    'const url = "https://x"; f("a --four");',
    "x--; --n; const five = `llama-quantize --allow-it ${`--five`}`;",
  ].join("\n");
  assertEquals(flagsIn(source), ["--one", "--two-words", "--three", "--four", "--five"]);
});

Deno.test("the reader of imports finds them", () => {
  assertEquals(imports("lib/quantize/chunk_worker.ts"), ["lib/kernels/workers.ts", "lib/quantize/chunks.ts"]);
  assertEquals(imports("lib/quantize/chunks.ts").includes("lib/quantize/chunk_worker.ts"), true);
  assertEquals(imports("lib/mod.ts").includes("lib/format/blocks.ts"), true);
  assertEquals(imports("lib/cli/output.ts").includes("cli-progress"), true);
});

Deno.test("the reader of imports finds those from outside lib", () => {
  assertEquals(own("tests/unit/random_test.ts"), ["lib/random.ts"]);
  assertEquals(own("bench/activations.ts").includes("lib/cli/model.ts"), true);
  assertEquals(own(VERSION), ["deno.json"]);
});

Deno.test("errors, random numbers and metrics import nothing", () => {
  assertEquals(modules.filter((path) => ALONE.includes(path)).flatMap(imports), []);
});

Deno.test("every exported symbol of lib has a doc comment", () => {
  const bare = modules.flatMap((path) => {
    const lines = Deno.readTextFileSync(ROOT + path).split("\n");
    return lines.flatMap((line, n) => {
      const name = /^export (?:async )?(?:abstract )?(?:function\*?|class|const|interface|type|enum) (\w+)/.exec(line)
        ?.[1];
      // The last of several signatures is the implementation's, and is not shown.
      const signatures = lines.slice(0, n).filter((line) => line.startsWith(`export async function ${name}(`));
      return name === undefined || signatures.length > 1 || documented(lines, n) ? [] : [`${path}:${n + 1}: ${name}`];
    });
  });
  assertEquals(bare, []);
});

/** What users import; see `exports` of deno.json. */
/** Tests of tests/unit that are not of one module. */
const OF_NO_MODULE: Readonly<Record<string, string>> = {
  "tests/unit/layers_test.ts": "reads all modules",
  "tests/unit/promises_test.ts": "reads all modules",
  "tests/unit/support/needs_test.ts": "tests a helper of tests",
};

/** Modules that no test of their folder uses, and what tests them. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  "lib/cli/permissions.ts": "tests/program/startup_test.ts",
  "lib/cli/revision.ts": "tests/program/cli_test.ts",
  "lib/cli/startup.ts": "tests/program/startup_test.ts",
  "lib/model/load.ts": "tests/support/models.ts",
};

const tests = tree(`${ROOT}tests/unit`).map((path) => `tests/unit/${path}`).filter((path) => path.endsWith("_test.ts"));

/** The folder of lib that a module or a test of tests/unit belongs to. */
function folderOf(path: string): string {
  return path.replace(/^tests\/unit\//, "lib/").split("/").slice(0, -1)[1] ?? "";
}

Deno.test("a test of tests/unit lies where its module lies in lib, and its name begins with the module's", () => {
  const stray = tests.filter((test) => {
    const place = test.replace(/^tests\/unit\//, "lib/").replace(/_test\.ts$/, "");
    return !files.some((file) => place === file.slice(0, -3) || place.startsWith(`${file.slice(0, -3)}_`));
  });
  assertEquals(stray, Object.keys(OF_NO_MODULE));
});

Deno.test("every module is used by a test of its folder, itself or through modules of the folder", () => {
  const used = new Set<string>();
  const use = (path: string, folder: string) => {
    if (!files.includes(path) || folderOf(path) !== folder || used.has(path)) return;
    used.add(path);
    for (const target of imports(path)) use(target, folder);
  };
  for (const test of tests) for (const target of imports(test)) use(target, folderOf(test));
  // Those modules only re-export, and the build runs in CI.
  const own = modules.filter((path) => !/^main\.ts$|\/mod\.ts$/.test(path));
  assertEquals(own.filter((path) => !used.has(path)), Object.keys(ELSEWHERE));
  for (const test of Object.values(ELSEWHERE)) assertEquals(Deno.statSync(ROOT + test).isFile, true);
});

const ENTRIES = modules.filter((path) => path.endsWith("/mod.ts"));

Deno.test("deno.json exports every mod.ts, which no module of lib imports", () => {
  const { exports } = JSON.parse(Deno.readTextFileSync(`${ROOT}deno.json`)) as { exports: Record<string, string> };
  const wanted = ENTRIES.map((path) => [path.replace(/^lib/, ".").replace(/\/mod\.ts$/, ""), `./${path}`]);
  assertEquals(Object.entries(exports).sort(), wanted.sort());
  const users = files.filter((path) => imports(path).some((target) => target.endsWith("/mod.ts")));
  assertEquals(users, []);
});

const DOCUMENTED = "everything that users import is documented, with the types of what it takes and gives";

// Deno 2.6 asks for a comment where an interface has one.
needs(DOCUMENTED, { lacks: Deno.version.deno.startsWith("2.6.") ? ["Deno 2.9"] : [] }, async () => {
  const { code, err } = await execute(Deno.execPath(), ["doc", "--lint", ...ENTRIES], { cwd: ROOT });
  assertEquals(code, 0, err);
});

Deno.test("docs/architecture.md names every folder of lib, and files that exist", () => {
  const text = Deno.readTextFileSync(ROOT + "docs/architecture.md");
  const named = [...text.matchAll(/`([\w./]+)`/g)].map(([, name]) => name);
  const folders = files.map((path) => path.split("/").slice(0, 2).join("/")).filter((path) => !path.endsWith(".ts"));
  assertEquals(folders.filter((path) => !named.includes(path)), []);
  const all = ["docs", "lib", "tests", "fixtures"].flatMap((root) =>
    tree(ROOT + root).map((path) => `${root}/${path}`)
  );
  const known = (name: string) => [...all, "main.ts"].some((path) => path === name || path.endsWith(`/${name}`));
  assertEquals(named.filter((name) => /\.(ts|py|json|md)$/.test(name) && !known(name)), []);
});

/** The words in the code of a source text, its comments left out, that begin as a flag does. */
function flagsIn(source: string): string[] {
  const code = source.replace(/\/\*[^]*?\*\/|(?<!:)\/\/.*/g, "");
  return code.replace(OTHER_COMMANDS, "").match(/(?<=["'`\s])--(?!this\b)[a-z][a-z-]+/g) ?? [];
}

/** Whether a doc comment ends just above line `n`; comments to the linter may stand between. */
function documented(lines: readonly string[], n: number): boolean {
  let above = n - 1;
  while (/^\s*\/\/ deno-lint-ignore/.test(lines[above] ?? "")) above--;
  return /\*\/$/.test(lines[above] ?? "");
}

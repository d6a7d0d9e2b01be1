/**
 * `deno task npm`: builds the npm package of the library for Node 22.3 and later in npm/, as the directory `package`
 * and a tarball of it for `npm install`.
 *
 * `deno pack` writes the types. The modules are transpiled here, because `deno pack` omits the workers, which no module
 * imports, and keeps `using`, which Node 22 does not support. The package has no dependencies.
 *
 * @module
 */

import { dirname } from "@std/path/dirname";
import ts from "typescript";
import config from "../deno.json" with { type: "json" };

const root = `${dirname(import.meta.dirname!)}/`;
const target = `${root}npm/`;
const built = `${target}package/`;

/** Modules of lib that are not part of the library. */
const EXCLUDED = /^lib\/(cli\/|report\/|dev\/gate\.ts|kernels\/(engine_flags|wasm\/build)\.ts)|\.as\.ts$/;

/** The files of `deno pack` that are kept. */
const KEPT = /^(LICENSE|README\.md)$|\.d\.ts$/;

/** Modules of Deno's standard library, and the equivalent modules of Node. */
const STANDARD: readonly (readonly [RegExp, string])[] = [[/"@std\/path\/\w+"/g, '"node:path/posix"']];

/** The imports that the package may have: its own modules, and Node's. */
const IMPORTED = /^(\.{1,2}\/.*\.js|node:[\w/]+)$/;

/** The files in a directory, recursively. */
function filesIn(directory: string): string[] {
  return [...Deno.readDirSync(directory)].flatMap(({ name, isDirectory }) =>
    isDirectory ? filesIn(`${directory}/${name}`) : [`${directory}/${name}`]
  );
}

/** Transpiles a module for Node. */
function javascript(path: string): string {
  const { outputText } = ts.transpileModule(Deno.readTextFileSync(root + path), {
    compilerOptions: {
      module: ts.ModuleKind.ESNext,
      target: ts.ScriptTarget.ES2022,
      rewriteRelativeImportExtensions: true,
      verbatimModuleSyntax: true,
    },
  });
  // The paths of workers need the new extension too.
  const text = outputText.replace(
    /new URL\("(\.\/\w+)\.ts", import\.meta\.url\)/g,
    'new URL("$1.js", import.meta.url)',
  );
  const done = STANDARD.reduce((text, [from, to]) => text.replace(from, to), text);
  const imports = ts.preProcessFile(done).importedFiles.map(({ fileName }) => fileName);
  const unknown = imports.find((name) => !IMPORTED.test(name));
  if (unknown !== undefined) throw new Error(`${path} imports ${unknown}, which is not in the package`);
  return done;
}

/** Runs a program in `cwd`, and prints its output if it fails. */
function run(cwd: string, program: string, ...args: string[]): void {
  const { success, stdout, stderr } = new Deno.Command(program, { args, cwd }).outputSync();
  if (success) return;
  for (const bytes of [stdout, stderr]) Deno.stderr.writeSync(bytes);
  throw new Error(`${program} ${args.join(" ")} failed`);
}

if (Deno.version.deno.startsWith("2.6.")) throw new Error("Deno 2.9 is required, for deno pack");
Deno.mkdirSync(target, { recursive: true });
for (const { name } of [...Deno.readDirSync(target)]) Deno.removeSync(target + name, { recursive: true });

run(root, Deno.execPath(), "pack", "--allow-dirty", "--no-source-maps", "--output", `${target}types.tgz`);
run(target, "tar", "-xzf", "types.tgz");
Deno.removeSync(`${target}types.tgz`);
for (const file of filesIn(built.slice(0, -1))) if (!KEPT.test(file.slice(built.length))) Deno.removeSync(file);
for (const file of filesIn(`${root}lib`)) {
  const path = file.slice(root.length);
  if (!path.endsWith(".ts") || EXCLUDED.test(path)) continue;
  const to = built + path.replace(/\.ts$/, ".js");
  Deno.mkdirSync(dirname(to), { recursive: true });
  Deno.writeTextFileSync(to, javascript(path));
}
const entry = (path: string) => {
  const module = path.replace(/\.ts$/, "");
  return { types: `${module}.d.ts`, default: `${module}.js` };
};
const { name, version, license } = config;
const description = {
  name,
  version,
  description: "Makes, checks and runs quantized checkpoints of Llama-family models",
  license,
  type: "module",
  // process.getBuiltinModule
  engines: { node: ">=22.3" },
  exports: Object.fromEntries(Object.entries(config.exports).map(([name, path]) => [name, entry(path)])),
};
Deno.writeTextFileSync(`${built}package.json`, JSON.stringify(description, null, 2) + "\n");
const tarball = `${name.slice(1).replace("/", "-")}-${version}.tgz`;
run(target, "tar", "-czf", tarball, "package/lib", "package/LICENSE", "package/README.md", "package/package.json");
console.log(`npm/${tarball}`);

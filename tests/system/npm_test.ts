import { assert, assertEquals, assertMatch } from "@std/assert";
import ts from "typescript";
import { inTemporary } from "../support/files.ts";
import { ROOT } from "../support/fixtures.ts";
import { needs, path } from "../support/needs.ts";
import { execute, text } from "../support/program.ts";

/** The first version of Node with process.getBuiltinModule. */
const LEAST = [22, 3];

/** Another Node than that of the PATH. */
const node = Deno.env.get("RABBIT_NODE") || path("node");

function isRecent(): boolean {
  if (node === undefined) return false;
  const { out } = text(new Deno.Command(node, { args: ["--version"] }).outputSync());
  const [major, minor] = out.slice(1).split(".").map(Number);
  return major > LEAST[0] || (major === LEAST[0] && minor >= LEAST[1]);
}

const what = {
  programs: ["npm", "tar"],
  missing: isRecent() ? [] : [`set RABBIT_NODE=path of Node ${LEAST.join(".")} or later`],
  lacks: Deno.version.deno.startsWith("2.6.") ? ["deno pack, which comes with Deno 2.9"] : [],
};

async function run(cwd: string, program: string, ...args: string[]): Promise<string> {
  const { code, out, err } = await execute(program, args, { cwd });
  assertEquals(code, 0, `${program} ${args.join(" ")}: ${err}`);
  return out;
}

/** Builds the package and installs it in `directory`. */
async function install(directory: string): Promise<void> {
  const out = await run(ROOT, Deno.execPath(), "run", "--frozen", "--allow-all", "tools/npm.ts");
  Deno.writeTextFileSync(`${directory}/package.json`, '{ "type": "module" }');
  // Nothing is downloaded: the package needs no other.
  await run(directory, "npm", "install", "--offline", "--no-audit", "--no-fund", `${ROOT}${out.trim()}`);
}

/** What a user's program prints, by name. */
function results(out: string): Record<string, unknown> {
  const lines = out.trim().split("\n").map((line) => JSON.parse(line) as { name: string; value: unknown });
  return Object.fromEntries(lines.map(({ name, value }) => [name, value]));
}

needs(
  "the npm package gives in Node what the library gives in Deno, and its types resolve",
  what,
  () =>
    inTemporary(async (directory) => {
      await install(directory);
      for (const name of ["node", "deno"]) Deno.mkdirSync(`${directory}/${name}`);
      Deno.copyFileSync(`${ROOT}tests/support/npm_user.mjs`, `${directory}/user.mjs`);
      const inNode = results(await run(directory, node!, "user.mjs", `${directory}/node`));
      const user = `${ROOT}tests/support/npm_user.mjs`;
      const inDeno = results(
        await run(ROOT, Deno.execPath(), "run", "--allow-all", "--frozen", user, `${directory}/deno`),
      );
      assertEquals(inNode, inDeno);

      assertEquals(Object.keys(inNode).length, 20);
      assertEquals((inNode.quantize as { last: number }).last, 1);
      assertEquals(inNode.verify, [(inNode.quantize as { digest: string }).digest]);
      assertEquals((inNode.generate as unknown[]).length, 8);
      assertEquals(inNode.chat, inNode.messages);
      assertEquals(inNode.missing, [true, "cannot open DIR/nothing: no such file or directory"]);
      assertEquals(inNode.directory, [
        true,
        "cannot read DIR/model.gguf/below: a part of the path is not a directory",
      ]);
      assertEquals(inNode.signal, [true, "stop"]);
      checkTypes(directory);

      // The program of the page about the library.
      const [, page] = /^```ts\n([^]*?)^```$/m.exec(Deno.readTextFileSync(`${ROOT}docs/library.md`))!;
      Deno.writeTextFileSync(`${directory}/page.js`, page);
      assertMatch(await run(directory, node!, "page.js"), /^[0-9a-f]{64}\n[^]*\n(true|false) [\d.]+\n$/);
    }),
);

/** Checks a user's program in TypeScript, and with it all types of the package. */
function checkTypes(directory: string): void {
  const file = `${directory}/user.ts`;
  Deno.writeTextFileSync(
    file,
    `import { compare, open, planQuantize, quantize, type Quantized } from "@rabbit/rabbit";
     import { type BlockFormat, WIDTHS } from "@rabbit/rabbit/format";
     import { parseGguf } from "@rabbit/rabbit/gguf";
     import { Pool } from "@rabbit/rabbit/kernels";
     import { measureText } from "@rabbit/rabbit/measure";

     export async function use(signal: AbortSignal): Promise<string> {
       await using model = await open("smol-q8", { threads: 4, signal });
       const done: Quantized = await quantize(planQuantize("smol", 8), "smol-q8", { progress: (done, total) => done / total });
       const { match } = await compare("smol", "smol-q8", { prompt: "Once" });
       const widths: readonly BlockFormat[] = WIDTHS;
       let text = \`\${done.digest} \${match} \${widths.length} \${typeof Pool} \${typeof parseGguf} \${typeof measureText}\`;
       for await (const piece of model.generate("Once", { temperature: 1, seed: 1 })) text += piece.text;
       // @ts-expect-error a width is a number
       await quantize("smol", "smol-q8", { bits: "8" });
       // @ts-expect-error there is no such function
       model.nothing();
       return text;
     }
    `,
  );
  const program = ts.createProgram([file], {
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    target: ts.ScriptTarget.ES2022,
    lib: ["lib.esnext.d.ts", "lib.dom.d.ts"],
    types: [],
    strict: true,
    noEmit: true,
  });
  const found = ts.getPreEmitDiagnostics(program).map(({ file, messageText }) => {
    return `${file?.fileName}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`;
  });
  assertEquals(found, []);
  const declarations = program.getSourceFiles().map(({ fileName }) => fileName);
  assert(declarations.some((name) => name.endsWith("@rabbit/rabbit/lib/library/open.d.ts")));
}

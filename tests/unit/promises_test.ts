import { assertEquals } from "@std/assert";
import ts from "typescript";
import { inTemporary, tree, write } from "../support/files.ts";
import { ROOT } from "../support/fixtures.ts";

/**
 * The calls, as statements, that give a promise which nothing waits for: what it prints may come too late, and its error is
 * lost. `.catch(…)` says that this is meant, as does a call of `handled`, which does it.
 */
function unawaited(paths: readonly string[]): string[] {
  const program = ts.createProgram([...paths], {
    target: ts.ScriptTarget.ESNext,
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
    allowImportingTsExtensions: true,
    noEmit: true,
    strict: true,
    lib: ["lib.esnext.d.ts", "lib.dom.d.ts"],
  });
  const checker = program.getTypeChecker();
  const found: string[] = [];
  for (const path of paths) {
    const visit = (node: ts.Node) => {
      ts.forEachChild(node, visit);
      if (!ts.isExpressionStatement(node) || !ts.isCallExpression(node.expression)) return;
      const { expression: call } = node.expression;
      const name = ts.isPropertyAccessExpression(call) ? call.name.text : call.getText();
      if (["catch", "handled"].includes(name)) return;
      const type = checker.getTypeAtLocation(node.expression);
      const parts = type.isUnion() ? type.types : [type];
      if (parts.some((part) => part.symbol?.name === "Promise")) found.push(`${path}: ${node.getText()}`);
    };
    visit(program.getSourceFile(path)!);
  }
  return found;
}

Deno.test("a call that gives a promise is waited for", () => {
  const modules = ["lib", "tools"].flatMap((folder) =>
    tree(`${ROOT}${folder}`).map((path) => `${ROOT}${folder}/${path}`)
  );
  assertEquals(unawaited(modules.filter((path) => path.endsWith(".ts") && !path.endsWith(".as.ts"))), []);
});

Deno.test("a promise that nothing waits for is found", () =>
  inTemporary((directory) => {
    const path = `${directory}/a.ts`;
    write(directory, {
      "a.ts": `
        async function work(): Promise<void> {}
        const one: Promise<number> | undefined = undefined;
        function maybe(): Promise<number> | undefined { return one; }
        function plain(): number { return 1; }
        work(); maybe(); plain(); await work(); void work(); work().catch(() => {});
      `,
    });
    assertEquals(unawaited([path]), [`${path}: work();`, `${path}: maybe();`]);
  }));

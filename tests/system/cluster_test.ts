/**
 * The manifests of tools/kubernetes, and the commands of docs/cluster.md for Kubernetes and GNU parallel.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { parse } from "@std/yaml/parse";
import { inTemporary, write } from "../support/files.ts";
import { ROOT } from "../support/fixtures.ts";
import { needs } from "../support/needs.ts";
import { execute, PROGRAM, rabbit, shellLine } from "../support/program.ts";

/** The fields of a Job that are used here. */
interface Job {
  spec: {
    completions?: number;
    completionMode?: string;
    template: { spec: { containers: [{ command: string[]; resources: { limits: { memory: string } } }] } };
  };
}

const MANIFESTS = ["quantize", "merge"].map((name) => `${ROOT}tools/kubernetes/${name}.yaml`);
const [QUANTIZE, MERGE] = MANIFESTS.map((path) => parse(Deno.readTextFileSync(path)) as Job);
const PAGE = Deno.readTextFileSync(`${ROOT}docs/cluster.md`);
const TEXT = Deno.readTextFileSync(`${ROOT}fixtures/opticks.txt`).slice(0, 2400);

/** Makes a directory with a model, a text, the program by the name of rabbit, and the checkpoint of one run. */
async function prepare(cwd: string): Promise<{ digest: string; lines: string; env: Record<string, string> }> {
  write(`${cwd}/bin`, { rabbit: `#!/bin/sh\nexec ${shellLine(PROGRAM)} "$@"\n` });
  Deno.chmodSync(`${cwd}/bin/rabbit`, 0o755);
  write(cwd, { "opticks.txt": TEXT });
  const done = async (...args: string[]) => {
    const { code, out, err } = await rabbit(cwd, [...args, "--quiet"]);
    assertEquals([code, err], [0, ""]);
    return out;
  };
  await done("gen", "smol");
  const [digest] = (await done("quantize", "smol", "one", "--bits", "4")).match(/(?<=digest=)\w+/)!;
  const lines = await done("compare", "smol", "one", "--text", "opticks.txt");
  const env = { PATH: `${cwd}/bin:${Deno.env.get("PATH")}`, NO_COLOR: "1" };
  return { digest, lines: lines.replace(/^COMPARE memory .*\n/m, ""), env };
}

needs(
  "the manifests of tools/kubernetes are those of the API, without unknown fields",
  { variables: { KUBERNETES_VALIDATE: "path of the program that pip install kubernetes-validate==1.37.0 brings" } },
  async () => {
    const { code, err } = await execute(Deno.env.get("KUBERNETES_VALIDATE")!, ["--strict", "--quiet", ...MANIFESTS]);
    assertEquals([code, err], [0, ""]);
    await inTemporary(async (cwd) => {
      const changed = Deno.readTextFileSync(MANIFESTS[0]).replace("completionMode", "completionmode");
      write(cwd, { "changed.yaml": changed });
      const ran = await execute(Deno.env.get("KUBERNETES_VALIDATE")!, ["--strict", `${cwd}/changed.yaml`]);
      assert(ran.code !== 0 && (ran.out + ran.err).includes("completionmode"), ran.out + ran.err);
    });
  },
);

Deno.test("the commands of the Jobs, with the index of each, give what one run gives", () =>
  inTemporary(async (cwd) => {
    const { digest, lines, env } = await prepare(cwd);
    const [{ command: [shell, option, script], resources: { limits } }] = QUANTIZE.spec.template.spec.containers;
    const { completions, completionMode } = QUANTIZE.spec;
    assertEquals([shell, option, completionMode], ["sh", "-c", "Indexed"]);
    /** Runs a command with every index at once; the volume is the directory. */
    const indexed = async (script: string) => {
      const ran = await Promise.all(Array.from({ length: completions! }, (_, index) => {
        const options = { env: { ...env, JOB_COMPLETION_INDEX: String(index) } };
        return execute(shell, [option, script.replaceAll("/models", cwd)], options);
      }));
      assertEquals(ran.map(({ code }) => code), ran.map(() => 0), ran.map(({ err }) => err).join(""));
      return ran.map(({ out }) => out);
    };
    const [plan] = await indexed(`${script} --dry-run`);
    const needed = Number(/ memory=(\d+)/.exec(plan)![1]);
    assert(needed <= Number(limits.memory.replace(/M$/, "000000")), `${needed} of ${limits.memory}`);
    await indexed(script);
    const [program, ...args] = MERGE.spec.template.spec.containers[0].command;
    const merged = await execute(program, args.map((word) => word.replace("/models", cwd)), { env });
    assertMatch(merged.out, new RegExp(`^MERGE digest=${digest}$`, "m"));

    const [verify, compare] = PAGE.match(/^exec rabbit .*$/gm)!;
    for (const out of await indexed(verify)) assertMatch(out, /\nVERIFY OK\n$/);
    await indexed(compare);
    const parts = Array.from({ length: completions! }, (_, n) => `part${n + 1}.jsonl`);
    const { out } = await rabbit(cwd, ["merge", ...parts]);
    assertEquals(out.replaceAll(`${cwd}/`, ""), lines);
  }));

needs(
  "the commands of docs/cluster.md for GNU parallel give what one run gives",
  { programs: ["parallel"] },
  () =>
    inTemporary(async (cwd) => {
      const { digest, lines, env } = await prepare(cwd);
      const commands = PAGE.match(/^parallel .*$/gm)!;
      assertEquals(commands.length, 3);
      const outputs = [];
      for (const command of commands) {
        const { code, out, err } = await execute("sh", ["-c", command], { cwd, env });
        assertEquals(code, 0, err);
        outputs.push(out);
      }
      assertMatch(outputs[0], new RegExp(`^MERGE digest=${digest}$`, "m"));
      assertEquals(outputs[1].match(/^VERIFY OK$/gm)?.length, 4);
      assertEquals(outputs[2], lines);
    }),
);

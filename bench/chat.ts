/**
 * Compares renderings of chat templates with those of transformers:
 *
 *     python fixtures/render_chat.py real DIR… > cases.jsonl
 *     deno run --allow-read bench/chat.ts cases.jsonl
 *
 * Prints the cases that differ, the reasons why templates are refused, and the counts. The exit status is 1 if any
 * differ.
 *
 * @module
 */

import { Unsupported } from "../lib/text/jinja/limits.ts";
import { type Plain, render } from "../lib/text/jinja/render.ts";
import { parseCase } from "../tests/support/chat_cases.ts";

const counts = { equal: 0, "both raise": 0, refused: 0, "renders what Python does not": 0, differs: 0 };
const refused = new Set<string>();
const reasons = new Map<string, number>();
const templates = new Map<string, Set<keyof typeof counts>>();

for (const path of Deno.args) {
  for (const line of Deno.readTextFileSync(path).split("\n").filter((line) => line !== "")) {
    const { name, template, variables, now, text, error } = parseCase(line);
    let found: string | undefined;
    let problem: Error | undefined;
    try {
      found = render(template, variables as Record<string, Plain>, now).text;
    } catch (thrown) {
      problem = thrown as Error;
    }
    let outcome: keyof typeof counts;
    if (problem === undefined) {
      outcome = found === text ? "equal" : text === undefined ? "renders what Python does not" : "differs";
      if (outcome !== "equal") console.log({ outcome, name, template: short(template), text, error, found });
    } else if (problem.name !== "TemplateError" && problem.name !== "Unsupported" && problem.name !== "Raised") {
      outcome = "differs";
      console.log({ name, template: short(template), text, error, problem });
    } else {
      outcome = text === undefined ? "both raise" : "refused";
      if (outcome === "refused") {
        const reason = `${problem instanceof Unsupported ? "" : "WRONG "}${problem.message.replace(/line \d+: /, "")}`;
        if (!refused.has(`${name}: ${reason}`)) console.log(`refused: ${name}: ${reason}`);
        refused.add(`${name}: ${reason}`);
        reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
        if (!(problem instanceof Unsupported)) {
          console.log({ outcome, name, template: short(template), text, problem: reason });
        }
      }
    }
    counts[outcome]++;
    const key = `${path} ${name}`;
    if (!templates.has(key)) templates.set(key, new Set());
    templates.get(key)!.add(outcome);
  }
}
for (const [reason, count] of [...reasons].sort((a, b) => b[1] - a[1])) console.log(`refused ${count}: ${reason}`);
const having = (outcome: keyof typeof counts) => [...templates.values()].filter((found) => found.has(outcome)).length;
console.log(counts);
console.log(
  `templates: ${templates.size}, refused in some case: ${having("refused")}, differing: ${having("differs")}`,
);
Deno.exitCode = counts.differs > 0 ? 1 : 0;

function short(text: string): string {
  return text.length > 1500 ? `${text.slice(0, 1500)}…` : text;
}

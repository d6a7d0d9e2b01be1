// Chat templates: what transformers renders, with Jinja2 (fixtures/make_chat.py); which template of a directory counts,
// and which tokens it can read; templates that never end, or ask for too much.

import { assert, assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import { dirname } from "@std/path/dirname";
import { join } from "@std/path/join";
import { readChatTemplate, renderChat } from "../../../lib/text/chat.ts";
import { CheckpointError } from "../../../lib/errors.ts";
import { momentOf, strftime } from "../../../lib/text/jinja/dates.ts";
import { TemplateError, Unsupported } from "../../../lib/text/jinja/limits.ts";
import { render } from "../../../lib/text/jinja/render.ts";
import { type ChatCase, chatFixture, moment } from "../../support/chat_cases.ts";
import { inTemporary, write } from "../../support/files.ts";
import { ROOT } from "../../support/fixtures.ts";
import { execute } from "../../support/program.ts";
import { Random } from "../../support/random.ts";

const { cases, formats, dates, characters, directories, now } = chatFixture();
const NOW = moment(now);

/** The text, or the error that a template may end with. */
function outcome(
  { template, variables, now }: Pick<ChatCase, "template" | "variables" | "now">,
): string | TemplateError {
  try {
    return render(template, variables, now).text;
  } catch (error) {
    if (error instanceof TemplateError) return error;
    throw new Error(`an internal error of ${template}`, { cause: error });
  }
}

/** What is refused of the generated templates, each with its reason. */
const REFUSED = [
  /printing a /,
  /string marked safe/,
  /a power of floats/,
  /strftime's format %/,
  /sameas/,
  /non-ASCII/,
  /newer than Unicode 14/,
  /the format /,
  /a format for True and False/,
  /a part of a string with a sigma/,
  /as a key/,
  /comparing /,
  /a slice of a /,
  /an integer of more than/,
  /the quotient of integers/,
  /negative exponent/,
  /the title case of/,
];

Deno.test("render gives the text that Jinja2 gives, or an error where it does", () => {
  let refused = 0;
  for (const each of cases) {
    const found = outcome(each);
    if (typeof found === "string") assertEquals(found, each.text, `${each.name}: ${each.template}: ${each.error}`);
    else if (each.text !== undefined) {
      assert(found instanceof Unsupported, `${each.name}: ${each.template}: ${found.message}`);
      assert(REFUSED.some((reason) => reason.test(found.message)), found.message);
      assert(each.name.startsWith("generated"), `${each.name}: ${found.message}`);
      refused++;
    }
  }
  assert(refused < cases.length / 25, `${refused} of ${cases.length} are refused`);
});

Deno.test("strftime gives what Python's does, in English", () => {
  for (const { now, texts } of dates) {
    assertEquals(formats.map((format) => strftime(moment(now), format)), texts, now.join("-"));
  }
  for (const format of ["%", "%q", "%s", "%Ey", "%5d", "%-A", "%+"]) {
    assertThrows(() => strftime(NOW, format), Unsupported, "strftime's format %", format);
  }
});

Deno.test("characters have Python's cases, classes and representation, or are refused", () => {
  const expressions = ["c.upper()", "c.lower()", "c.title()", "c.capitalize()", "c.swapcase()", "[c]"];
  const classes = ["isalpha", "isalnum", "islower", "isupper", "isspace", "isprintable", "isdecimal", "istitle"];
  const all = [...expressions, ...classes.map((name) => `c.${name}()`)];
  let refused = 0;
  for (const [c, ...rest] of characters) {
    const bits = rest.pop()!;
    const texts = [...rest.slice(0, 5), `[${rest[5]}]`, ...Array.from(bits, (bit) => bit === "1" ? "True" : "False")];
    for (const [n, expression] of all.entries()) {
      const found = outcome({ template: `{{ ${expression} }}`, variables: { c }, now: NOW });
      if (typeof found === "string") assertEquals(found, texts[n], `${expression} of ${JSON.stringify(c)}`);
      else if (found instanceof Unsupported) refused++;
      else throw found;
    }
  }
  assert(refused < characters.length * all.length / 10, `${refused} are refused`);
});

Deno.test("render tells whether the date was asked for", () => {
  const of = (template: string) => render(template, {}, NOW);
  assertEquals(of("{{ strftime_now('%Y') }}"), { text: "2024", dated: true });
  assertEquals(of("{% if strftime_now is defined %}x{% endif %}"), { text: "x", dated: false });
});

Deno.test("render refuses by name what it does not have", () => {
  const refused: [string, string][] = [
    ["{{ [1]|random }}", "line 1: the filter random is not supported"],
    ["\n{{ 'a'|pprint }}", "line 2: the filter pprint is not supported"],
    ["{% include 'x' %}", "line 1: the tag include is not supported"],
    ["{% block x %}{% endblock %}", "line 1: the tag block is not supported"],
    ["{{ 'a'.encode() }}", "line 1: str.encode is not supported"],
    ["{{ lipsum() }}", "line 1: the function lipsum is not supported"],
    ["{{ range }}", "line 1: printing a function is not supported"],
    ["{{ '\\ud83d' }}", "line 1: the surrogate \\ud83d is not supported"],
    ["{{ 2.0 ** 0.5 }}", "line 1: a power of floats is not supported"],
    ["{{ é }}", "line 1: a non-ASCII name is not supported"],
    ["{{ 'ß'.title() }}", 'line 1: the title case of "ß" is not supported'],
  ];
  for (const [template, message] of refused) {
    assertThrows(() => render(template, {}, NOW), Unsupported, message, template);
  }
});

Deno.test("render says what is wrong with a template, and in which line", () => {
  const wrong: [string, string][] = [
    ["{{", "line 1: unexpected end of template"],
    ["\n{% for %}", "line 2: expected a name, found %}"],
    ["{% if x %}", "line 1: unexpected end of template; if is not closed"],
    ["{% endif %}", "line 1: unknown tag endif"],
    ["a\n\n{{ nothing() }}", "line 3: 'nothing' is undefined"],
    ["{{ 1 / 0 }}", "line 1: division by zero"],
    ["{{ 1 | none_such }}", "line 1: no filter named none_such"],
    ["{{ [1].append(2) }}", "line 1: access to attribute 'append' of 'list' object is unsafe."],
    ["{{ 'a' + 1 }}", "line 1: unsupported operand types for +: str and int"],
    ["{% break %}", "line 1: break outside of a loop"],
    ["{# x", "line 1: missing end of comment tag"],
    ["{{ '\u00e9' ! }}", 'line 1: unexpected character "!"'],
    ["\ud83d", "contains a lone surrogate"],
  ];
  for (const [template, message] of wrong) {
    assertThrows(() => render(template, {}, NOW), TemplateError, message, template);
  }
});

Deno.test("render ends with a text or a TemplateError on templates with random edits", () => {
  const random = new Random(3);
  const pieces = [
    "{%",
    "%}",
    "{{",
    "}}",
    "{#",
    "#}",
    "-",
    "+",
    "\n",
    "'",
    "\\",
    "(",
    "]",
    "|",
    ".",
    "=",
    "1",
    "é",
    "😀",
    " ",
  ];
  for (let n = 0; n < 3000; n++) {
    const { template: whole, variables } = cases[random.below(cases.length)];
    let template = whole;
    for (let edits = random.below(4); edits >= 0; edits--) {
      const at = random.below(template.length + 1);
      template = template.slice(0, at) + pieces[random.below(pieces.length)] + template.slice(at + random.below(4));
    }
    const found = outcome({ template, variables, now: NOW });
    const message = typeof found === "string" ? "" : found.message;
    assert(!message.includes("\n") && message.length < 5000, message);
  }
});

const nested = (open: string, close: string, times: number) => open.repeat(times) + close.repeat(times);
const grown = (step: string) =>
  `{% set ns = namespace(x='aaaaaaaa', l=[0]) %}{% for i in range(60) %}${step}{% endfor %}{{ ns.l|length }}`;

/** Templates that ask for too much: each ends at once, with an error. */
const GREEDY: Readonly<Record<string, string>> = {
  range: "{% for i in range(1000000000) %}{% endfor %}",
  doubling: grown("{% set ns.x = ns.x ~ ns.x %}"),
  replacing: grown("{% set ns.x = ns.x.replace('a', 'aaaaaaaaaa') %}"),
  joining: "{{ range(100000)|join('a' * 100000) }}",
  repeating: "{{ 'a' * 100000000000 }}",
  "a long list": "{{ [1] * 1000000000 }}",
  "doubling lists": grown("{% set ns.l = ns.l + ns.l %}"),
  "lists of lists": grown("{% set ns.l = [ns.l, ns.l] %}") + "{{ ns.l }}",
  "lists of long texts": "{{ ['a' * 4000000] * 1000000 }}",
  "many texts":
    "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = ns.l + [('b' * 4000000)|upper] %}{% endfor %}",
  percent: "{{ '%1000000000d' % 1 }}",
  format: "{{ '{:>1000000000}'.format(1) }}",
  ljust: "{{ 'a'.ljust(1000000000) }}",
  center: "{{ 'a'|center(1000000000) }}",
  zfill: "{{ 'a'.zfill(10 ** 9) }}",
  expandtabs: "{{ '\t'.expandtabs(10 ** 9) }}",
  indent: "{{ ('a\n' * 100000)|indent(100000) }}",
  batch: "{{ [1]|batch(1000000000, 'x')|list }}",
  tojson: "{{ [[[1]]]|tojson(indent=1000000000) }}",
  powers: "{{ 9 ** 9 ** 9 ** 9 ** 9 }}",
  factorial: "{% set ns = namespace(n=1) %}{% for i in range(1, 99999) %}{% set ns.n = ns.n * i %}{% endfor %}",
  "a macro of itself": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
  "a loop of itself": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
  parentheses: `{{ ${nested("(", ")", 200_000)} }}`,
  tags: nested("{% if true %}", "{% endif %}", 20_000),
  sums: `{{ 1${"+1".repeat(300_000)} }}`,
  braces: "{".repeat(300_000),
  spaces: " ".repeat(9_999_990),
  comments: `{#${"-#".repeat(200_000)}`,
  raw: `{% raw %}${"{%".repeat(300_000)}`,
  dates: "{{ strftime_now('%c' * 1000000) }}",
};

for (const [name, template] of Object.entries(GREEDY)) {
  Deno.test(`render refuses a template that asks for too much: ${name}`, () => {
    const error = assertThrows(() => render(template, {}, NOW), TemplateError);
    assert(error.message.length < 300, error.message);
  });
}

const USER = [{ role: "user", content: "Hi" }] as const;

Deno.test("renderChat gives the messages, the tokens and the date to the template", async () => {
  const template =
    "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ strftime_now('%F') }}";
  const chat = { path: "c.json", template, tokens: { bos_token: "<s>" } };
  assertEquals(await renderChat(chat, USER, NOW), { text: "<s>user:HiNoneNoneTrue2024-02-29", dated: true });
});

Deno.test("renderChat refuses a template in one line, and ends one that does not end", async () => {
  const refused: [string, string, string?][] = [
    ["{{ raise_exception('no ' ~ messages[0].role) }}", "c.json: chat template: no user"],
    ["{{", "c.json: chat template: line 1: unexpected end of template"],
    [
      "{{ 'a'|pprint }}",
      "c.json: chat template: line 1: the filter pprint is not supported",
      "chat-template",
    ],
    [
      "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
      "c.json: chat template: not finished after 1.5 s",
      "chat-template",
    ],
  ];
  for (const [template, message, code] of refused) {
    const chat = { path: "c.json", template, tokens: {} };
    const error = await assertRejects(() => renderChat(chat, USER, NOW, 1500), CheckpointError, undefined, template);
    assertEquals([error.message, error.code], [message, code]);
  }
});

for (const { name, files, template, tokens, refused } of directories) {
  Deno.test(`readChatTemplate finds what transformers does: ${name}`, async () => {
    await inTemporary((directory) => {
      for (const [path, content] of Object.entries(files)) {
        Deno.mkdirSync(dirname(join(directory, path)), { recursive: true });
        const text = typeof content === "string"
          ? content
          : JSON.stringify(content, (_, v) => typeof v === "bigint" ? Number(v) : v);
        Deno.writeTextFileSync(join(directory, path), text);
      }
      if (refused) {
        assertThrows(() => readChatTemplate(directory), CheckpointError, 'expected a template named "default", found ');
        return;
      }
      const found = readChatTemplate(directory);
      assertEquals(found?.template, template);
      assertEquals(found?.tokens, tokens);
    });
  });
}

Deno.test("readChatTemplate takes chat_template.json where nothing else has a template", async () => {
  await inTemporary((directory) => {
    write(directory, { "chat_template.json": '{"chat_template": "P"}' });
    assertEquals(readChatTemplate(directory), { path: `${directory}/chat_template.json`, template: "P", tokens: {} });
    write(directory, { "tokenizer_config.json": '{"chat_template": "C", "eos_token": "</s>"}' });
    assertEquals(readChatTemplate(directory)?.template, "C");
  });
});

Deno.test("readChatTemplate refuses files that are something else", async () => {
  await inTemporary((directory) => {
    for (const field of ["7", "[null]", "[[]]", '[{"name": "default"}]', '{"default": 1}', "true", "[]", "{}"]) {
      const text = `{"chat_template": ${field}}`;
      write(directory, { "tokenizer_config.json": text });
      const error = assertThrows(() => readChatTemplate(directory), CheckpointError, undefined, text);
      assertStringIncludes(error.message, `${directory}/tokenizer_config.json: chat_template: `);
    }
    for (const text of ["", "{", "[]", "null", '"x"']) {
      write(directory, { "tokenizer_config.json": text });
      assertThrows(() => readChatTemplate(directory), CheckpointError, `${directory}/tokenizer_config.json: `, text);
    }
  });
});

Deno.test("momentOf tells the local time", () => {
  const found = momentOf(new Date(2023, 11, 31, 23, 59, 58, 7));
  assertEquals(found, { year: 2023, month: 12, day: 31, hour: 23, minute: 59, second: 58, microsecond: 7000 });
});

Deno.test("bench/chat.ts compares cases with permission to read alone, as its documentation runs it", () =>
  inTemporary(async (directory) => {
    const variables = { messages: [] };
    const lines = [["a{{ 1 }}", "a1"], ["a{{ 1 }}", "a2"]].map(([template, text], n) =>
      JSON.stringify({ name: `case ${n}`, template, variables, now: [2024, 2, 29, 13, 5, 9, 0], text })
    );
    const compare = async (...cases: string[]) => {
      write(directory, { "cases.jsonl": cases.join("\n") });
      const args = ["run", "--frozen", "--allow-read", "bench/chat.ts", join(directory, "cases.jsonl")];
      const { code, out, err } = await execute(Deno.execPath(), args, { cwd: ROOT });
      assert(code < 2 && !err.includes("error"), err);
      return [code, out.includes("differing: 0")];
    };
    assertEquals(await compare(lines[0]), [0, true]);
    assertEquals(await compare(...lines), [1, false]);
  }));

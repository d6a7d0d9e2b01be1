import { assert, assertEquals } from "@std/assert";
import { JsonError, JsonReader, OddNumber, parseJson } from "../../../lib/format/json.ts";
import { assertRefused } from "../../support/refusals.ts";

/** All that a reader reads, objects as Maps. */
function build(json: JsonReader): unknown {
  switch (json.peek()) {
    case "object": {
      const map = new Map<string, unknown>();
      json.object((key) => map.set(key, build(json)));
      return map;
    }
    case "array": {
      const array: unknown[] = [];
      json.array(() => array.push(build(json)));
      return array;
    }
    case "string":
      return json.string();
    case "number":
      return json.number();
    case "literal":
      return json.literal();
  }
}

/** A whole text. */
function read(text: string): unknown {
  const json = new JsonReader(text);
  const value = build(json);
  json.end();
  return value;
}

/** Reads a text and keeps nothing. */
function skip(text: string): void {
  const json = new JsonReader(text);
  json.skip();
  json.end();
}

/** Maps as plain objects, numbers that were kept as text as what they say. */
function plain(json: unknown): unknown {
  if (json instanceof OddNumber) return Number(json.text);
  if (json instanceof Map) return Object.fromEntries([...json].map(([key, value]) => [key, plain(value)]));
  return Array.isArray(json) ? json.map(plain) : json;
}

/** `limit`: the text is JSON, but beyond a limit. */
function refused(text: string, message: string, at: number, limit = false): void {
  for (const reading of [read, skip]) {
    const error = assertRefused(
      () => reading(text),
      limit ? message : `not valid JSON: ${message}`,
      JsonError,
      text.slice(0, 60),
    );
    assertEquals(error.at, at, text.slice(0, 60));
  }
}

Deno.test("JsonReader reads what RFC 8259 allows, as JSON.parse does", () => {
  const texts = [
    "null",
    "true",
    "false",
    "0",
    "-0",
    "12",
    "-12",
    "9007199254740991",
    "1.5",
    "0.0",
    "-0.1e-2",
    "1E+2",
    "123e65",
    '""',
    '"a"',
    '" \\u0041\\n\\r\\t\\b\\f\\/\\\\\\" "',
    '"\\u00e9\\uD834\\uDD1E"',
    '"é𝄞\u007f\u2028\u2029\ufeff\uffff"',
    '"\\u0000"',
    '"/"',
    "[]",
    "[ ]",
    "{}",
    "{ }",
    "[[]]",
    "[1,2 , 3]",
    "[null,true,false,[],{}]",
    '{"a":1}',
    '{"a":{"b":[{}]},"c":""}',
    '{"":0}',
    '{"\\u0061":1,"b":2}',
    '{"__proto__":1,"constructor":2,"toString":3}',
    ' \t\r\n{ \t\r\n"a" \t\r\n: \t\r\n1 \t\r\n, \t\r\n"b" \t\r\n:[ \t\r\n2 \t\r\n] \t\r\n} \t\r\n',
  ];
  for (const text of texts) {
    // JSON.parse sets the prototype with none of these, but toString() of the results would not tell -0.
    assertEquals(JSON.stringify(plain(read(text))), JSON.stringify(JSON.parse(text)), text);
  }
});

Deno.test("JsonReader keeps the order of an object's keys, numbers among them", () => {
  const json = read('{"b":1,"10":2,"a":3,"9":4,"__proto__":5}') as Map<string, unknown>;
  assertEquals([...json], [["b", 1], ["10", 2], ["a", 3], ["9", 4], ["__proto__", 5]]);
});

Deno.test("JsonReader gives numbers only for integers of 0 to 2^53-1 in plain digits", () => {
  for (const [text, value] of [["0", 0], ["7", 7], ["9007199254740991", Number.MAX_SAFE_INTEGER]] as const) {
    assertEquals(read(text), value);
  }
  const odd = [
    "-0",
    "-1",
    "1.0",
    "1e2",
    "1E0",
    "0.5",
    "9007199254740992",
    "9007199254740993",
    "18446744073709551616",
    "1" + "0".repeat(398),
    "1e400",
    "-1e-400",
  ];
  for (const text of odd) assertEquals(read(text), new OddNumber(text), text);
});

Deno.test("JsonReader refuses numbers that RFC 8259 does not know", () => {
  const value = (at: number, found: string) => `expected a value, found ${found} at character ${at}`;
  const end = (at: number, found: string) => `expected the end, found ${found} at character ${at}`;
  refused("+1", value(0, '"+1"'), 0);
  refused(".5", value(0, '".5"'), 0);
  refused("-", value(0, '"-"'), 0);
  refused("-a", value(0, '"-a"'), 0);
  refused("01", end(1, '"1"'), 1);
  refused("-01", end(2, '"1"'), 2);
  refused("1.", end(1, '"."'), 1);
  refused("1.e1", end(1, '".e1"'), 1);
  refused("1e", end(1, '"e"'), 1);
  refused("1e+", end(1, '"e+"'), 1);
  refused("0x10", end(1, '"x10"'), 1);
  refused("1_000", end(1, '"_000"'), 1);
  refused("1 2", end(2, '"2"'), 2);
  refused("NaN", value(0, '"NaN"'), 0);
  refused("Infinity", value(0, '"Infinity"'), 0);
  refused("-Infinity", value(0, '"-Infinity"'), 0);
  refused("１", value(0, '"１"'), 0);
});

Deno.test("JsonReader refuses a number of 400 digits or more unread", () => {
  for (const digits of [400, 401, 100_000]) {
    refused("9".repeat(digits), "number with too many digits at character 0", 0, true);
  }
  refused(`[0,${"9".repeat(400)}]`, "number with too many digits at character 3", 3, true);
});

Deno.test("JsonReader refuses what is not JSON, saying where", () => {
  refused("", "expected a value, found the end at character 0", 0);
  refused("  ", "expected a value, found the end at character 2", 2);
  refused("\ufeff{}", 'expected a value, found "\\ufeff{}" at character 0', 0);
  refused("\u00a01", 'expected a value, found "\u00a01" at character 0', 0);
  refused("\f1", 'expected a value, found "\\f1" at character 0', 0);
  refused("nul", 'expected a value, found "nul" at character 0', 0);
  refused("True", 'expected a value, found "True" at character 0', 0);
  refused("truefalse", 'expected the end, found "false" at character 4', 4);
  refused("undefined", 'expected a value, found "undefined" at character 0', 0);
  refused("'a'", "expected a value, found \"'a'\" at character 0", 0);
  refused("[", "expected a value, found the end at character 1", 1);
  refused("[1", 'expected "," or "]", found the end at character 2', 2);
  refused("[1,", "expected a value, found the end at character 3", 3);
  refused("[1,]", 'expected a value, found "]" at character 3', 3);
  refused("[,1]", 'expected a value, found ",1]" at character 1', 1);
  refused("[1 2]", 'expected "," or "]", found "2]" at character 3', 3);
  refused("[1}", 'expected "," or "]", found "}" at character 2', 2);
  refused("{", "expected a key, found the end at character 1", 1);
  refused('{"a"', 'expected ":", found the end at character 4', 4);
  refused('{"a":', "expected a value, found the end at character 5", 5);
  refused('{"a":1', 'expected "," or "}", found the end at character 6', 6);
  refused('{"a":1,', "expected a key, found the end at character 7", 7);
  refused('{"a":1,}', 'expected a key, found "}" at character 7', 7);
  refused('{"a",1}', 'expected ":", found ",1}" at character 4', 4);
  refused("{a:1}", 'expected a key, found "a:1}" at character 1', 1);
  refused("{1:1}", 'expected a key, found "1:1}" at character 1', 1);
  refused('{"a":1]', 'expected "," or "}", found "]" at character 6', 6);
  refused("{}{}", 'expected the end, found "{}" at character 2', 2);
  refused("{}\0", 'expected the end, found "\\u0000" at character 2', 2);
  refused("[1]// no comments", 'expected the end, found "// no commen" at character 3', 3);
  refused("]", 'expected a value, found "]" at character 0', 0);
});

Deno.test("JsonReader refuses strings that RFC 8259 does not know", () => {
  refused('"', "unterminated string at character 0", 0);
  refused('["a', "unterminated string at character 1", 1);
  refused('"\\', "unterminated string at character 0", 0);
  refused('"\\"', "unterminated string at character 0", 0);
  refused('"a\nb"', "control character in a string at character 2", 2);
  refused('"\t"', "control character in a string at character 1", 1);
  refused('"\0"', "control character in a string at character 1", 1);
  for (const escape of ["\\x41", "\\a", "\\'", "\\0", "\\u", "\\u12", "\\u12g4", "\\u{41}", "\\U0041"]) {
    refused(`"${escape}"`, "invalid escape in a string at character 0", 0);
  }
  // A control character after a backslash is no escape.
  refused('"\\\n"', "invalid escape in a string at character 0", 0);
});

Deno.test("JsonReader refuses lone surrogates, escaped or not, in keys too", () => {
  for (const lone of ["\\ud800", "\\udfff", "\\ud800a", "\\ud800\\u0041", "\\udd1e\\ud834", "\ud800", "\udfffx"]) {
    refused(`"${lone}"`, "lone surrogate in a string at character 0", 0);
    refused(`{"${lone}":1}`, "lone surrogate in a string at character 1", 1);
  }
});

Deno.test("JsonReader refuses a key that stands twice in one object, however it is written", () => {
  refused('{"a":1,"a":1}', 'duplicate key "a" at character 7', 7);
  refused('{"a":1,"b":2,"\\u0061":3}', 'duplicate key "a" at character 13', 13);
  refused('[{"x":{"":0,"":1}}]', 'duplicate key "" at character 12', 12);
  refused('{"__proto__":1,"__proto__":2}', 'duplicate key "__proto__" at character 15', 15);
  // The same key in other objects is another key; so is one that only looks the same.
  assertEquals(JSON.stringify(plain(read('{"a":{"a":1},"b":{"a":2}}'))), '{"a":{"a":1},"b":{"a":2}}');
  assertEquals((read('{"\u00e9":1,"e\u0301":2}') as Map<string, unknown>).size, 2);
});

Deno.test("JsonReader names a duplicate key in a message that stays short and on one line", () => {
  const key = "\u009b2J\u2028" + "k".repeat(1000);
  refused(`{"${key}":1,"${key}":1}`, `duplicate key "\\u009b2J\\u2028${"k".repeat(196)}…" at character 1010`, 1010);
});

Deno.test("JsonReader refuses a nesting of more than 32, of any depth, and takes 32", () => {
  const nested = (depth: number, [open, close]: [string, string]) => open.repeat(depth) + close.repeat(depth);
  assertEquals(JSON.stringify(read(nested(32, ["[", "]"]))), nested(32, ["[", "]"]));
  refused(nested(33, ["[", "]"]), "nested deeper than 32 at character 32", 32, true);
  refused("[".repeat(1_000_000), "nested deeper than 32 at character 32", 32, true);
  refused('{"a":'.repeat(1_000_000), "nested deeper than 32 at character 160", 160, true);
  refused('[{"a":'.repeat(17), "nested deeper than 32 at character 96", 96, true);
});

Deno.test("JsonReader takes millions of spaces and long strings", () => {
  const spaces = " ".repeat(10_000_000);
  assertEquals(read(spaces + "1" + spaces), 1);
  const long = "x".repeat(10_000_000);
  assertEquals(read(`"${long}"`), long);
  assertEquals((read(`["\\n${long}"]`) as string[])[0].length, 10_000_001);
  refused(spaces, "expected a value, found the end at character 10000000", 10_000_000);
  refused(`"${long}`, "unterminated string at character 0", 0);
});

Deno.test("JsonReader describes what it finds, and looks into no array and no object", () => {
  const described: [string, string, string][] = [
    ["{broken", "object", "an object"],
    ["[broken", "array", "an array"],
    ['"a\\n"', "string", '"a\\n"'],
    [`"${"x".repeat(1_000_000)}"`, "string", `"${"x".repeat(200)}…"`],
    ["-0", "number", "-0"],
    ["1e999", "number", "1e999"],
    ["9".repeat(399), "number", "9".repeat(40)],
    ["12", "number", "12"],
    ["null", "literal", "null"],
    ["false", "literal", "false"],
  ];
  for (const [text, kind, words] of described) {
    const json = new JsonReader(text);
    assertEquals([json.peek(), json.describe()], [kind, words]);
  }
});

Deno.test("JsonReader refuses what is not asked for", () => {
  const cases: [string, (json: JsonReader) => void, string][] = [
    ["[]", (json) => json.object(() => {}), 'expected an object, found "[]"'],
    ["{}", (json) => json.array(() => {}), 'expected an array, found "{}"'],
    ["1", (json) => json.string(), 'expected a string, found "1"'],
    ['"1"', (json) => json.number(), 'expected a value, found "\\"1\\""'],
    ['"1"', (json) => json.literal(), 'expected a value, found "\\"1\\""'],
  ];
  for (const [text, ask, message] of cases) {
    assertRefused(() => ask(new JsonReader(text)), `not valid JSON: ${message} at character 0`, JsonError);
  }
});

Deno.test("JsonReader refuses an object of more than a million keys, and takes a million", () => {
  const object = (keys: number) => `{${Array.from({ length: keys }, (_, n) => `"${n}":0`).join(",")}}`;
  skip(object(1_000_000));
  const text = object(1_000_001);
  refused(text, `an object with more than 1000000 keys at character ${text.length - 12}`, text.length - 12, true);
});

Deno.test("JsonReader keeps nothing of what is skipped: three million objects need no more memory than the text", () => {
  const text = `[${"{},".repeat(3_000_000)}{}]`;
  const before = Deno.memoryUsage().heapTotal;
  skip(text);
  assert(Deno.memoryUsage().heapTotal - before < 48 << 20, "the heap has grown");
});

Deno.test("parseJson gives what JSON.parse gives, and says in one line what is not JSON", () => {
  for (
    const text of [
      '{"a":[1,2,{"b":"]}[,{\\""}],"a":null}',
      " 1 ",
      '"\\\\"',
      "[1e999,-0,9007199254740993]",
      '["\\\\ud800","\\uD83D\\udc07","\\ud7ff\\ue000"]',
    ]
  ) {
    assertEquals(parseJson("m", text), JSON.parse(text));
  }
  const cases: [string, string][] = [
    ["", "expected a value, found the end in line 1, column 1"],
    ['{"a":\u001b}', 'expected a value, found "\\u001b}" in line 1, column 6'],
    ["[1,\r\n", "expected a value, found the end in line 2, column 1"],
    ['{"a":1}\n\u202ex', 'expected the end, found "\\u202ex" in line 2, column 1'],
    ['["a\nb"]', "control character in a string in line 1, column 4"],
    ['["\\ud800"]', "lone surrogate in a string in line 1, column 3"],
    ['["\\udc07\\ud83d"]', "lone surrogate in a string in line 1, column 3"],
    ['{"a\\uDBFFx":1}', "lone surrogate in a string in line 1, column 4"],
    ['"', "unterminated string in line 1, column 1"],
    ['{"\u{1f407}": \u{1f407}}', 'expected a value, found "\u{1f407}}" in line 1, column 7'],
    ["]]]]", 'expected a value, found "]]]]" in line 1, column 1'],
  ];
  for (const [text, message] of cases) {
    assertRefused(() => parseJson("m", text), `m: not valid JSON: ${message}`);
  }
});

Deno.test("parseJson refuses a nesting of more than 32 and more than ten million values before it builds them", () => {
  const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
  assertEquals(JSON.stringify(parseJson("m", nested(32))), nested(32));
  for (const depth of [33, 1_000_000]) {
    assertRefused(() => parseJson("m", nested(depth)), "m: nested deeper than 32 in line 1, column 33");
  }
  // Brackets and commas in strings are no values.
  const text = "[{,".repeat(100_000) + '\\"' + "[{,".repeat(4_000_000);
  assertEquals(parseJson("m", JSON.stringify([text])), [text]);
  assertRefused(
    () => parseJson("m", `[${"{},".repeat(5_000_000)}{}]`),
    "m: more than 10000000 values in line 1, column 14999999",
  );
});

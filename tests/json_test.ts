import { assertEquals, assertThrows } from "@std/assert";
import { type Json, JsonError, OddNumber, parseJson } from "../lib/format/json.ts";

/** Maps as plain objects, numbers that were kept as text as what they say. */
function plain(json: Json): unknown {
  if (json instanceof OddNumber) return Number(json.text);
  if (json instanceof Map) return Object.fromEntries([...json].map(([key, value]) => [key, plain(value)]));
  return Array.isArray(json) ? json.map(plain) : json;
}

function refused(text: string, message: string, at?: number): void {
  const error = assertThrows(() => parseJson(text), JsonError, undefined, text.slice(0, 60));
  assertEquals(error.message, message, text.slice(0, 60));
  if (at !== undefined) assertEquals(error.at, at, text.slice(0, 60));
}

Deno.test("parseJson reads what RFC 8259 allows, as JSON.parse does", () => {
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
    assertEquals(JSON.stringify(plain(parseJson(text))), JSON.stringify(JSON.parse(text)), text);
  }
});

Deno.test("parseJson keeps the order of an object's keys, numbers among them", () => {
  const json = parseJson('{"b":1,"10":2,"a":3,"9":4,"__proto__":5}') as Map<string, Json>;
  assertEquals([...json], [["b", 1], ["10", 2], ["a", 3], ["9", 4], ["__proto__", 5]]);
});

Deno.test("parseJson gives numbers only for integers of 0 to 2^53-1 in plain digits", () => {
  for (const [text, value] of [["0", 0], ["7", 7], ["9007199254740991", Number.MAX_SAFE_INTEGER]] as const) {
    assertEquals(parseJson(text), value);
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
  for (const text of odd) assertEquals(parseJson(text), new OddNumber(text), text);
});

Deno.test("parseJson refuses numbers that RFC 8259 does not know", () => {
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

Deno.test("parseJson refuses a number of 400 digits or more unread", () => {
  for (const digits of [400, 401, 100_000]) refused("9".repeat(digits), "number of too many digits at character 0", 0);
  refused(`[0,${"9".repeat(400)}]`, "number of too many digits at character 3", 3);
});

Deno.test("parseJson refuses what is not JSON, saying where", () => {
  refused("", "expected a value, found the end at character 0", 0);
  refused("  ", "expected a value, found the end at character 2", 2);
  refused("\ufeff{}", 'expected a value, found "\ufeff{}" at character 0', 0);
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

Deno.test("parseJson refuses strings that RFC 8259 does not know", () => {
  refused('"', "unterminated string at character 0", 0);
  refused('["a', "unterminated string at character 1", 1);
  refused('"\\', "unterminated string at character 0", 0);
  refused('"\\"', "unterminated string at character 0", 0);
  refused('"a\nb"', "control character in a string at character 2", 2);
  refused('"\t"', "control character in a string at character 1", 1);
  refused('"\0"', "control character in a string at character 1", 1);
  for (const escape of ["\\x41", "\\a", "\\'", "\\0", "\\u", "\\u12", "\\u12g4", "\\u{41}", "\\U0041"]) {
    refused(`"${escape}"`, "bad escape in a string at character 0", 0);
  }
  // A control character after a backslash is no escape.
  refused('"\\\n"', "bad escape in a string at character 0", 0);
});

Deno.test("parseJson refuses lone surrogates, escaped or not, in keys too", () => {
  for (const lone of ["\\ud800", "\\udfff", "\\ud800a", "\\ud800\\u0041", "\\udd1e\\ud834", "\ud800", "\udfffx"]) {
    refused(`"${lone}"`, "lone surrogate in a string at character 0", 0);
    refused(`{"${lone}":1}`, "lone surrogate in a string at character 1", 1);
  }
});

Deno.test("parseJson refuses a key that stands twice in one object, however it is written", () => {
  refused('{"a":1,"a":1}', 'duplicate key "a" at character 7', 7);
  refused('{"a":1,"b":2,"\\u0061":3}', 'duplicate key "a" at character 13', 13);
  refused('[{"x":{"":0,"":1}}]', 'duplicate key "" at character 12', 12);
  refused('{"__proto__":1,"__proto__":2}', 'duplicate key "__proto__" at character 15', 15);
  // The same key in other objects is another key; so is one that only looks the same.
  assertEquals(JSON.stringify(plain(parseJson('{"a":{"a":1},"b":{"a":2}}'))), '{"a":{"a":1},"b":{"a":2}}');
  assertEquals((parseJson('{"\u00e9":1,"e\u0301":2}') as Map<string, Json>).size, 2);
});

Deno.test("parseJson names a duplicate key in a message that stays short and on one line", () => {
  const key = "\u009b2J\u2028" + "k".repeat(1000);
  refused(`{"${key}":1,"${key}":1}`, `duplicate key "\\u009b2J\\u2028${"k".repeat(196)}…" at character 1010`, 1010);
});

Deno.test("parseJson refuses a nesting of more than 32, of any depth, and takes 32", () => {
  const nested = (depth: number, [open, close]: [string, string]) => open.repeat(depth) + close.repeat(depth);
  assertEquals(JSON.stringify(parseJson(nested(32, ["[", "]"]))), nested(32, ["[", "]"]));
  refused(nested(33, ["[", "]"]), "nested deeper than 32 at character 32", 32);
  refused("[".repeat(1_000_000), "nested deeper than 32 at character 32", 32);
  refused('{"a":'.repeat(1_000_000), "nested deeper than 32 at character 160", 160);
  refused('[{"a":'.repeat(17), "nested deeper than 32 at character 96", 96);
});

Deno.test("parseJson takes millions of spaces and long strings", () => {
  const spaces = " ".repeat(10_000_000);
  assertEquals(parseJson(spaces + "1" + spaces), 1);
  const long = "x".repeat(10_000_000);
  assertEquals(parseJson(`"${long}"`), long);
  assertEquals((parseJson(`["\\n${long}"]`) as string[])[0].length, 10_000_001);
  refused(spaces, "expected a value, found the end at character 10000000", 10_000_000);
  refused(`"${long}`, "unterminated string at character 0", 0);
});

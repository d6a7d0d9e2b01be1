import { assertEquals, assertThrows } from "@std/assert";
import { CheckpointError } from "../../../lib/errors.ts";
import { canonical, parseStrict } from "../../../lib/proof/canonical.ts";

Deno.test("canonical writes the examples of RFC 8785, sections 3.2.2 and 3.2.3", () => {
  const values = '{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],' +
    '"string": "\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/", "literals": [null, true, false]}';
  assertEquals(
    canonical(parseStrict("x", values)),
    '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],' +
      '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
  );
  const keys =
    '{"\\u20ac": "Euro Sign", "\\r": "Carriage Return", "\\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",' +
    '"\\ud83d\\ude00": "Emoji: Grinning Face", "\\u0080": "Control", "\\u00f6": "Latin Small Letter O With Diaeresis"}';
  assertEquals(
    [...canonical(parseStrict("x", keys)).matchAll(/:"([^"]+)"/g)].map(([, value]) => value),
    [
      "Carriage Return",
      "One",
      "Control",
      "Latin Small Letter O With Diaeresis",
      "Euro Sign",
      "Emoji: Grinning Face",
      "Hebrew Letter Dalet With Dagesh",
    ],
  );
});

Deno.test("canonical leaves undefined members out", () => {
  assertEquals(canonical({ b: undefined, a: [{ c: undefined }] }), '{"a":[{}]}');
});

Deno.test("parseStrict refuses what JSON.parse takes", () => {
  const cases: [string, string][] = [
    ['{"a":1,"a":2}', 'duplicate key "a"'],
    ['{"a":{"b":1,"\\u0062":2}}', 'duplicate key "b"'],
    ['"\\ud800"', "lone surrogate"],
    ["1 2", "expected the end"],
    ["[1,]", "expected a value"],
    ["", "expected a value"],
  ];
  for (const [text, problem] of cases) {
    assertThrows(() => parseStrict("name.json", text), CheckpointError, problem);
  }
  assertEquals(canonical(parseStrict("x", '{"__proto__":{"a":1}}')), '{"__proto__":{"a":1}}');
});

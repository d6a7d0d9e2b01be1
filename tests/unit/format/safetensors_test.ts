import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { CheckpointError } from "../../../lib/errors.ts";
import { headerLength, MAX_HEADER_BYTES, parseHeader, serializeHeader } from "../../../lib/format/safetensors.ts";
import { DECLARED } from "../../support/blocks.ts";
import { utf8 } from "../../support/bytes.ts";
import { assertRefused } from "../../support/refusals.ts";
import { headerText } from "../../support/safetensors.ts";

/** Parses a header before `dataBytes` bytes of data. */
function parse(header: string | Uint8Array, dataBytes = 0) {
  const bytes = typeof header === "string" ? utf8(header) : header;
  return parseHeader("m", bytes, 8 + bytes.length + dataBytes);
}

/** One tensor of a header. */
function entry(name: string, dtype: unknown, shape: unknown, offsets: unknown): string {
  return `${JSON.stringify(name)}:{"dtype":${JSON.stringify(dtype)},"shape":${JSON.stringify(shape)},"data_offsets":${
    JSON.stringify(offsets)
  }}`;
}

function refused(header: string | Uint8Array, dataBytes: number, message: string): void {
  assertRefused(() => parse(header, dataBytes), message);
}

/** The length field of a file. */
function start(length: bigint): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, length, true);
  return bytes;
}

// The length of the header

Deno.test("headerLength reads eight bytes, little endian, at any offset of their buffer", () => {
  assertEquals(headerLength("m", start(0n), 8), 0);
  assertEquals(headerLength("m", start(0x01020304n), 1e9), 0x01020304);
  assertEquals(headerLength("m", Uint8Array.from([9, 9, 9, 2, 1, 0, 0, 0, 0, 0, 0]).subarray(3), 1e9), 0x0102);
});

Deno.test("headerLength refuses a file that is too short, whatever it holds", () => {
  for (const size of [0, 1, 7]) {
    assertRefused(
      () => headerLength("m", start(0n), size),
      `m: not a safetensors file: ${size} bytes, too short for a header`,
    );
  }
});

Deno.test("headerLength takes lengths to the end of the file and to the limit, and none above", () => {
  assertEquals(headerLength("m", start(92n), 100), 92);
  assertRefused(
    () => headerLength("m", start(93n), 100),
    "m: header: length is 93 bytes, but only 92 follow in the file; the file is truncated",
  );
  assertEquals(MAX_HEADER_BYTES, 100_000_000);
  assertEquals(headerLength("m", start(100_000_000n), 1e9), 100_000_000);
  for (const length of [100_000_001n, 2n ** 53n + 1n, 2n ** 63n, 2n ** 64n - 1n]) {
    const error = assertThrows(() => headerLength("m", start(length), 2 ** 40), CheckpointError);
    const message = `m: header: length is ${length} bytes, the limit is 100000000; not a safetensors file`;
    assertEquals(error.message, message);
  }
});

Deno.test("headerLength knows the pointer that git-lfs leaves in a file's place", () => {
  const error = assertThrows(() => headerLength("m", utf8("version https://git-lfs.github.com"), 134), CheckpointError);
  assertEquals(
    error.message,
    "m: not a safetensors file but a git-lfs pointer; fetch the file with `git lfs pull`",
  );
});

// What is legal

Deno.test("parseHeader reads names, dtypes, shapes, offsets and metadata", () => {
  const text = `{"__metadata__":{"format":"pt","x":""},${entry("a", "BF16", [2, 3], [0, 12])},${
    entry("b\u00e9\u0000/", "I64", [], [12, 20])
  }}  `;
  const { metadata, tensors, width, dataStart } = parse(text, 20);
  assertEquals([...metadata!], [["format", "pt"], ["x", ""]]);
  assertEquals(tensors, [
    { name: "a", dtype: "BF16", shape: [2, 3], begin: 0, end: 12 },
    { name: "b\u00e9\u0000/", dtype: "I64", shape: [], begin: 12, end: 20 },
  ]);
  assertEquals([width, dataStart], [undefined, 8 + utf8(text).length]);
});

Deno.test("parseHeader takes a header without tensors, with and without metadata", () => {
  assertEquals(parse("{}").tensors, []);
  assertEquals(parse("{}").metadata, undefined);
  assertEquals(parse('{"__metadata__":{}}').metadata?.size, 0);
});

Deno.test("parseHeader sorts tensors by their data, empty ones by their place in the header", () => {
  const text = `{${
    [
      entry("d", "U8", [1], [3, 4]),
      entry("e1", "U8", [0], [3, 3]),
      entry("a", "U8", [3], [0, 3]),
      entry("e2", "F32", [4, 0], [3, 3]),
      entry("e0", "F32", [0, 7], [0, 0]),
      entry("z", "F32", [0], [4, 4]),
    ].join(",")
  }}`;
  assertEquals(parse(text, 4).tensors.map(({ name }) => name), ["a", "e0", "d", "e1", "e2", "z"]);
});

Deno.test("parseHeader knows the size of every dtype", () => {
  // Of eight elements.
  const bytes = {
    F64: 64,
    I64: 64,
    U64: 64,
    C64: 64,
    F32: 32,
    I32: 32,
    U32: 32,
    F16: 16,
    BF16: 16,
    I16: 16,
    U16: 16,
    I8: 8,
    U8: 8,
    BOOL: 8,
    F8_E4M3: 8,
    F8_E5M2: 8,
    F8_E8M0: 8,
    F8_E4M3FNUZ: 8,
    F8_E5M2FNUZ: 8,
    F6_E2M3: 6,
    F6_E3M2: 6,
    F4: 4,
  };
  for (const [dtype, size] of Object.entries(bytes)) {
    assertEquals(parse(`{${entry("t", dtype, [2, 2, 2], [0, size])}}`, size).tensors[0].dtype, dtype);
    refused(
      `{${entry("t", dtype, [2, 2, 2], [0, size + 1])}}`,
      size + 1,
      `m: tensor "t": data_offsets: [0,${size + 1}] covers ${
        size + 1
      } bytes, but shape [2,2,2] of ${dtype} needs ${size}`,
    );
  }
});

Deno.test("parseHeader takes tensors of up to 64 dimensions, and further fields of a tensor", () => {
  assertEquals(parse(`{${entry("t", "U8", new Array(64).fill(1), [0, 1])}}`, 1).tensors[0].shape.length, 64);
  const extra = '{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"note":{"x":[null,1.5]}}}';
  assertEquals(parse(extra, 1).tensors.length, 1);
});

Deno.test("parseHeader takes plain files with metadata of any other format", () => {
  assertEquals(parse('{"__metadata__":{"format":"pt","block":"64"}}').width, undefined);
  assertEquals(parse('{"__metadata__":{"format":"Rabbit-Q4B32"}}').width, undefined);
});

for (const bits of [4, 8] as const) {
  Deno.test(`parseHeader takes a file that declares ${bits} bits: matrices of that width, others of any dtype`, () => {
    const metadata = JSON.stringify({ ...DECLARED[bits], note: "further fields are free" });
    const size = bits === 4 ? 18 : 34;
    const text = `{"__metadata__":${metadata},${
      [
        entry("w", `Q${bits}B32`, [3, 64], [0, 6 * size]),
        entry("n", "BF16", [5], [6 * size, 6 * size + 10]),
        entry("o", "F32", [], [6 * size + 10, 6 * size + 14]),
        entry("p", "I8", [1, 2, 1], [6 * size + 14, 6 * size + 16]),
        entry("none", `Q${bits}B32`, [0, 32], [6 * size + 16, 6 * size + 16]),
        entry("narrow", `Q${bits}B32`, [32, 0], [6 * size + 16, 6 * size + 16]),
      ].join(",")
    }}`;
    const { width, tensors } = parse(text, 6 * size + 16);
    assertEquals([width?.bits, tensors.length], [bits, 6]);
  });
}

// One test per rule. Each message stands here as it is printed.

const RULES: Record<string, [header: string | Uint8Array, dataBytes: number, message: string][]> = {
  "a header that is not UTF-8": [
    [Uint8Array.from([0x7b, 0x22, 0xff, 0x22, 0x7d]), 0, "m: header: not valid UTF-8"],
    [Uint8Array.from([0x7b, 0xc0, 0xaf, 0x7d]), 0, "m: header: not valid UTF-8"], // an overlong "/"
    [Uint8Array.from([0x7b, 0x22, 0xed, 0xa0, 0x80, 0x22, 0x7d]), 0, "m: header: not valid UTF-8"], // a surrogate
    [Uint8Array.from([0x7b, 0x7d, 0xe2, 0x82]), 0, "m: header: not valid UTF-8"], // cut
  ],
  "a header that is not an object from its first byte": [
    ["", 0, 'm: header: expected "{" first, found ""'],
    [" {}", 0, 'm: header: expected "{" first, found " {}"'],
    ["[]", 0, 'm: header: expected "{" first, found "[]"'],
    ["\ufeff{}", 0, 'm: header: expected "{" first, found "\\ufeff{}"'],
    ["\u0080\0PK-not-a-header", 0, 'm: header: expected "{" first, found "\\u0080\\u0000PK-not-a-h"'],
  ],
  "a header that is not JSON": [
    ["{", 0, "m: header: not valid JSON: expected a key, found the end at character 1"],
    ["{}x", 0, 'm: header: not valid JSON: expected the end, found "x" at character 2'],
    ["{}\0\0\0", 0, 'm: header: not valid JSON: expected the end, found "\\u0000\\u0000\\u0000" at character 2'],
    ["{'a':1}", 0, "m: header: not valid JSON: expected a key, found \"'a':1}\" at character 1"],
  ],
  "duplicate names": [
    [
      `{${entry("a", "U8", [1], [0, 1])},${entry("a", "U8", [1], [0, 1])}}`,
      1,
      'm: header: not valid JSON: duplicate key "a" at character 53',
    ],
    [
      '{"t":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}}',
      1,
      'm: header: not valid JSON: duplicate key "shape" at character 31',
    ],
    [
      '{"__metadata__":{},"__metadata__":{}}',
      0,
      'm: header: not valid JSON: duplicate key "__metadata__" at character 19',
    ],
    ['{"__metadata__":{"a":"","a":""}}', 0, 'm: header: not valid JSON: duplicate key "a" at character 24'],
  ],
  "metadata that are not strings by name": [
    ['{"__metadata__":[]}', 0, "m: __metadata__: expected an object, found an array"],
    ['{"__metadata__":null}', 0, "m: __metadata__: expected an object, found null"],
    ['{"__metadata__":"x"}', 0, 'm: __metadata__: expected an object, found "x"'],
    ['{"__metadata__":{"block":32}}', 0, 'm: __metadata__ "block": expected a string, found 32'],
    ['{"__metadata__":{"a":{}}}', 0, 'm: __metadata__ "a": expected a string, found an object'],
    ['{"__metadata__":{"a":-1.5}}', 0, 'm: __metadata__ "a": expected a string, found -1.5'],
  ],
  "tensors that are not objects with dtype, shape and data_offsets": [
    ['{"t":1}', 0, 'm: tensor "t": expected an object, found 1'],
    ['{"t":null}', 0, 'm: tensor "t": expected an object, found null'],
    ['{"t":{}}', 0, 'm: tensor "t": dtype: expected a string, found nothing'],
    ['{"t":{"dtype":32,"shape":[],"data_offsets":[0,0]}}', 0, 'm: tensor "t": dtype: expected a string, found 32'],
    [
      '{"t":{"dtype":"U8","data_offsets":[0,1]}}',
      1,
      'm: tensor "t": shape: expected an array of numbers, found nothing',
    ],
    [`{${entry("t", "U8", 1, [0, 1])}}`, 1, 'm: tensor "t": shape: expected an array of numbers, found 1'],
    ['{"t":{"dtype":"U8","shape":[1]}}', 1, 'm: tensor "t": data_offsets: expected an array of numbers, found nothing'],
    [
      `{${entry("t", "U8", [1], { begin: 0, end: 1 })}}`,
      1,
      'm: tensor "t": data_offsets: expected an array of numbers, found an object',
    ],
    [`{${entry("t", "U8", [1], [0])}}`, 1, 'm: tensor "t": data_offsets: expected two numbers, found 1'],
    [`{${entry("t", "U8", [1], [0, 1, 2])}}`, 1, 'm: tensor "t": data_offsets: expected two numbers, found 3'],
  ],
  "numbers that are negative, fractional, too large or not numbers": [
    [`{${entry("t", "U8", [-1], [0, 1])}}`, 1, naturals("shape", "-1")],
    [`{${entry("t", "U8", [1.5], [0, 1])}}`, 1, naturals("shape", "1.5")],
    [`{${entry("t", "U8", ["1"], [0, 1])}}`, 1, naturals("shape", '"1"')],
    [`{${entry("t", "U8", [null], [0, 1])}}`, 1, naturals("shape", "null")],
    [`{${entry("t", "U8", [[1]], [0, 1])}}`, 1, naturals("shape", "an array")],
    ['{"t":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}', 1, naturals("shape", "1.0")],
    ['{"t":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}', 1, naturals("shape", "1e0")],
    ['{"t":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}', 0, naturals("shape", "-0")],
    [
      '{"t":{"dtype":"U8","shape":[9007199254740993],"data_offsets":[0,1]}}',
      1,
      naturals("shape", "9007199254740993"),
    ],
    ['{"t":{"dtype":"U8","shape":[1E2],"data_offsets":[0,100]}}', 100, naturals("shape", "1E2")],
    ['{"t":{"dtype":"U8","shape":[1e999],"data_offsets":[0,1]}}', 1, naturals("shape", "1e999")],
    ['{"t":{"dtype":"U8","shape":[-1e999],"data_offsets":[0,1]}}', 1, naturals("shape", "-1e999")],
    ['{"t":{"dtype":"U8","shape":[0.0],"data_offsets":[0,0]}}', 0, naturals("shape", "0.0")],
    ['{"t":{"dtype":"U8","shape":[1e-999],"data_offsets":[0,0]}}', 0, naturals("shape", "1e-999")],
    [
      '{"t":{"dtype":"U8","shape":[9007199254740992],"data_offsets":[0,1]}}',
      1,
      naturals("shape", "9007199254740992"),
    ],
    [`{"t":{"dtype":"U8","shape":[${"9".repeat(399)}],"data_offsets":[0,1]}}`, 1, naturals("shape", "9".repeat(40))],
    [
      `{"t":{"dtype":"U8","shape":[${"9".repeat(1_000_000)}],"data_offsets":[0,1]}}`,
      1,
      "m: header: number with too many digits at character 28",
    ],
    [`{${entry("t", "U8", ["x".repeat(1_000_000)], [0, 1])}}`, 1, naturals("shape", `"${"x".repeat(200)}…"`)],
    [`{${entry("t", "U8", [1], [-1, 0])}}`, 1, naturals("data_offsets", "-1")],
    [`{${entry("t", "U8", [1], [0, true])}}`, 1, naturals("data_offsets", "true")],
    [
      '{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551617]}}',
      1,
      naturals("data_offsets", "18446744073709551617"),
    ],
  ],
  "more numbers than a tensor can have": [
    [
      `{${entry("t", "U8", new Array(65).fill(1), [0, 1])}}`,
      1,
      'm: tensor "t": shape: more than 64 numbers, the limit',
    ],
    [
      `{${entry("t", "U8", [1], new Array(1_000_000).fill(0))}}`,
      1,
      'm: tensor "t": data_offsets: more than 64 numbers, the limit',
    ],
  ],
  "what nobody asks for in a shape, before it is read to its end": [
    [`{"t":{"dtype":"U8","shape":[${"{},".repeat(1_000_000)}`, 0, naturals("shape", "an object")],
    [`{"t":{"dtype":"U8","shape":[[],${"[],".repeat(1_000_000)}`, 0, naturals("shape", "an array")],
    [
      `{"t":{"dtype":"U8","shape":{${'"a":1,'.repeat(1_000_000)}`,
      0,
      'm: tensor "t": shape: expected an array of numbers, found an object',
    ],
    [`{"__metadata__":{"a":[${"{},".repeat(1_000_000)}`, 0, 'm: __metadata__ "a": expected a string, found an array'],
  ],
  "a nesting that no header has": [
    [
      `{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":${"[".repeat(1_000_000)}`,
      1,
      "m: header: nested deeper than 32 at character 86",
    ],
  ],
  "names with lone surrogates": [
    ['{"\\ud800":{}}', 0, "m: header: not valid JSON: lone surrogate in a string at character 1"],
    ['{"__metadata__":{"\\udc00x":""}}', 0, "m: header: not valid JSON: lone surrogate in a string at character 17"],
  ],
  "offsets that run backwards": [
    [`{${entry("t", "U8", [1], [1, 0])}}`, 1, 'm: tensor "t": data_offsets: [1,0] ends before it begins'],
  ],
  "offsets past the end of the data": [
    [
      `{${entry("t", "U8", [4], [0, 4])}}`,
      3,
      'm: tensor "t": data_offsets: [0,4] ends after the data, which has 3 bytes; the file is truncated',
    ],
    [
      `{${entry("t", "U8", [0], [9007199254740991, 9007199254740991])}}`,
      0,
      'm: tensor "t": data_offsets: [9007199254740991,9007199254740991] ends after the data, which has 0 bytes; ' +
      "the file is truncated",
    ],
  ],
  "offsets that overlap": [
    [
      `{${entry("b", "U8", [4], [2, 6])},${entry("a", "U8", [4], [0, 4])}}`,
      6,
      'm: tensor "b": data_offsets: [2,6] overlaps the previous tensor, which ends at 4',
    ],
    [
      `{${entry("a", "U8", [4], [0, 4])},${entry("b", "U8", [4], [0, 4])}}`,
      4,
      'm: tensor "b": data_offsets: [0,4] overlaps the previous tensor, which ends at 4',
    ],
    [
      `{${entry("a", "U8", [4], [0, 4])},${entry("empty", "U8", [0], [2, 2])}}`,
      4,
      'm: tensor "empty": data_offsets: [2,2] overlaps the previous tensor, which ends at 4',
    ],
  ],
  "a hole in the data, at the start, between tensors or at the end": [
    [`{${entry("t", "U8", [1], [1, 2])}}`, 2, 'm: tensor "t": data_offsets: [1,2] leaves a gap after byte 0'],
    [
      `{${entry("a", "U8", [1], [0, 1])},${entry("b", "U8", [1], [3, 4])}}`,
      4,
      'm: tensor "b": data_offsets: [3,4] leaves a gap after byte 1',
    ],
    [
      `{${entry("a", "U8", [1], [0, 1])}}`,
      2,
      "m: data_offsets: the tensors cover 1 bytes of data, but the file has 2",
    ],
    ["{}", 1, "m: data_offsets: the tensors cover 0 bytes of data, but the file has 1"],
  ],
  "a byte length that is not shape times dtype": [
    [
      `{${entry("t", "F32", [2, 3], [0, 23])}}`,
      23,
      'm: tensor "t": data_offsets: [0,23] covers 23 bytes, but shape [2,3] of F32 needs 24',
    ],
    [
      `{${entry("t", "F32", [], [0, 0])}}`,
      0,
      'm: tensor "t": data_offsets: [0,0] covers 0 bytes, but shape [] of F32 needs 4',
    ],
    [
      `{${entry("t", "BF16", [0], [0, 2])}}`,
      2,
      'm: tensor "t": data_offsets: [0,2] covers 2 bytes, but shape [0] of BF16 needs 0',
    ],
    [`{${entry("t", "F4", [3], [0, 2])}}`, 2, 'm: tensor "t": shape: [3] of F4 does not fill whole bytes'],
    [`{${entry("t", "F6_E2M3", [2], [0, 2])}}`, 2, 'm: tensor "t": shape: [2] of F6_E2M3 does not fill whole bytes'],
  ],
  "a shape whose product overflows": [
    [
      `{${entry("t", "U8", [94906266, 94906266, 4], [0, 1])}}`,
      1,
      'm: tensor "t": shape: [94906266,94906266,4] has more than 2^53 bytes',
    ],
    [ // 2^64 elements, which is none where products are taken modulo 2^64
      `{${entry("t", "U8", [4294967296, 4294967296], [0, 0])}}`,
      0,
      'm: tensor "t": shape: [4294967296,4294967296] has more than 2^53 bytes',
    ],
    [ // the elements fit, the bits don't
      `{${entry("t", "F64", [1125899906842624], [0, 1])}}`,
      1,
      'm: tensor "t": shape: [1125899906842624] has more than 2^53 bytes',
    ],
    [
      `{${entry("t", "U8", [9007199254740991, 9007199254740991, 0], [0, 0])}}`,
      0,
      'm: tensor "t": shape: [9007199254740991,9007199254740991,0] has more than 2^53 bytes',
    ],
  ],
  "an unknown dtype, by name": [
    [`{${entry("t", "F128", [1], [0, 16])}}`, 16, 'm: tensor "t": dtype: unknown dtype "F128"'],
    [`{${entry("t", "f32", [1], [0, 4])}}`, 4, 'm: tensor "t": dtype: unknown dtype "f32"'],
    [`{${entry("t", "", [1], [0, 4])}}`, 4, 'm: tensor "t": dtype: unknown dtype ""'],
    [`{${entry("t", "Q5B32", [1, 32], [0, 22])}}`, 22, 'm: tensor "t": dtype: unknown dtype "Q5B32"'],
    [`{${entry("t", "__proto__", [1], [0, 4])}}`, 4, 'm: tensor "t": dtype: unknown dtype "__proto__"'],
    [`{${entry("t", "\u001b[2J", [1, 32], [0, 4])}}`, 4, 'm: tensor "t": dtype: unknown dtype "\\u001b[2J"'],
    [
      `{"__metadata__":${JSON.stringify(DECLARED[4])},${entry("t", "F".repeat(1_000_000), [1, 32], [0, 4])}}`,
      4,
      `m: tensor "t": dtype: unknown dtype "${"F".repeat(200)}…"`,
    ],
  ],
  "a block dtype in a file that declares no width": [
    [
      `{${entry("t", "Q4B32", [1, 32], [0, 18])}}`,
      18,
      'm: tensor "t": __metadata__: dtype Q4B32 needs "rabbit-q4b32", found nothing',
    ],
    [
      `{"__metadata__":{"block":"32"},${entry("t", "Q8B32", [1, 32], [0, 34])}}`,
      34,
      'm: tensor "t": __metadata__ "format": dtype Q8B32 needs "rabbit-q8b32", found nothing',
    ],
    [
      `{"__metadata__":{"format":"pt"},${entry("t", "Q8B32", [1, 32], [0, 34])}}`,
      34,
      'm: tensor "t": __metadata__ "format": dtype Q8B32 needs "rabbit-q8b32", found "pt"',
    ],
    [
      `{"__metadata__":{"format":"rabbit-Q4B32"},${entry("t", "Q4B32", [1, 32], [0, 18])}}`,
      18,
      'm: tensor "t": __metadata__ "format": dtype Q4B32 needs "rabbit-q4b32", found "rabbit-Q4B32"',
    ],
  ],
  "a width that is not known": [
    ['{"__metadata__":{"format":"rabbit-q6b32"}}', 0, 'm: __metadata__ "format": unknown width "rabbit-q6b32"'],
  ],
  "a declaration whose block or scale is not what the width needs": [
    [
      '{"__metadata__":{"format":"rabbit-q4b32","scale":"f16"}}',
      0,
      'm: __metadata__ "block": Q4B32 needs "32", found nothing',
    ],
    [
      '{"__metadata__":{"format":"rabbit-q4b32","block":"64","scale":"f16"}}',
      0,
      'm: __metadata__ "block": Q4B32 needs "32", found "64"',
    ],
    [
      '{"__metadata__":{"format":"rabbit-q8b32","block":"32"}}',
      0,
      'm: __metadata__ "scale": Q8B32 needs "f16", found nothing',
    ],
    [
      '{"__metadata__":{"format":"rabbit-q8b32","block":"32","scale":"bf16"}}',
      0,
      'm: __metadata__ "scale": Q8B32 needs "f16", found "bf16"',
    ],
  ],
  "two widths in one file": [
    [
      `{"__metadata__":${JSON.stringify(DECLARED[4])},${entry("a", "Q4B32", [1, 32], [0, 18])},${
        entry("b", "Q8B32", [1, 32], [18, 52])
      }}`,
      52,
      'm: tensor "b": dtype: Q8B32 in a file of format "rabbit-q4b32"; a file has only one width',
    ],
    [
      `{"__metadata__":${JSON.stringify(DECLARED[8])},${entry("a", "Q4B32", [32], [0, 18])}}`,
      18,
      'm: tensor "a": dtype: Q4B32 in a file of format "rabbit-q8b32"; a file has only one width',
    ],
  ],
  "a matrix of another dtype in a file that declares a width": ["BF16", "F64", "I32", "F8_E4M3"].map((dtype) => [
    `{"__metadata__":${JSON.stringify(DECLARED[4])},${entry("a", dtype, [1, 32], [0, 64])}}`,
    64,
    `m: tensor "a": dtype: a two-dimensional ${dtype} tensor in a file of format "rabbit-q4b32"; it must be Q4B32`,
  ]),
  "blocks that are no matrix, or whose columns are not a multiple of 32": [
    [quantized("Q4B32", [32], 18), 18, 'm: tensor "t": shape: expected two dimensions for Q4B32, found [32]'],
    [
      quantized("Q8B32", [1, 1, 32], 34),
      34,
      'm: tensor "t": shape: expected two dimensions for Q8B32, found [1,1,32]',
    ],
    [quantized("Q8B32", [], 34), 34, 'm: tensor "t": shape: expected two dimensions for Q8B32, found []'],
    [quantized("Q4B32", [2, 48], 54), 54, 'm: tensor "t": shape: [2,48]: 48 columns are not a multiple of 32'],
    [quantized("Q8B32", [0, 1], 0), 0, 'm: tensor "t": shape: [0,1]: 1 columns are not a multiple of 32'],
  ],
  "blocks of another byte length": [
    [
      quantized("Q4B32", [2, 64], 71),
      71,
      'm: tensor "t": data_offsets: [0,71] covers 71 bytes, but shape [2,64] of Q4B32 needs 72',
    ],
    [
      quantized("Q8B32", [2, 64], 72),
      72,
      'm: tensor "t": data_offsets: [0,72] covers 72 bytes, but shape [2,64] of Q8B32 needs 136',
    ],
  ],
};

function naturals(field: string, found: string): string {
  return `m: tensor "t": ${field}: expected whole numbers of 0 to 2^53-1, found ${found}`;
}

function quantized(dtype: "Q4B32" | "Q8B32", shape: number[], bytes: number): string {
  const metadata = JSON.stringify(DECLARED[dtype === "Q4B32" ? 4 : 8]);
  return `{"__metadata__":${metadata},${entry("t", dtype, shape, [0, bytes])}}`;
}

for (const [rule, cases] of Object.entries(RULES)) {
  Deno.test(`parseHeader refuses ${rule}`, () => {
    for (const [header, dataBytes, message] of cases) refused(header, dataBytes, message);
  });
}

Deno.test("parseHeader puts the path, the tensor and the field of a refusal in its place as well", () => {
  const header = utf8(`{${entry("t\n", "X", [1], [0, 4])}}`);
  const error = assertThrows(() => parseHeader("a/b", header, 8 + header.length + 4), CheckpointError);
  assertEquals(error.place, { path: "a/b", tensor: "t\n", field: "dtype" });
  assertEquals(error.message, 'a/b: tensor "t\\n": dtype: unknown dtype "X"');
});

Deno.test("parseHeader names a tensor of any name in one line", () => {
  const name = "\u001b[2J\u009b\u2028\u{1f407}" + "n".repeat(500);
  const error = assertThrows(() => parse(`{${entry(name, "X", [1], [0, 4])}}`, 4), CheckpointError);
  assertStringIncludes(error.message, 'm: tensor "\\u001b[2J\\u009b\\u2028\u{1f407}nnn');
  assertEquals(error.message.length < 300, true);
  const long = assertThrows(
    () => parse(`{${entry("\0" + "n".repeat(1_000_000), "X", [1], [0, 4])}}`, 4),
    CheckpointError,
  );
  assertEquals(long.message, `m: tensor "\\u0000${"n".repeat(199)}…": dtype: unknown dtype "X"`);
});

Deno.test("parseHeader takes names of a megabyte, and names that only differ after a NUL", () => {
  const names = ["n".repeat(1_000_000), "a\0b", "a\0c", "a", "\0"];
  const text = `{${names.map((name) => entry(name, "U8", [0], [0, 0])).join(",")}}`;
  assertEquals(parse(text).tensors.map(({ name }) => name), names);
});

// serializeHeader

Deno.test("serializeHeader writes length, metadata first, tensors in order, padded to a multiple of eight", () => {
  const bytes = serializeHeader({ format: "rabbit-q4b32", block: "32", scale: "f16" }, [
    { name: "w", dtype: "Q4B32", shape: [2, 64], bytes: 72 },
    { name: "n", dtype: "BF16", shape: [3], bytes: 6 },
    { name: "s", dtype: "F32", shape: [], bytes: 4 },
  ]);
  const text = '{"__metadata__":{"format":"rabbit-q4b32","block":"32","scale":"f16"},' +
    '"w":{"dtype":"Q4B32","shape":[2,64],"data_offsets":[0,72]},' +
    '"n":{"dtype":"BF16","shape":[3],"data_offsets":[72,78]},' +
    '"s":{"dtype":"F32","shape":[],"data_offsets":[78,82]}}';
  const length = Math.ceil(text.length / 8) * 8;
  assertEquals(headerText(bytes), text.padEnd(length));
  assertEquals([...bytes.subarray(0, 8)], [length % 256, Math.floor(length / 256), 0, 0, 0, 0, 0, 0]);
  assertEquals(bytes.length, 8 + length);
});

Deno.test("serializeHeader of nothing is these 32 bytes", () => {
  assertEquals(serializeHeader({}, []).toHex(), "18000000000000007b225f5f6d657461646174615f5f223a7b7d7d2020202020");
});

Deno.test("serializeHeader pads the bytes of UTF-8, not the characters, and adds nothing to a whole multiple", () => {
  for (let n = 0; n < 20; n++) {
    const bytes = serializeHeader({}, [{ name: "\u00e9\u{1f407}" + "x".repeat(n), dtype: "U8", shape: [1], bytes: 1 }]);
    const text = `{"__metadata__":{},"\u00e9\u{1f407}${
      "x".repeat(n)
    }":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`;
    const size = utf8(text).length;
    assertEquals(bytes.length, 8 + size + (8 - size % 8) % 8);
    assertEquals(headerText(bytes).trimEnd(), text);
  }
});

Deno.test("serializeHeader escapes names as JSON does, and keeps large offsets whole", () => {
  const bytes = serializeHeader({}, [
    { name: 'a"\\\n', dtype: "U8", shape: [9007199254740990], bytes: 9007199254740990 },
    { name: "b", dtype: "U8", shape: [1], bytes: 1 },
  ]);
  assertEquals(
    headerText(bytes).trimEnd(),
    '{"__metadata__":{},"a\\"\\\\\\n":{"dtype":"U8","shape":[9007199254740990],"data_offsets":[0,9007199254740990]},' +
      '"b":{"dtype":"U8","shape":[1],"data_offsets":[9007199254740990,9007199254740991]}}',
  );
});

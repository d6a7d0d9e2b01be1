// The container of GGUF. The file was written by llama.cpp's Python package (fixtures/gguf).

import { assertEquals, assertThrows } from "@std/assert";
import { CheckpointError } from "../../../lib/errors.ts";
import { type Gguf, parseGguf, serializeGguf } from "../../../lib/gguf/container.ts";
import { concat, utf8 } from "../../support/bytes.ts";
import { fixture, ROOT } from "../../support/fixtures.ts";
import { byteSource } from "../../support/gguf.ts";
import { assertRefused } from "../../support/refusals.ts";

const TYPES = Deno.readFileSync(`${ROOT}fixtures/gguf/types.gguf`);
const expected = fixture<{ metadata: Record<string, unknown>; decoded: Record<string, string[]> }>("gguf/types.json");

function parse(bytes: Uint8Array, fileBytes?: number): Gguf {
  return parseGguf(byteSource(bytes, "x.gguf", fileBytes));
}

function refused(bytes: Uint8Array, message: string, fileBytes?: number): void {
  assertRefused(() => parse(bytes, fileBytes), `x.gguf: ${message}`);
}

// ---------------------------------------------------------------- files by hand

function number(bytes: 4 | 8, value: number | bigint): Uint8Array {
  const out = new DataView(new ArrayBuffer(8));
  out.setBigUint64(0, BigInt(value), true);
  return new Uint8Array(out.buffer).slice(0, bytes);
}

const u32 = (value: number) => number(4, value);
const u64 = (value: number | bigint) => number(8, value);
const text = (value: string | Uint8Array) => {
  const bytes = typeof value === "string" ? utf8(value) : value;
  return concat(u64(bytes.length), bytes);
};

function info(name: string, sizes: (number | bigint)[], type: number, offset: number | bigint): Uint8Array {
  return concat(text(name), u32(sizes.length), ...sizes.map(u64), u32(type), u64(offset));
}

/** A file: keys with their values, infos, and data after the padding. */
function file(pairs: [string, Uint8Array][], infos: Uint8Array[], data = new Uint8Array(0), version = 3, align = 32) {
  const keys = pairs.map(([key, value]) => concat(text(key), value));
  const head = concat(utf8("GGUF"), u32(version), u64(infos.length), u64(pairs.length), ...keys, ...infos);
  return concat(head, new Uint8Array(Math.ceil(head.length / align) * align - head.length), data);
}

const F32 = 0;
const DATA = new Uint8Array(64);

// ---------------------------------------------------------------- what is read

Deno.test("parseGguf reads every type of value", () => {
  const { version, metadata } = parse(TYPES);
  assertEquals(version, 3);
  for (const [type, wanted] of Object.entries(expected.metadata)) {
    const value = metadata.get(`test.${type}`)!;
    if (!("value" in value)) throw new Error(`${type} is an array`);
    assertEquals(value.type, type);
    // Numbers of 64 bits are texts in the JSON file.
    const wide = type === "u64" || type === "i64";
    assertEquals(wide ? String(value.value) : value.value, wanted, type);
  }
  assertEquals(metadata.get("test.strings"), { type: "string", values: ["a", "", "b c"] });
  assertEquals(metadata.get("test.numbers"), { type: "i32", values: Int32Array.of(1, -2, 3) });
  assertEquals(metadata.get("test.truths"), { type: "bool", values: Uint8Array.of(1, 0) });
});

Deno.test("parseGguf reads arrays of every type as typed arrays", () => {
  const cases: [number, string, string, ArrayLike<unknown>][] = [
    [0, "u8", "00 7f ff", Uint8Array.of(0, 127, 255)],
    [1, "i8", "00 7f ff", Int8Array.of(0, 127, -1)],
    [2, "u16", "0001 ffff 3412", Uint16Array.of(256, 65535, 0x1234)],
    [3, "i16", "0001 ffff 3412", Int16Array.of(256, -1, 0x1234)],
    [4, "u32", "78563412 ffffffff 00000000", Uint32Array.of(0x12345678, 4294967295, 0)],
    [5, "i32", "78563412 ffffffff 00000080", Int32Array.of(0x12345678, -1, -2147483648)],
    [6, "f32", "0000803f 000080ff 01000000", Float32Array.of(1, -Infinity, 2 ** -149)],
    [7, "bool", "00 01 01", Uint8Array.of(0, 1, 1)],
    [10, "u64", "0100000000000000 ffffffffffffffff 0000000000000080", BigUint64Array.of(1n, 2n ** 64n - 1n, 2n ** 63n)],
    [11, "i64", "0100000000000000 ffffffffffffffff 0000000000000080", BigInt64Array.of(1n, -1n, -(2n ** 63n))],
    [12, "f64", "000000000000f03f 000000000000f07f 0100000000000000", Float64Array.of(1, Infinity, 2 ** -1074)],
  ];
  // After each array a key of another type: the reader stands where the array ends.
  const pairs = cases.flatMap(([id, type, hex]): [string, Uint8Array][] => [
    [type, concat(u32(9), u32(id), u64(3), Uint8Array.fromHex(hex.replaceAll(" ", "")))],
    [`${type} after`, concat(u32(8), text(type))],
  ]);
  const { metadata } = parse(file(pairs, []));
  for (const [, type, , values] of cases) {
    assertEquals(metadata.get(type) as unknown, { type, values });
    assertEquals(metadata.get(`${type} after`), { type: "string", value: type });
  }
  // What is read is written again.
  assertEquals(parse(serializeGguf(metadata, [])).metadata, metadata);
  const none = file([["none", concat(u32(9), u32(12), u64(0))]], []);
  assertEquals(parse(none).metadata.get("none"), { type: "f64", values: new Float64Array() });
});

Deno.test("parseGguf gives tensors their places, slowest dimension first", () => {
  const { tensors } = parse(TYPES);
  assertEquals(tensors.map(({ name }) => name), [...Object.keys(expected.decoded).map((n) => `${n}.weight`), "scalar"]);
  const { offset, bytes, shape } = tensors.at(-1)!;
  assertEquals([shape, bytes], [[1], 4]);
  assertEquals(new DataView(TYPES.buffer).getFloat32(offset, true), 3.5);
  const three = parse(file([], [info("a", [4, 2, 1], F32, 0)], DATA.subarray(32)));
  assertEquals(three.tensors[0].shape, [1, 2, 4]);
});

Deno.test("parseGguf takes version 2, another alignment, tensors without elements, and data without padding at the end", () => {
  assertEquals(parse(file([], [], undefined, 2)).version, 2);
  const infos = [info("a", [1], F32, 0), info("b", [1], F32, 8)];
  const [a, b] =
    parse(file([["general.alignment", concat(u32(4), u32(8))]], infos, DATA.subarray(0, 12), 3, 8)).tensors;
  assertEquals([a.offset % 8, b.offset - a.offset], [0, 8]);
  const empty = parse(file([], [info("a", [0, 5], F32, 0), info("b", [3], F32, 0)], DATA.subarray(0, 12)));
  assertEquals(empty.tensors.map(({ bytes }) => bytes), [0, 12]);
});

// ---------------------------------------------------------------- what is written

Deno.test("serializeGguf writes what llama.cpp's package writes", () => {
  const { metadata, tensors } = parse(TYPES);
  const [{ offset }] = tensors;
  assertEquals(serializeGguf(metadata, tensors), TYPES.slice(0, offset));
});

Deno.test("serializeGguf writes headers larger than its first buffer", () => {
  const values = Array.from({ length: 50_000 }, (_, n) => `token ${n}`);
  const written = serializeGguf(new Map([["tokens", { type: "string", values }]]), []);
  assertEquals(parse(written).metadata.get("tokens"), { type: "string", values });
});

// ---------------------------------------------------------------- what is refused

Deno.test("parseGguf refuses a file cut off at any byte", () => {
  const { tensors } = parse(TYPES);
  const { offset, bytes } = tensors.at(-1)!;
  for (let length = 0; length < TYPES.length; length++) {
    // The padding after the last tensor may be missing.
    if (length >= offset + bytes) parse(TYPES.slice(0, length));
    else assertThrows(() => parse(TYPES.slice(0, length)), CheckpointError, "x.gguf: ", `${length} bytes`);
  }
});

Deno.test("parseGguf refuses another file, version or byte order", () => {
  refused(new Uint8Array(0), 'not a GGUF file: it begins with ""');
  refused(utf8("GGML1234567890"), 'not a GGUF file: it begins with "GGML"');
  for (const version of [0, 1, 4]) {
    const problem = version === 0
      ? "the file is big endian; convert it with gguf's gguf_convert_endian"
      : `${version} is not supported (2 and 3 are); convert the model again with a newer tool`;
    refused(file([], [], undefined, version), `version: ${problem}`);
  }
  refused(
    file([], [], undefined, 0x03000000),
    "version: the file is big endian; convert it with gguf's gguf_convert_endian",
  );
});

Deno.test("parseGguf refuses metadata that say one thing twice or no thing at all", () => {
  const one = concat(u32(4), u32(1));
  refused(file([["a", one], ["a", one]], []), 'key "a": duplicate key');
  refused(file([["", one]], []), "key 0: is empty");
  refused(file([["a".repeat(65536), one]], []), "key 0: a string of 65536 bytes; the limit is 65535");
  refused(file([["a", u32(13)]], [], new Uint8Array(64)), 'key "a": unknown value type 13');
  refused(file([["a", concat(u32(7), Uint8Array.of(2))]], []), 'key "a": invalid boolean: 2');
  refused(file([["a", concat(u32(8), text(Uint8Array.of(0xff)))]], []), 'key "a": a string that is not valid UTF-8');
  refused(
    file([["a", concat(u32(9), u32(9), u64(0))]], []),
    'key "a": arrays of arrays are not supported',
  );
  for (const alignment of [0, 3, 48]) {
    refused(
      file([["general.alignment", concat(u32(4), u32(alignment))]], []),
      `key "general.alignment": ${alignment} is not a power of two`,
    );
  }
  refused(
    file([["general.alignment", concat(u32(8), text("32"))]], []),
    'key "general.alignment": expected a u32, found string "32"',
  );
  refused(
    file([["general.alignment", concat(u32(8), text("\u001b[2J\n"))]], []),
    'key "general.alignment": expected a u32, found string "\\u001b[2J\\n"',
  );
  refused(
    file([["general.alignment", concat(u32(10), u64(32))]], []),
    'key "general.alignment": expected a u32, found u64 32',
  );
  refused(
    file([["general.alignment", concat(u32(9), u32(4), u64(1), u32(32))]], []),
    'key "general.alignment": expected a u32, found an array of u32',
  );
  for (const alignment of [2 ** 17, 2 ** 31]) {
    refused(
      file([["general.alignment", concat(u32(4), u32(alignment))]], []),
      `key "general.alignment": ${alignment}; the limit is 65536`,
    );
  }
  refused(file([["a", concat(u32(9), u32(7), u64(3), Uint8Array.of(1, 0, 2))]], []), 'key "a": invalid boolean: 2');
  refused(file([["a", concat(u32(9), u32(13), u64(0))]], []), 'key "a": unknown value type 13');
  refused(
    file([["a", concat(u32(9), u32(8), u64(1), text(Uint8Array.of(0xc0, 0xaf)))]], []),
    'key "a": a string that is not valid UTF-8',
  );
  const odd = concat(utf8("GGUF"), u32(3), u64(0), u64(1), text(Uint8Array.of(0xff)), one);
  refused(odd, "key 0: a string that is not valid UTF-8");
  refused(
    file([], [info("a", [1], F32, 0)].map((i) => i.fill(0xff, 8, 9)), DATA),
    "tensor 0: a string that is not valid UTF-8",
  );
});

Deno.test("parseGguf allocates nothing for counts that the file has no room for", () => {
  const huge = 2n ** 63n;
  const start = (tensors: bigint, keys: bigint) => concat(utf8("GGUF"), u32(3), u64(tensors), u64(keys));
  refused(
    start(0n, huge),
    `metadata count: ${huge} keys do not fit into the 0 bytes that follow; the file is truncated`,
  );
  refused(
    start(huge, 0n),
    `tensor count: ${huge} tensors do not fit into the 0 bytes that follow; the file is truncated`,
  );
  const key = (...value: Uint8Array[]) => concat(start(0n, 1n), text("a"), ...value);
  refused(
    key(u32(8), u64(huge)),
    `key "a": ${huge} bytes of a string do not fit into the 0 bytes that follow; the file is truncated`,
  );
  refused(
    key(u32(9), u32(8), u64(10_000_000)),
    `key "a": 10000000 elements do not fit into the 0 bytes that follow; the file is truncated`,
  );
  refused(key(u32(9), u32(0), u64(huge)), `key "a": an array of ${huge}; the limit is 16777216`);
  for (const [id, type] of [[0, "u8"], [7, "bool"], [12, "f64"]] as const) {
    const bytes = type === "f64" ? 8 : 1;
    const left = "x".repeat(100 * bytes - 1);
    refused(
      key(u32(9), u32(id), u64(100), utf8(left)),
      `key "a": 100 elements do not fit into the ${left.length} bytes that follow; the file is truncated`,
    );
  }
  // A file that has the room, or says so.
  refused(start(0n, 65537n), "metadata count: 65537 keys; the limit is 65536", 2 ** 50);
  refused(start(65537n, 0n), "tensor count: 65537 tensors; the limit is 65536", 2 ** 50);
  refused(
    key(u32(9), u32(8), u64(2 ** 22 + 1)),
    'key "a": the arrays up to here have 4194305 strings; the limit is 4194304',
    2 ** 50,
  );
  refused(key(u32(9), u32(0), u64(2 ** 24 + 1)), `key "a": an array of 16777217; the limit is 16777216`, 2 ** 50);
  const message = `key "a": 300000000 bytes of a string do not fit into the 268435411 bytes that follow; ` +
    "the metadata and the tensor infos may have at most 268435456 bytes";
  refused(key(u32(8), u64(300_000_000)), message, 2 ** 50);
});

Deno.test("parseGguf refuses tensors that are not what ggml can hold", () => {
  const one = (...args: Parameters<typeof info>) => file([], [info(...args)], DATA);
  const at = (field: string) => `tensor "a": ${field}`;
  refused(one("a", [1, 1, 1, 1, 1], F32, 0), `${at("dimensions")}: 5; the limit is 4`);
  refused(one("a".repeat(65), [1], F32, 0), "tensor 0: a string of 65 bytes; the limit is 64");
  for (const type of [4, 5, 31, 99, 0xffffffff]) refused(one("a", [1], type, 0), `${at("type")}: unknown type ${type}`);
  refused(one("a", [33, 2], 8, 0), `${at("shape")}: [2,33]: 33 columns of Q8_0 are not a multiple of 32`);
  refused(one("a", [128, 2], 12, 0), `${at("shape")}: [2,128]: 128 columns of Q4_K are not a multiple of 256`);
  refused(
    one("a", [2 ** 32, 2 ** 32], F32, 0),
    `${at("shape")}: [4294967296,4294967296] of F32 has more than 2^53 bytes`,
  );
  refused(one("a", [2n ** 63n, 0], F32, 0), `${at("shape")}: [0,9223372036854775808] of F32 has more than 2^53 bytes`);
  refused(file([], [info("a", [8], F32, 0), info("a", [8], F32, 32)], DATA), `${at("name")}: duplicate name`);
});

Deno.test("parseGguf refuses offsets with overlaps, holes, or an end outside of the file", () => {
  const two = (second: number | bigint, data = DATA) => {
    return file([], [info("a", [8], F32, 0), info("b", [8], F32, second)], data);
  };
  assertEquals(parse(two(32)).tensors.length, 2);
  for (const offset of [0, 16, 64, 2n ** 64n - 1n]) {
    refused(two(offset), `tensor "b": offset: expected 32, the next aligned offset, found ${offset}`);
  }
  refused(
    file([], [info("a", [8], F32, 32)], DATA),
    'tensor "a": offset: expected 0, the next aligned offset, found 32',
  );
  const { length } = two(32);
  refused(
    two(32).subarray(0, length - 1),
    `tensor "b": offset: the data ends at byte ${length}, but the file has ${length - 1} bytes; the file is truncated`,
  );
  refused(concat(two(32), new Uint8Array(1)), `1 bytes follow the last tensor, which ends at ${length}`);
});

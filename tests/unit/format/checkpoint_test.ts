import { assert, assertEquals, assertThrows } from "@std/assert";
import { CheckpointError, SystemError } from "../../../lib/errors.ts";
import { COMPANIONS, nameOf, openCheckpoint, TensorReader } from "../../../lib/format/checkpoint.ts";
import { DECLARED } from "../../support/blocks.ts";
import { concat, utf8 } from "../../support/bytes.ts";
import { inTemporary, write } from "../../support/files.ts";
import { WEIGHTS } from "../../support/fixtures.ts";
import { assertRefused } from "../../support/refusals.ts";
import { container, type Entry, f32, safetensors, writeShards } from "../../support/safetensors.ts";

const A = f32("a", [2, 32], (n) => n);
const B = f32("b", [3], (n) => -n);
const C: Entry = { name: "c", dtype: "U8", shape: [2], bytes: Uint8Array.from([7, 9]) };

const ONE = "model-00001-of-00002.safetensors";
const TWO = "model-00002-of-00002.safetensors";
const INDEX = "model.safetensors.index.json";

function index(weight_map: Record<string, unknown>): string {
  return JSON.stringify({ metadata: {}, weight_map });
}

function refused(path: string, message: string): void {
  assertRefused(() => openCheckpoint(path), message);
}

/** Names, files and offsets of an opened checkpoint. */
function layout(path: string): [string, number, number][] {
  return openCheckpoint(path).tensors.map(({ name, file, offset }) => [name, file, offset]);
}

Deno.test("openCheckpoint reads a file of any name, and a directory's model.safetensors", () =>
  inTemporary((directory) => {
    const bytes = safetensors([A, B, C]);
    write(directory, { "weights.bin": bytes, [WEIGHTS]: bytes });
    const dataStart = bytes.length - 256 - 12 - 2;
    const tensors = [
      { name: "a", dtype: "F32", shape: [2, 32], bytes: 256, file: 0, offset: dataStart },
      { name: "b", dtype: "F32", shape: [3], bytes: 12, file: 0, offset: dataStart + 256 },
      { name: "c", dtype: "U8", shape: [2], bytes: 2, file: 0, offset: dataStart + 268 },
    ];
    for (const [path, file] of [[`${directory}/weights.bin`, "weights.bin"], [directory, WEIGHTS]]) {
      const checkpoint = openCheckpoint(path);
      assertEquals(checkpoint, {
        path,
        directory,
        files: [{ path: `${directory}/${file}`, bytes: bytes.length, dataStart, version: checkpoint.files[0].version }],
        tensors,
        width: undefined,
      });
      assertEquals(nameOf(checkpoint), `${directory}/${file}`);
    }
  }));

Deno.test("openCheckpoint says which width a file declares", () =>
  inTemporary((directory) => {
    for (const bits of [4, 8] as const) {
      write(directory, { [WEIGHTS]: safetensors([C], DECLARED[bits]) });
      assertEquals(openCheckpoint(directory).width?.bits, bits);
    }
  }));

Deno.test("openCheckpoint reads shards in the order of their names, tensors in the order of their data", () =>
  inTemporary((directory) => {
    writeShards(directory, { [TWO]: [C, A], [ONE]: [B] });
    const checkpoint = openCheckpoint(directory);
    assertEquals(checkpoint.files.map(({ path }) => path), [`${directory}/${ONE}`, `${directory}/${TWO}`]);
    assertEquals(checkpoint.tensors.map(({ name, file }) => [name, file]), [["b", 0], ["c", 1], ["a", 1]]);
    assertEquals(nameOf(checkpoint), directory);
  }));

Deno.test("openCheckpoint sorts shards by the bytes of their names, which is not the order of UTF-16", () =>
  inTemporary((directory) => {
    // In UTF-8: 61, 61 62, 62, c3 a9, ef bd 9e, f0 9f 90 87; in UTF-16 the last begins with d83d, before ff5e.
    const names = ["a", "ab", "b", "\u00e9", "\uff5e", "\u{1f407}"];
    const entry = (name: string): Entry => ({ name, dtype: "U8", shape: [1], bytes: new Uint8Array(1) });
    writeShards(directory, Object.fromEntries(names.toReversed().map((name) => [name, [entry(`t${name}`)]])));
    assertEquals(openCheckpoint(directory).tensors.map(({ name }) => name), names.map((name) => `t${name}`));
  }));

Deno.test("openCheckpoint: the index wins over model.safetensors and over files that it does not name", () =>
  inTemporary((directory) => {
    write(directory, { [WEIGHTS]: safetensors([C]), "consolidated.safetensors": "no checkpoint at all" });
    writeShards(directory, { [ONE]: [A], [TWO]: [B] });
    assertEquals(layout(directory).map(([name, file]) => [name, file]), [["a", 0], ["b", 1]]);
  }));

Deno.test("openCheckpoint follows links within the directory, and those of a Hugging Face cache to its blobs", () =>
  inTemporary((directory) => {
    const [x, y, z] = ["a".repeat(64), "b".repeat(64), "c".repeat(40)];
    const cache = `${directory}/hub/models--org--name`;
    write(`${cache}/blobs`, { [x]: safetensors([A]), [y]: safetensors([B]), [z]: "{}" });
    write(`${cache}/snapshots/1f2e`, { [INDEX]: index({ a: ONE, b: TWO }) });
    const snapshot = `${cache}/snapshots/1f2e`;
    for (const [name, blob] of [[ONE, x], [TWO, y], ["config.json", z]]) {
      Deno.symlinkSync(`../../blobs/${blob}`, `${snapshot}/${name}`);
    }
    write(`${directory}/own/parts`, { x: safetensors([A]), y: safetensors([B]) });
    write(`${directory}/own`, { [INDEX]: index({ a: ONE, b: TWO }) });
    Deno.symlinkSync("parts/x", `${directory}/own/${ONE}`);
    Deno.symlinkSync("./parts/../parts/y", `${directory}/own/${TWO}`);
    // Downloads into a directory of one's own once were links to the cache.
    Deno.mkdirSync(`${directory}/local`);
    Deno.symlinkSync(`${cache}/blobs/${x}`, `${directory}/local/${WEIGHTS}`);
    Deno.symlinkSync("own", `${directory}/link`);
    assertEquals(layout(snapshot).length, 2);
    for (const path of ["own", "link"]) assertEquals(layout(`${directory}/${path}`), layout(snapshot));
    assertEquals(layout(`${directory}/local`), layout(`${snapshot}/${ONE}`.replace(ONE, "")).slice(0, 1));
  }));

/** All files of a checkpoint directory that are read. */
const MEMBERS = [WEIGHTS, INDEX, ONE, ...COMPANIONS];

Deno.test("openCheckpoint refuses a link out of the directory, to whatever it leads and wherever it stands", () =>
  inTemporary((directory) => {
    const real = Deno.realPathSync(directory);
    write(`${directory}/other/blobs`, { ["a".repeat(64)]: "x" });
    write(`${directory}/modelx`, { file: safetensors([A]) });
    write(directory, { outside: safetensors([A]) });
    const targets = [
      ["../outside", `${real}/outside`],
      [`${directory}/outside`, `${real}/outside`],
      ["../modelx/file", `${real}/modelx/file`], // a directory whose name begins as this one's
      [`../other/blobs/${"a".repeat(64)}`, `${real}/other/blobs/${"a".repeat(64)}`], // not a cache
      ["/dev/null", "/dev/null"],
      ["inner", `${real}/outside`], // by way of another link
    ];
    for (const name of MEMBERS) {
      for (const [target, resolved] of targets) {
        const model = `${directory}/model`;
        write(model, name === ONE ? { [INDEX]: index({ a: ONE }) } : {});
        if (!name.startsWith("model")) write(model, { [WEIGHTS]: safetensors([A]) });
        if (target === "inner") Deno.symlinkSync("../outside", `${model}/inner`);
        Deno.symlinkSync(target, `${model}/${name}`);
        refused(
          model,
          `${model}/${name}: is a link out of the checkpoint's directory, to "${resolved}", and is not followed; ` +
            "put the file itself here, if it belongs to the checkpoint",
        );
        Deno.removeSync(model, { recursive: true });
      }
    }
    // What the user names is followed.
    Deno.symlinkSync("outside", `${directory}/given`);
    assertEquals(layout(`${directory}/given`).length, 1);
  }));

Deno.test("openCheckpoint names a link to nothing, and refuses what is no regular file, wherever it stands", () =>
  inTemporary(async (directory) => {
    const model = `${directory}/model`;
    for (const name of MEMBERS) {
      write(model, name === ONE ? { [INDEX]: index({ a: ONE }) } : {});
      if (!name.startsWith("model")) write(model, { [WEIGHTS]: safetensors([A]) });
      const path = `${model}/${name}`;
      Deno.symlinkSync("../../gone", path);
      assertRefused(
        () => openCheckpoint(model),
        `cannot open ${path}: it is a link to "../../gone", which does not exist`,
        SystemError,
      );
      Deno.removeSync(path);
      Deno.mkdirSync(path);
      refused(model, `${path}: not a regular file`);
      Deno.removeSync(path);
      assert((await new Deno.Command("mkfifo", { args: [path] }).output()).success);
      refused(model, `${path}: not a regular file`);
      Deno.removeSync(model, { recursive: true });
    }
    Deno.symlinkSync("gone", `${directory}/given`);
    assertRefused(
      () => openCheckpoint(`${directory}/given`),
      `cannot open ${directory}/given: it is a link to "gone", which does not exist`,
      SystemError,
    );
  }));

// What is given in the place of a checkpoint

/** `path` is refused with a message that has all of `words` and begins with the path. */
function named(path: string, ...words: string[]): void {
  const { message } = assertThrows(() => openCheckpoint(path), CheckpointError);
  assert(message.startsWith(`${path}: `), message);
  for (const word of words) assert(message.includes(word), `${message}\nlacks ${word}`);
}

Deno.test("openCheckpoint takes an index for its directory", () =>
  inTemporary((directory) => {
    writeShards(directory, { [ONE]: [A], [TWO]: [B] });
    assertEquals(openCheckpoint(`${directory}/${INDEX}`), openCheckpoint(directory));
  }));

Deno.test("openCheckpoint refuses one shard of several, with an index and without", () =>
  inTemporary((directory) => {
    const odd = "weights-b.safetensors";
    writeShards(directory, { [ONE]: [A], [odd]: [B] });
    for (const name of [ONE, odd]) named(`${directory}/${name}`, "one of the 2 shards", INDEX, "give the directory");
    write(`${directory}/alone`, { [TWO]: safetensors([B]) });
    named(`${directory}/alone/${TWO}`, "shard 2 of 2", INDEX);
    named(`${directory}/alone`, `"${TWO}"`, INDEX);
    // The only shard is the checkpoint, and so is a file that the index does not list.
    const only = "model-00001-of-00001.safetensors";
    writeShards(`${directory}/only`, { [only]: [A] });
    assertEquals(layout(`${directory}/only/${only}`), layout(`${directory}/only`));
    write(directory, { "other.safetensors": safetensors([C]) });
    assertEquals(layout(`${directory}/other.safetensors`).length, 1);
  }));

Deno.test("openCheckpoint names an adapter, by its files and by its tensors", () =>
  inTemporary((directory) => {
    const peft = [f32("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", [32, 64], () => 1)];
    for (const file of ["adapter_model.safetensors", "adapter_model.bin"]) {
      write(`${directory}/${file}.d`, { "adapter_config.json": "{}", [file]: safetensors([A]) });
      named(`${directory}/${file}.d`, "a LoRA adapter", "merge");
      named(`${directory}/${file}.d/${file}`, "a LoRA adapter", "merge");
      named(`${directory}/${file}.d/adapter_config.json`, "a LoRA adapter", "merge");
    }
    write(`${directory}/renamed`, { [WEIGHTS]: safetensors([A, ...peft]) });
    const { message } = assertThrows(() => openCheckpoint(`${directory}/renamed`), CheckpointError);
    assert(message.startsWith(`${directory}/renamed/${WEIGHTS}: tensor "${peft[0].name}": a LoRA adapter`), message);
    for (
      const name of ["lora_te_text_model_q_proj.lora_down.weight", "x.lora_magnitude_vector", "l.lora_B.default.weight"]
    ) {
      write(`${directory}/renamed`, { [WEIGHTS]: safetensors([f32(name, [1], () => 1)]) });
      assertThrows(() => openCheckpoint(`${directory}/renamed`), CheckpointError, "a LoRA adapter");
    }
    // Names that only look like it.
    write(`${directory}/fine`, { [WEIGHTS]: safetensors([f32("explora_A.weight", [1], () => 1)]) });
    assertEquals(layout(`${directory}/fine`).length, 1);
  }));

Deno.test("openCheckpoint names PyTorch's pickles, GGUF files and JSON, whatever they are called", () =>
  inTemporary((directory) => {
    const zip = concat(utf8("PK\x03\x04"), Uint8Array.of(0, 0, 8, 8), new Uint8Array(100));
    // torch.save before 1.6: a pickle of a long integer.
    const pickle = concat(Uint8Array.of(0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9), new Uint8Array(100));
    const gguf = concat(utf8("GGUF"), Uint8Array.of(3, 0, 0, 0), new Uint8Array(100));
    const texts = ['{\n  "architectures": []}', '{"weight_map": {}}', "[1, 2, 3, 4, 5]"];
    const files: [Uint8Array | string, string][] = [
      [zip, "PyTorch's pickle format"],
      [pickle, "PyTorch's pickle format"],
      [gguf, "rabbit import"],
      ...texts.map((text): [string, string] => [text, "JSON"]),
    ];
    for (const [content, words] of files) {
      for (const name of ["x.bin", "x.safetensors", "config.json"]) {
        write(directory, { [name]: content });
        named(`${directory}/${name}`, "not a safetensors file but", words);
      }
    }
    // A header of 640 bytes begins as a pickle does.
    const header = JSON.stringify({ c: { dtype: "U8", shape: [0], data_offsets: [0, 0] } }).padEnd(640);
    write(directory, { x: container(header) });
    assertEquals(layout(`${directory}/x`).length, 1);
    write(`${directory}/torch`, { "pytorch_model.bin": zip, "config.json": "{}" });
    named(`${directory}/torch`, '"pytorch_model.bin"', "save_pretrained");
    write(`${directory}/gguf`, { "m.gguf": gguf });
    named(`${directory}/gguf`, '"m.gguf"', "rabbit import");
    write(`${directory}/mistral`, { "consolidated.safetensors": safetensors([A]) });
    named(`${directory}/mistral`, '"consolidated.safetensors"');
  }));

Deno.test("openCheckpoint names the snapshot to give for the root of a Hugging Face cache", () =>
  inTemporary((directory) => {
    const cache = `${directory}/models--org--name`;
    for (const name of ["blobs", "snapshots/0a", "snapshots/0b", "snapshots/0c", "refs"]) {
      Deno.mkdirSync(`${cache}/${name}`, { recursive: true });
    }
    named(cache, `give "${cache}/snapshots/0c"`);
    for (const ref of ["0b", "0b\n"]) {
      write(`${cache}/refs`, { main: ref });
      named(cache, `give "${cache}/snapshots/0b"`);
    }
    // What a branch names is a revision, and no way out of the directory.
    for (const ref of ["../../x", "", "\x1b[31m"]) {
      write(`${cache}/refs`, { main: ref });
      named(cache, `give "${cache}/snapshots/0c"`);
    }
    for (const name of ["0a", "0b", "0c"]) Deno.removeSync(`${cache}/snapshots/${name}`);
    named(cache, "download the model again");
    named(directory, '"models--org--name"');
  }));

Deno.test("openCheckpoint refuses a directory without a checkpoint, and what is no file", () =>
  inTemporary((directory) => {
    refused(
      directory,
      `${directory}: no ${WEIGHTS} and no ${INDEX} in this directory; is it a checkpoint?`,
    );
    Deno.mkdirSync(`${directory}/${WEIGHTS}`);
    refused(directory, `${directory}/${WEIGHTS}: not a regular file`);
    assertRefused(
      () => openCheckpoint(`${directory}/none`),
      `cannot open ${directory}/none: no such file or directory`,
      SystemError,
    );
  }));

Deno.test("openCheckpoint refuses the usual broken files: empty, cut in the header or in the data, longer", () =>
  inTemporary((directory) => {
    const path = `${directory}/m`;
    const whole = safetensors([A]);
    const header = whole.length - 8 - 256;
    const cases: [Uint8Array, string][] = [
      [new Uint8Array(0), "not a safetensors file: 0 bytes, too short for a header"],
      [whole.subarray(0, 7), "not a safetensors file: 7 bytes, too short for a header"],
      [
        whole.subarray(0, 40),
        `header: length is ${header} bytes, but only 32 follow in the file; the file is truncated`,
      ],
      [
        whole.subarray(0, -1),
        'tensor "a": data_offsets: [0,256] ends after the data, which has 255 bytes; the file is truncated',
      ],
      [
        concat(whole, new Uint8Array(4)),
        "data_offsets: the tensors cover 256 bytes of data, but the file has 260",
      ],
      [
        utf8("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 269060552\n"),
        "not a safetensors file but a git-lfs pointer; fetch the file with `git lfs pull`",
      ],
    ];
    for (const [bytes, problem] of cases) {
      Deno.writeFileSync(path, bytes);
      refused(path, `${path}: ${problem}`);
    }
  }));

Deno.test("openCheckpoint refuses an index that names a path out of the directory, or no file at all", () =>
  inTemporary((directory) => {
    write(`${directory}/in`, { [ONE]: safetensors([A]) });
    write(directory, { "out.safetensors": safetensors([A]) });
    const path = `${directory}/in/${INDEX}`;
    const names: [unknown, string][] = [
      ["../out.safetensors", '"../out.safetensors"'],
      [`${directory}/out.safetensors`, JSON.stringify(`${directory}/out.safetensors`)],
      ["sub/../../out.safetensors", '"sub/../../out.safetensors"'],
      ["sub/x", '"sub/x"'],
      ["./x", '"./x"'],
      ["..\\out.safetensors", '"..\\\\out.safetensors"'],
      ["..", '".."'],
      [".", '"."'],
      ["", '""'],
      ["x\0y", '"x\\u0000y"'],
      ["n".repeat(256), `"${"n".repeat(200)}…"`],
      [1, "1"],
      [null, "null"],
      [{}, "an object"],
    ];
    for (const [name, found] of names) {
      Deno.writeTextFileSync(path, index({ a: name }));
      refused(
        `${directory}/in`,
        `${path}: tensor "a": weight_map: expected the name of a file in this directory, found ${found}`,
      );
    }
  }));

Deno.test("openCheckpoint refuses an index that is no index", () =>
  inTemporary((directory) => {
    const path = `${directory}/${INDEX}`;
    const shape = `${path}: weight_map: expected an object of tensor names and shard names, found`;
    const cases: [string | Uint8Array, string][] = [
      ["", `${path}: not valid JSON: expected a value, found the end at character 0`],
      ["{", `${path}: not valid JSON: expected a key, found the end at character 1`],
      ["[]", `${shape} an array`],
      ["{}", `${shape} nothing`],
      ["7", `${shape} 7`],
      ['{"weight_map":["a"]}', `${shape} an array`],
      ['{"weight_map":{}}', `${path}: weight_map: lists no tensors`],
      [
        `{"weight_map":{"a":"${ONE}","a":"${ONE}"}}`,
        `${path}: not valid JSON: duplicate key "a" at character 54`,
      ],
      [Uint8Array.from([0x7b, 0xff, 0x7d]), `${path}: not valid UTF-8`],
      ['{"weight_map":{"a":"\\ud800"}}', `${path}: not valid JSON: lone surrogate in a string at character 19`],
      [`{"metadata":${"[".repeat(100_000)}`, `${path}: nested deeper than 32 at character 43`],
      [
        `{"weight_map":{"a":[${"{},".repeat(1_000_000)}`,
        `${path}: tensor "a": weight_map: expected the name of a file in this directory, found an array`,
      ],
    ];
    for (const [text, message] of cases) {
      write(directory, { [INDEX]: text });
      refused(directory, message);
    }
  }));

Deno.test("openCheckpoint refuses an index beyond its limit unread", () =>
  inTemporary((directory) => {
    const path = `${directory}/${INDEX}`;
    Deno.createSync(path).close();
    for (const bytes of [100_000_001, 2 ** 40]) {
      Deno.truncateSync(path, bytes);
      refused(directory, `${path}: ${bytes} bytes, the limit is 100000000`);
    }
  }));

Deno.test("openCheckpoint refuses a shard that is missing, naming it", () =>
  inTemporary((directory) => {
    writeShards(directory, { [ONE]: [A], [TWO]: [B] });
    Deno.removeSync(`${directory}/${TWO}`);
    refused(
      directory,
      `${directory}/${INDEX}: weight_map: the shard "${TWO}" is not in the directory; fetch it again`,
    );
  }));

Deno.test("openCheckpoint refuses a tensor that the index misplaces, promises in vain, or does not list", () =>
  inTemporary((directory) => {
    const shards = { [ONE]: [A], [TWO]: [B, C] };
    writeShards(directory, shards, index({ a: ONE, b: ONE, c: TWO }));
    refused(directory, `${directory}/${TWO}: tensor "b": ${INDEX} places it in "${ONE}"`);
    writeShards(directory, shards, index({ a: ONE, b: TWO, c: TWO, d: TWO }));
    refused(directory, `${directory}/${TWO}: tensor "d": missing, although ${INDEX} places it here`);
    writeShards(directory, shards, index({ a: ONE, b: TWO }));
    refused(directory, `${directory}/${TWO}: tensor "c": ${INDEX} does not list it`);
  }));

Deno.test("openCheckpoint refuses a tensor that stands in two shards", () =>
  inTemporary((directory) => {
    writeShards(directory, { [ONE]: [A, C], [TWO]: [B, C] }, index({ a: ONE, b: TWO, c: ONE }));
    refused(directory, `${directory}/${TWO}: tensor "c": duplicate tensor, also in "${ONE}"`);
  }));

Deno.test("openCheckpoint refuses shards that declare different widths", () =>
  inTemporary((directory) => {
    const rest = `but ${directory}/${ONE} declares`;
    const field = `${directory}/${TWO}: __metadata__ "format"`;
    const two = index({ b: ONE, c: TWO });
    write(directory, { [INDEX]: two, [ONE]: safetensors([B]), [TWO]: safetensors([C], DECLARED[4]) });
    refused(directory, `${field}: declares Q4B32, ${rest} none`);
    write(directory, { [ONE]: safetensors([B], DECLARED[8]) });
    refused(directory, `${field}: declares Q4B32, ${rest} Q8B32`);
    write(directory, { [TWO]: safetensors([C]) });
    refused(directory, `${field}: declares no width, ${rest} Q8B32`);
    write(directory, { [TWO]: safetensors([C], DECLARED[8]) });
    assertEquals(openCheckpoint(directory).width?.bits, 8);
  }));

Deno.test("openCheckpoint refuses a quantized checkpoint of shards of two sets, or without one of a set", () =>
  inTemporary((directory) => {
    const three = "model-00002-of-00003.safetensors";
    const shard = (entry: Entry) => safetensors([entry], DECLARED[8]);
    write(directory, { [INDEX]: index({ b: ONE, c: three }), [ONE]: shard(B), [three]: shard(C) });
    const again = "write the checkpoint again";
    const place = `${directory}/${INDEX}: weight_map: lists`;
    refused(directory, `${place} "${ONE}" and "${three}", shards of two different sets; ${again}`);
    write(directory, { [INDEX]: index({ b: ONE }) });
    refused(directory, `${place} 1 shards, but "${ONE}" is one of 2; ${again}`);
    write(directory, { [INDEX]: index({ b: ONE, c: TWO }), [TWO]: shard(C) });
    assertEquals(openCheckpoint(directory).tensors.length, 2);
  }));

Deno.test("openCheckpoint names the shard whose header is bad", () =>
  inTemporary((directory) => {
    writeShards(directory, { [ONE]: [A], [TWO]: [B] });
    write(directory, { [TWO]: safetensors([{ ...B, dtype: "F31" }]) });
    refused(directory, `${directory}/${TWO}: tensor "b": dtype: unknown dtype "F31"`);
  }));

Deno.test("TensorReader reads any part of a tensor, from whichever shard it is in", () =>
  inTemporary((directory) => {
    writeShards(directory, { [ONE]: [A, B], [TWO]: [C] });
    const reader = new TensorReader(openCheckpoint(directory));
    try {
      assertEquals(reader.path, directory);
      assertEquals(reader.find("c"), { dtype: "U8", shape: [2], path: `${directory}/${TWO}` });
      assertEquals(reader.find("d"), undefined);
      assertEquals(reader.find("__proto__"), undefined);
      for (const { name, bytes } of [A, B, C]) {
        for (const [from, to] of [[0, bytes.length], [1, bytes.length - 1], [bytes.length, bytes.length]]) {
          const into = new Uint8Array(Math.max(to - from, 0));
          reader.read(name, from, into);
          assertEquals(into, bytes.slice(from, from + into.length), name);
        }
      }
    } finally {
      reader.close();
    }
  }));

// `rabbit import` of split GGUF files, whose matrices have the types of K-quants. fixtures/gguf/make_gguf.py wrote them
// with llama.cpp's Python package, and what they must become.

import { assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { serializeGguf, type Value } from "../../lib/gguf/container.ts";
import { concat } from "../support/bytes.ts";
import { inTemporary, sha256, tree } from "../support/files.ts";
import { fixture, json, MIXED, ROOT, WEIGHTS } from "../support/fixtures.ts";
import { readGguf } from "../support/gguf.ts";
import { lines, refused } from "../support/program.ts";
import { digestsOf } from "../support/safetensors.ts";

const expected = fixture<{ f32: Record<string, string>; model: string }>("gguf/superblocks.json");
const NAMES = [1, 2, 3].map((n) => `superblocks-0000${n}-of-00003.gguf`);
const [FIRST] = NAMES;
const fixturePath = (name: string) => `${ROOT}fixtures/gguf/${name}`;

/** Keys and their new values; undefined removes a key. */
type Changes = Readonly<Record<string, Value | undefined>>;

const u16 = (value: number): Value => ({ type: "u16", value });

/** Writes the file `from` with other metadata to `to`. */
function rewrite(from: string, to: string, changes: Changes): void {
  const { metadata, tensors, data } = readGguf(from);
  const changed = new Map(metadata);
  for (const [key, value] of Object.entries(changes)) {
    if (value === undefined) changed.delete(key);
    else changed.set(key, value);
  }
  Deno.writeFileSync(to, concat(serializeGguf(changed, tensors), data.subarray(tensors[0].offset)));
}

/** Copies the parts to a directory, each with changed metadata. Returns the path of the first. */
function copyParts(directory: string, changes: Changes[] = []): string {
  for (const [n, name] of NAMES.entries()) rewrite(fixturePath(name), join(directory, name), changes[n] ?? {});
  return join(directory, FIRST);
}

Deno.test("rabbit import reads the parts of a split GGUF as one file, and K-quants to the bit", async () => {
  await inTemporary(async (temporary) => {
    const [wide, narrow] = ["wide", "narrow"].map((name) => join(temporary, name));
    await lines(0, "import", "--quiet", fixturePath(FIRST), wide, "--dtype", "f32");
    assertEquals(digestsOf(join(wide, WEIGHTS)), expected.f32);
    assertEquals(json(join(wide, "config.json")).torch_dtype, "float32");
    const [first] = await lines(0, "import", "--quiet", fixturePath(FIRST), narrow);
    assertEquals(
      first,
      `IMPORT model=${narrow}/${WEIGHTS} bytes=${Deno.statSync(join(narrow, WEIGHTS)).size} tensors=12 dtype=BF16 ` +
        "architecture=llama files=2",
    );
    assertEquals(await sha256(join(narrow, WEIGHTS)), expected.model);
  });
});

Deno.test("rabbit import reads a first part without tensors", async () => {
  await inTemporary(async (temporary) => {
    for (const [n, name] of NAMES.entries()) {
      const to = join(temporary, `m-0000${n + 2}-of-00004.gguf`);
      rewrite(fixturePath(name), to, { "split.no": u16(n + 1), "split.count": u16(4) });
    }
    const { metadata } = readGguf(fixturePath(FIRST));
    const first = join(temporary, "m-00001-of-00004.gguf");
    Deno.writeFileSync(first, serializeGguf(new Map([...metadata, ["split.count", u16(4)]]), []));
    await lines(0, "import", "--quiet", first, join(temporary, "out"));
    assertEquals(await sha256(join(temporary, "out", WEIGHTS)), expected.model);
  });
});

Deno.test("rabbit import reads a file that is the only part", async () => {
  await inTemporary(async (temporary) => {
    const answer = fixture<{ model: string }>("gguf/mixed.json").model;
    const cases: [string, Changes][] = [
      ["m-00001-of-00001.gguf", {}],
      ["m-00001-of-00002.gguf", { "split.count": u16(1) }],
    ];
    for (const [name, changes] of cases) {
      rewrite(MIXED, join(temporary, name), changes);
      await lines(0, "import", join(temporary, name), join(temporary, name.slice(0, -5)));
      assertEquals(await sha256(join(temporary, name.slice(0, -5), WEIGHTS)), answer);
    }
  });
});

Deno.test("rabbit import refuses parts that are missing, renamed, or of another model", async () => {
  await inTemporary(async (temporary) => {
    const directory = (name: string) => {
      Deno.mkdirSync(join(temporary, name));
      return join(temporary, name);
    };
    const refuse = async (path: string, message: string) => {
      await refused(message, "import", path, join(temporary, "out"));
    };
    const text = (value: string): Value => ({ type: "string", value });

    const missing = copyParts(directory("missing"));
    Deno.removeSync(join(temporary, "missing", NAMES[2]));
    await refuse(
      missing,
      `${missing}: the first of 3 parts, but "${NAMES[2]}" is not in the directory; download it again`,
    );
    const second = fixturePath(NAMES[1]);
    await refuse(second, `${second}: part 2 of 3 of a split GGUF file; give the first part`);

    const renamed = join(directory("renamed"), "m.gguf");
    Deno.copyFileSync(fixturePath(FIRST), renamed);
    await refuse(
      renamed,
      `${renamed}: the first of 3 parts, whose name must end with -00001-of-00003.gguf, and those of the others ` +
        "likewise",
    );
    const named = join(temporary, "renamed", "m-00001-of-00002.gguf");
    Deno.copyFileSync(MIXED, named);
    await refuse(
      named,
      `${named}: named as part 1 of 2 of a split GGUF file, but it has no key "split.count"; ` +
        "rename it if it is a whole file",
    );
    const swapped = copyParts(directory("swapped"));
    const at = (n: number) => join(temporary, "swapped", NAMES[n]);
    Deno.copyFileSync(fixturePath(NAMES[2]), at(1));
    await refuse(
      swapped,
      `${at(1)}: the file is part 3 of 3 by its metadata, but part 2 of 3 by its name; download it again`,
    );
    // A part of another model of three parts: it has tensors of the first part.
    rewrite(fixturePath(FIRST), at(1), { "split.no": u16(1) });
    await refuse(swapped, `${at(1)}: tensor "token_embd.weight": duplicate tensor, also in "${FIRST}"`);

    const linked = copyParts(directory("linked"));
    Deno.removeSync(join(temporary, "linked", NAMES[1]));
    Deno.symlinkSync(fixturePath(NAMES[1]), join(temporary, "linked", NAMES[1]));
    await refuse(
      linked,
      `${temporary}/linked/${NAMES[1]}: is a link out of the checkpoint's directory, to "${
        Deno.realPathSync(fixturePath(NAMES[1]))
      }", and is not followed; put the file itself here, if it belongs to the checkpoint`,
    );

    const key = (key: string) => `key "split.${key}"`;
    const damaged: [string, Changes[], number, string][] = [
      ["a", [{ "split.count": u16(0) }], 0, `${key("count")}: expected a whole number of at least 1, found u16 0`],
      [
        "b",
        [{ "split.count": text("3") }],
        0,
        `${key("count")}: expected a whole number of at least 1, found string "3"`,
      ],
      ["c", [{ "split.no": undefined }], 0, `${key("no")}: is missing`],
      ["d", [{ "split.no": { type: "i32", value: -1 } }], 0, `${key("no")}: expected a whole number, found i32 -1`],
      ["e", [{}, { "split.count": undefined }], 1, `${key("count")}: is missing`],
      ["f", [{}, {}, { "split.no": text("x") }], 2, `${key("no")}: expected a whole number, found string "x"`],
      [
        "g",
        [{ "split.tensors.count": { type: "i32", value: 13 } }],
        0,
        `${key("tensors.count")}: 13, but the 3 parts have 12 tensors; download them again`,
      ],
      [
        "h",
        [{}, {}, { "split.count": u16(4) }],
        2,
        "the file is part 3 of 4 by its metadata, but part 3 of 3 by its name; download it again",
      ],
    ];
    for (const [name, changes, part, message] of damaged) {
      const path = copyParts(directory(name), changes);
      await refuse(path, `${join(temporary, name, NAMES[part])}: ${message}`);
    }
    const truncated = copyParts(directory("truncated"));
    const third = join(temporary, "truncated", NAMES[2]);
    const { size } = Deno.statSync(third);
    Deno.truncateSync(third, size - 100);
    const { tensors } = readGguf(fixturePath(NAMES[2]));
    const last = tensors.at(-1)!;
    await refuse(
      truncated,
      `${third}: tensor "${last.name}": offset: the data ends at byte ${last.offset + last.bytes}, but the file has ${
        size - 100
      } bytes; the file is truncated`,
    );
    assertEquals(tree(temporary).filter((path) => path.startsWith("out")), []);
  });
});

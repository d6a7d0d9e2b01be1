/**
 * A source that changes while it is read: every reader says so, and none gives a mixture of two files.
 */

import { assert, assertEquals, assertMatch, assertRejects, assertThrows } from "@std/assert";
import { loadModel } from "../../../lib/model/load.ts";
import { QuantizingReader } from "../../../lib/quantize/quantizing_reader.ts";
import { CheckpointError, SystemError } from "../../../lib/errors.ts";
import { exportGguf, planTensors } from "../../../lib/gguf/export.ts";
import { Q4B32 } from "../../../lib/format/blocks.ts";
import { openCheckpoint, TensorReader } from "../../../lib/format/checkpoint.ts";
import { importGguf, planImport } from "../../../lib/gguf/import.ts";
import { withGroup } from "../../../lib/library/group.ts";
import { textNeeds, weighed } from "../../../lib/library/memory_plan.ts";
import { windowsOf } from "../../../lib/measure/perplexity.ts";
import { Reference } from "../../../lib/kernels/reference.ts";
import { planQuantize, quantize } from "../../../lib/quantize/quantize.ts";
import { verify, verifyAgainst } from "../../../lib/quantize/verify.ts";
import { inTemporary, tree } from "../../support/files.ts";
import { MIXED, TINY, WEIGHTS } from "../../support/fixtures.ts";
import { configOf, copyModel, quantizeTo } from "../../support/models.ts";

/** What another process may do to a file that is read; none makes it shorter, which every read finds by itself. */
const CHANGES: Record<string, (path: string) => void> = {
  "a byte is written": (path) => {
    using file = Deno.openSync(path, { read: true, write: true });
    file.seekSync(-1, Deno.SeekMode.End);
    file.writeSync(Uint8Array.of(7));
  },
  "it grows": (path) => Deno.writeFileSync(path, new Uint8Array(64), { append: true }),
  "another takes its place": (path) => {
    Deno.copyFileSync(path, `${path}.new`);
    Deno.renameSync(`${path}.new`, path);
  },
};

type Change = () => void;

/** A reader: it begins to read the file, calls `change` in the middle, and ends. */
type Reader = (directory: string, change: Change) => unknown;

const READERS: Record<string, [file: string, read: Reader]> = {};
for (const threads of [1, 2]) {
  const sourceOf = (directory: string) => openCheckpoint(`${directory}/model`);
  READERS[`quantize, ${threads} threads`] = [`model/${WEIGHTS}`, (directory, progress) => {
    return quantize(planQuantize(sourceOf(directory), Q4B32), `${directory}/out`, { threads, force: false, progress });
  }];
  READERS[`verify, ${threads} threads`] = [`quant/${WEIGHTS}`, (directory, progress) => {
    return verify(openCheckpoint(`${directory}/quant`), { threads, progress });
  }];
  for (const file of ["quant", "model"]) {
    READERS[`verifyAgainst, the ${file}, ${threads} threads`] = [`${file}/${WEIGHTS}`, (directory, progress) => {
      return verifyAgainst(openCheckpoint(`${directory}/quant`), sourceOf(directory), { threads, progress });
    }];
  }
}
READERS["export"] = [`model/${WEIGHTS}`, (directory, progress) => {
  const model = `${directory}/model`;
  const plan = planTensors(openCheckpoint(model), configOf(model), `${model}/config.json`, undefined);
  return exportGguf(plan, `${directory}/out.gguf`, { force: false, progress });
}];
READERS["import"] = ["m.gguf", (directory, progress) => {
  return importGguf(planImport(`${directory}/m.gguf`), `${directory}/out`, { force: false, progress });
}];
READERS["a model that is loaded"] = [`model/${WEIGHTS}`, async (directory, change) => {
  const model = { checkpoint: openCheckpoint(`${directory}/model`), config: configOf(`${directory}/model`) };
  const { read } = TensorReader.prototype;
  TensorReader.prototype.read = function (...args) {
    read.apply(this, args);
    change();
  };
  try {
    await Promise.resolve();
    loadModel(new Reference(), model, 8);
  } finally {
    TensorReader.prototype.read = read;
  }
}];
READERS["a model that is quantized in memory"] = [`model/${WEIGHTS}`, async (directory, change) => {
  using reader = new QuantizingReader(planQuantize(openCheckpoint(`${directory}/model`), Q4B32));
  await Promise.resolve();
  change();
  reader.checkUnchanged();
}];
for (const file of ["model", "quant"]) {
  READERS[`models that are read one layer at a time, the ${file}`] = [
    `${file}/${WEIGHTS}`,
    async (directory, change) => {
      const config = configOf(`${directory}/model`);
      const models = ["model", "quant"].map((name) => {
        const model = weighed({ checkpoint: openCheckpoint(`${directory}/${name}`), config });
        // Too large to fit.
        return {
          ...model,
          tensors: [...model.tensors, { name: "huge", dtype: "F32", shape: [2 ** 40], bytes: 2 ** 42 }],
        };
      });
      const ids = [1, 2, 3, 4];
      const needs = textNeeds(models, { ids, window: 4, windows: windowsOf(4, 4, 4) });
      const watch = { threads: 1, memory: 2 ** 40 };
      await withGroup(models, needs, watch, async (group) => {
        let steps = 0;
        for (const _ of group.compare([{ ids, first: 0 }], () => {})) if (++steps === 1) change();
        await Promise.resolve();
      });
    },
  ];
}

/** A directory with a model, what quantize makes of it, and a GGUF file; all of them old. */
async function prepare(directory: string): Promise<void> {
  copyModel(TINY, `${directory}/model`);
  await quantizeTo(`${directory}/quant`, `${directory}/model`, 4);
  Deno.copyFileSync(MIXED, `${directory}/m.gguf`);
  for (const path of tree(directory).filter((path) => !path.endsWith("/"))) {
    Deno.utimeSync(`${directory}/${path}`, 1e9, 1e9);
  }
}

for (const [reader, [file, read]] of Object.entries(READERS)) {
  Deno.test(`a source that changes meanwhile is an error: ${reader}`, async () => {
    for (const [what, change] of Object.entries(CHANGES)) {
      await inTemporary(async (directory) => {
        await prepare(directory);
        const before = tree(directory);
        let changed = false;
        const error = await assertRejects(
          async () => {
            await read(directory, () => {
              if (!changed) change(`${directory}/${file}`);
              changed = true;
            });
          },
          SystemError,
          undefined,
          what,
        );
        assert(changed, what);
        assertEquals(
          error.message,
          `cannot read ${directory}/${file}: it was changed in the meantime; run the command again when nothing writes to it`,
        );
        assertEquals(tree(directory), before, what);
      });
    }
  });
}

Deno.test("a source that is cut short while its layers are read is an error", () =>
  inTemporary(async (directory) => {
    await prepare(directory);
    const [file, read] = READERS["models that are read one layer at a time, the model"];
    const path = `${directory}/${file}`;
    const cut = () => Deno.truncateSync(path, Deno.statSync(path).size >> 1);
    const error = await assertRejects(async () => await read(directory, cut), CheckpointError);
    assertMatch(
      error.message,
      /: unexpected end of file at byte \d+, expected \d+; did it change while it was being read\?$/,
    );
    assert(error.message.startsWith(path));
  }));

Deno.test("a source that has changed since its header was read is an error, for each that opens it again", () =>
  inTemporary(async (directory) => {
    for (const change of Object.values(CHANGES)) {
      await prepare(directory);
      const model = openCheckpoint(`${directory}/model`);
      const plan = planQuantize(model, Q4B32);
      const gguf = planImport(`${directory}/m.gguf`);
      for (const file of [`model/${WEIGHTS}`, "m.gguf"]) change(`${directory}/${file}`);
      const out = `${directory}/out`;
      for (
        const run of [
          () => quantize(plan, out, { threads: 2, force: false }),
          () => verify(model, { threads: 2 }),
          () => importGguf(gguf, out, { force: false }),
        ]
      ) {
        await assertRejects(async () => await run(), SystemError, "it was changed in the meantime");
      }
      assertThrows(() => new TensorReader(model), SystemError, "it was changed in the meantime");
      assert(!tree(directory).includes("out/"));
      for (const name of ["model", "quant"]) Deno.removeSync(`${directory}/${name}`, { recursive: true });
    }
  }));

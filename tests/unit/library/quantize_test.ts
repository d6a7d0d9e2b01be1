import { assertEquals, assertRejects } from "@std/assert";
import { quantize } from "../../../lib/library/quantize.ts";
import { quantize as byRule } from "../../../lib/quantize/quantize.ts";
import { rederive } from "../../../lib/library/rederive.ts";
import { LimitError } from "../../../lib/errors.ts";
import { inTemporary, sha256, tree } from "../../support/files.ts";
import { TINY } from "../../support/fixtures.ts";

const SIZE = { tokens: 256, window: 64, seed: 3, damping: 0.5, threads: 2 };

Deno.test({
  name: "quantize calibrates where it is asked to, and rederive gives the same blocks",
  sanitizeOps: false,
  sanitizeResources: false,
  fn: () =>
    inTemporary(async (directory) => {
      const out = `${directory}/out`;
      const seen: number[] = [];
      const done = await quantize(TINY, out, {
        bits: 4,
        calibrate: "self",
        ...SIZE,
        progress: (done, total) => seen.push(done / total),
      });
      assertEquals(done.digest, await sha256(`${out}/model.safetensors`));
      assertEquals([done.quantization?.method, done.quantization?.calibration?.damping], ["self-calibrated", 0.5]);
      assertEquals(seen.every((part, n) => part >= (seen[n - 1] ?? 0) && part <= 1 + 1e-9), true);
      assertEquals((await rederive(out, TINY, { threads: 1 })).difference, undefined);
      await byRule(TINY, `${directory}/rule`, { bits: 4, threads: 1 });
      const plain = await quantize(TINY, `${directory}/plain`, { bits: 4, threads: 1 });
      assertEquals(plain.digest, await sha256(`${directory}/rule/model.safetensors`));
    }),
});

Deno.test({
  name: "quantize refuses options that are out of range, ends with its signal, and leaves nothing",
  sanitizeOps: false,
  sanitizeResources: false,
  fn: () =>
    inTemporary(async (directory) => {
      const out = `${directory}/new/out`;
      const of = (options: object) => quantize(TINY, out, { calibrate: "self", ...SIZE, ...options });
      for (
        const bad of [{ window: 1 }, { tokens: 0 }, { seed: -1 }, { seed: 0.5 }, { damping: 0 }, { damping: NaN }]
      ) {
        await assertRejects(() => of(bad), RangeError, Object.keys(bad)[0]);
      }
      await assertRejects(() => of({ tokens: 63 }), LimitError, "63 tokens are less than a window of 64");
      await assertRejects(() => of({ calibrate: [] }), RangeError, "a text to calibrate with is needed");
      await assertRejects(
        () => of({ window: 100_000, tokens: 100_000 }),
        LimitError,
        "is more than the model's context",
      );
      await assertRejects(() => of({ signal: AbortSignal.abort(new Error("enough")) }), Error, "enough");
      const controller = new AbortController();
      let steps = 0;
      const progress = () => ++steps === 60 && controller.abort(new Error("halfway"));
      await assertRejects(() => of({ signal: controller.signal, progress }), Error, "halfway");
      assertEquals(tree(directory), []);
    }),
});

import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { CheckpointError } from "../../../lib/errors.ts";
import { openCheckpoint } from "../../../lib/format/checkpoint.ts";
import { quantizationOf, serializeQuantization } from "../../../lib/format/quantization.ts";
import { DECLARED } from "../../support/blocks.ts";
import { inTemporary, write } from "../../support/files.ts";
import { quantizedFile, safetensors } from "../../support/safetensors.ts";

const SHA = "0123456789abcdef".repeat(4);
const SIGNED = {
  method: "signed",
  version: 1,
  digest: SHA,
  source: [{ file: "model.safetensors", sha256: SHA }],
} as const;
const CALIBRATED = {
  ...SIGNED,
  method: "calibrated",
  calibration: {
    texts: [{ file: "a.txt", sha256: SHA }],
    tokens: 1024,
    window: 512,
    seed: 0,
    damping: 0.3,
    ids: SHA,
  },
  matrices: [{ name: "model.embed_tokens.weight", before: 0.01, after: 0 }],
} as const;

Deno.test("quantizationOf reads what serializeQuantization writes", () =>
  inTemporary((directory) => {
    write(directory, { "model.safetensors": quantizedFile(4, []) });
    assertEquals(quantizationOf(openCheckpoint(directory)), undefined);
    for (const quantization of [SIGNED, CALIBRATED]) {
      write(directory, { "quantization.json": serializeQuantization(quantization) });
      assertEquals(quantizationOf(openCheckpoint(directory)), quantization);
      assertEquals(quantizationOf(openCheckpoint(`${directory}/model.safetensors`)), quantization);
    }
  }));

Deno.test("quantizationOf knows nothing of weights of another name, or of float ones", () =>
  inTemporary((directory) => {
    write(directory, {
      "model.safetensors": safetensors([]),
      "model-q4.safetensors": safetensors([], DECLARED[4]),
      "quantization.json": "no JSON",
    });
    assertEquals(quantizationOf(openCheckpoint(directory)), undefined);
    assertEquals(quantizationOf(openCheckpoint(`${directory}/model-q4.safetensors`)), undefined);
  }));

Deno.test("quantizationOf refuses a file that is not what serializeQuantization writes, naming the field", () =>
  inTemporary((directory) => {
    write(directory, { "model.safetensors": quantizedFile(4, []) });
    const { calibration } = CALIBRATED;
    const cases: [unknown, string][] = [
      [{ ...SIGNED, digest: "0" }, "digest: expected 64 hexadecimal digits"],
      [{ ...SIGNED, digest: SHA.toUpperCase() }, "digest: expected 64 hexadecimal digits"],
      [{ ...SIGNED, method: "best" }, "method: expected signed or calibrated or self-calibrated"],
      [{ ...SIGNED, version: -1 }, "version: expected a whole number of at least 0"],
      [{ ...SIGNED, version: "1" }, "version: expected a whole number of at least 0"],
      [{ ...SIGNED, source: [1] }, "source: expected an array of objects"],
      [{ ...SIGNED, source: undefined }, "source: expected an array of objects"],
      [{ ...SIGNED, source: [{ file: 1 }] }, "source 0 file: expected a text"],
      [{ ...SIGNED, method: "calibrated" }, "calibration: expected an object"],
      [{ ...CALIBRATED, calibration: [] }, "calibration: expected an object"],
      [{ ...CALIBRATED, calibration: { ...calibration, damping: "1" } }, "calibration damping: expected a number"],
      [{ ...CALIBRATED, calibration: { ...calibration, tokens: 1.5 } }, "calibration tokens: expected a whole number"],
      [
        { ...CALIBRATED, calibration: { ...calibration, ids: null } },
        "calibration ids: expected 64 hexadecimal digits",
      ],
      [{ ...CALIBRATED, matrices: {} }, "matrices: expected an array of objects"],
      [
        { ...CALIBRATED, matrices: [{ name: "a", before: 1, after: null }] },
        "matrices 0 after: expected a number of at least 0",
      ],
      [[], "expected"],
      ["", "expected"],
    ];
    for (const [content, message] of cases) {
      write(directory, { "quantization.json": JSON.stringify(content) });
      const error = assertThrows(() => quantizationOf(openCheckpoint(directory)), CheckpointError);
      assertStringIncludes(error.message, `${directory}/quantization.json`);
      assertStringIncludes(error.message, message);
    }
  }));

/**
 * The figures of a report on a float checkpoint and its quantized versions. The page shows exactly these figures, and
 * contains them as JSON, so every value can be represented in JSON.
 *
 * @module
 */

import { compareWith, type Comparison, type Decoder, type Trace } from "../measure/compare.ts";
import type { Config } from "../model/config.ts";
import { tensorsOf } from "../model/tensors.ts";
import { bytesOf, type Checkpoint, MODEL_FILE, nameOf } from "../format/checkpoint.ts";
import { storedBytes } from "../format/foreign.ts";
import { argmax } from "../measure/distribution.ts";
import {
  type Bins,
  type Divergence,
  Histogram,
  margin,
  type PredictionFigures,
  predictionFigures,
} from "../measure/metrics.ts";
import type { MatrixLoss, Method } from "../format/quantization.ts";
import type { WeightErrors } from "../gguf/weight_errors.ts";

/** Everything that a page shows. */
export interface Report {
  /** The program and its version. */
  readonly program: string;
  readonly model: ModelFigures;
  readonly prompt: Tokens;
  /** The greedy answer of the float model. */
  readonly answer: Answer;
  readonly quants: readonly QuantFigures[];
  /** The text that the models predict, if there is one. */
  readonly text?: TextFigures;
  /** The tensors, in the order of the float checkpoint, then those that only a quantized one has. */
  readonly tensors: readonly TensorFigures[];
}

/** Ids, and the text of each if the checkpoint has a tokenizer. */
export interface Tokens {
  readonly ids: readonly number[];
  readonly texts?: readonly string[];
}

/** A greedy answer. */
export interface Answer extends Tokens {
  /** For each token, its logit minus the second largest: the change that would alter the choice. */
  readonly margins: readonly number[];
}

/** The float checkpoint. */
export interface ModelFigures {
  readonly name: string;
  readonly path: string;
  readonly architecture: string;
  /** Elements of all tensors. */
  readonly parameters: number;
  readonly layers: number;
  readonly hidden: number;
  readonly intermediate: number;
  readonly heads: number;
  readonly kv_heads: number;
  readonly vocabulary: number;
  /** The dtypes of its matrices. */
  readonly dtypes: readonly string[];
  /** The size of the files. */
  readonly bytes: number;
  /** 8 * bytes / parameters */
  readonly bits_per_weight: number;
}

/** A text, and how well the float model predicts it. */
export interface TextFigures {
  readonly file: string;
  readonly tokens: number;
  readonly windows: number;
  /** Tokens of a window. */
  readonly window: number;
  /** Tokens whose prediction is scored. */
  readonly scored: number;
  readonly perplexity: Pick<PredictionFigures["perplexity"], "float" | "float_error">;
}

/** A quantized checkpoint compared with the float one; with a text, also how well it predicts the text. */
export interface QuantFigures extends Partial<PredictionFigures> {
  /** The quantiles 0, 1/100 … 1 of the text's Kullback-Leibler divergences. */
  readonly kl_quantiles?: readonly number[];
  readonly name: string;
  readonly path: string;
  readonly format: string;
  readonly bytes: number;
  /** bytes / bytes of the float checkpoint */
  readonly ratio: number;
  readonly bits_per_weight: number;
  /** Tokens that were decoded. */
  readonly steps: number;
  /** Whether the two greedy answers are the same. */
  readonly match: boolean;
  /** Tokens before the first difference. */
  readonly kept: number;
  /** Tokens of the float model's answer that this model also chooses, given the float model's previous tokens. */
  readonly agree: number;
  /** |difference| of all logits after each token of the float model's answer. */
  readonly logits_max: number;
  readonly logits_mean: number;
  /** Logits that were compared. */
  readonly values: number;
  /** The same, after the prompt. */
  readonly prefill_max: number;
  readonly prefill_mean: number;
  /** sqrt(sum (w - v)^2 / sum w^2) over all quantized weights w and their stored values v. */
  readonly rms: number;
  /**
   * The number of tensors that equal the result of quantizing the float checkpoint, of others, and of calibrated ones;
   * absent for a GGUF file, which has blocks by other rules.
   */
  readonly equal?: number;
  readonly different?: number;
  readonly calibrated?: number;
  /** How the blocks were chosen, where that was not by the format's rule. */
  readonly method?: Method;
  /** What the outputs of each layer's matrices lost on the text of the calibration, as means of the parts of each. */
  readonly losses?: readonly { readonly before: number; readonly after: number }[];
  readonly answer: Answer;
  /** The differences of logits_max and logits_mean, with their signs. */
  readonly histogram: Bins;
  /** rms over the matrices of each layer. */
  readonly layers: readonly number[];
}

/** A tensor of the float checkpoint, and its quantized versions. */
export interface TensorFigures {
  readonly name: string;
  /** For the matrices of a layer: its number, and the part: q, k, v, o, gate, up or down. */
  readonly layer?: number;
  readonly part?: string;
  readonly shape: readonly number[];
  /** Absent if only a quantized checkpoint has the tensor. */
  readonly dtype?: string;
  readonly bytes?: number;
  /** For each quantized checkpoint; null if it lacks the tensor. */
  readonly quants: readonly (StoredFigures | null)[];
}

/** A tensor of a quantized checkpoint. */
export interface StoredFigures {
  readonly dtype: string;
  readonly bytes: number;
  /**
   * Whether it equals the result of quantizing the float checkpoint (absent for a tensor of a GGUF file), and the reason if
   * it can't be compared.
   */
  readonly equal?: boolean;
  readonly problem?: string;
  /** The relative RMS error, for tensors whose weights change. */
  readonly rms?: number;
}

/** The matrices of a layer, in the order of a forward pass. */
export const PARTS: readonly string[] = ["q", "k", "v", "o", "gate", "up", "down"];

/** The margin of a greedy choice; 0 if the vocabulary has only one token. */
function marginOf(logits: Float32Array): number {
  return logits.length > 1 ? margin(logits) : 0;
}

/** The results of decoding with a quantized model. */
export interface Measured {
  readonly comparison: Comparison;
  readonly margins: readonly number[];
  readonly agree: number;
  readonly histogram: Histogram;
}

/**
 * Compares a quantized model with the trace of the float model.
 *
 * @param fed called after the prompt and after each token
 */
export function decodeQuantized(model: Decoder, float: Trace, fed?: () => void): Measured {
  const histogram = new Histogram();
  const margins: number[] = [];
  let agree = 0;
  const comparison = compareWith(model, float, {
    followed(step, wanted, logits) {
      margins[step] = marginOf(logits);
      if (argmax(logits) === float.tokens[step]) agree++;
      if (step > 0) logits.forEach((logit, id) => histogram.add(logit - wanted[id]));
      fed?.();
    },
    own(step, logits) {
      margins[step] = marginOf(logits);
      fed?.();
    },
  });
  return { comparison, margins: margins.slice(0, float.tokens.length), agree, histogram };
}

/** The input of {@link figures}. */
export interface Findings {
  readonly program: string;
  readonly float: { readonly checkpoint: Checkpoint; readonly config: Config; readonly trace: Trace };
  readonly quants: readonly {
    readonly checkpoint: Checkpoint;
    readonly measured: Measured;
    readonly against: WeightErrors;
    /** The divergences on the text, if there is one. */
    readonly divergence?: Divergence;
  }[];
  readonly text?: Pick<TextFigures, "file" | "tokens" | "windows" | "window">;
  /** The text of one token, if there is a tokenizer. */
  readonly textOf?: (id: number) => string;
}

/** The figures of a report. */
export function figures({ program, float, quants, text, textOf }: Findings): Report {
  const { checkpoint, config, trace } = float;
  const parameters = checkpoint.tensors.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  const tokens = (ids: readonly number[]): Tokens => textOf ? { ids, texts: ids.map(textOf) } : { ids };
  const { bytes, bits_per_weight } = size(checkpoint, parameters);
  const places = placesOf(config);
  const [name, ...names] = labelsOf([checkpoint, ...quants.map(({ checkpoint }) => checkpoint)]);
  const width = Math.max(0, ...quants.map(({ measured }) => measured.histogram.bins().width));
  return {
    program,
    model: {
      name,
      path: nameOf(checkpoint),
      architecture: config.architecture,
      parameters,
      layers: config.layers,
      hidden: config.hidden,
      intermediate: config.intermediate,
      heads: config.heads,
      kv_heads: config.kvHeads,
      vocabulary: config.vocabulary,
      dtypes: [
        ...new Set(
          checkpoint.tensors.filter(({ shape }) => shape.length === 2).map(({ dtype, stored }) => {
            return stored?.type ?? dtype;
          }),
        ),
      ],
      bytes,
      bits_per_weight,
    },
    prompt: tokens(trace.prompt),
    answer: {
      ...tokens(trace.tokens),
      margins: trace.tokens.map((_, n) => marginOf(n === 0 ? trace.prefill : trace.logits[n - 1])),
    },
    quants: quants.map(({ checkpoint, measured, against, divergence }, n): QuantFigures => {
      const { comparison, margins, agree, histogram } = measured;
      const differs = comparison.tokens.findIndex((token, n) => token !== trace.tokens[n]);
      const own = size(checkpoint, parameters);
      const sound = against.tensors.filter(({ equal }) => equal);
      const calibrated = sound.filter(({ calibrated }) => calibrated).length;
      const { quantization } = against;
      return {
        name: names[n],
        path: nameOf(checkpoint),
        format: checkpoint.foreign?.types.join(", ") ?? checkpoint.width!.name,
        bytes: own.bytes,
        ratio: own.bytes / bytes,
        bits_per_weight: own.bits_per_weight,
        steps: trace.tokens.length,
        match: comparison.match,
        kept: differs < 0 ? trace.tokens.length : differs,
        agree,
        logits_max: comparison.steps.max,
        logits_mean: comparison.steps.mean,
        values: comparison.steps.values,
        prefill_max: comparison.prefill.max,
        prefill_mean: comparison.prefill.mean,
        rms: against.rms,
        ...!checkpoint.foreign && {
          equal: sound.length - calibrated,
          different: against.tensors.length - sound.length,
        },
        ...quantization && { method: quantization.method },
        ...quantization?.matrices && {
          calibrated,
          losses: layerLosses(quantization.matrices, places, config.layers),
        },
        answer: { ...tokens(comparison.tokens), margins },
        histogram: histogram.bins(width),
        layers: layerErrors(against, places, config.layers),
        ...divergence && {
          ...predictionFigures(divergence),
          kl_quantiles: Array.from({ length: 101 }, (_, n) => divergence.klQuantile(n / 100)),
        },
      };
    }),
    text: text && textFigures(text, quants[0].divergence!),
    tensors: tensorFigures(checkpoint, quants, places),
  };
}

function textFigures(text: NonNullable<Findings["text"]>, measured: Divergence): TextFigures {
  const { float, float_error } = predictionFigures(measured).perplexity;
  return { ...text, scored: measured.scored, perplexity: { float, float_error } };
}

function size(checkpoint: Checkpoint, parameters: number): { bytes: number; bits_per_weight: number } {
  const bytes = bytesOf(checkpoint);
  return { bytes, bits_per_weight: parameters === 0 ? 0 : 8 * bytes / parameters };
}

/**
 * The labels of checkpoints: the directory, or the file if it has a name of its own; the path if labels would be the
 * same.
 */
function labelsOf(checkpoints: readonly Checkpoint[]): string[] {
  const labels = checkpoints.map((checkpoint) => {
    const words = nameOf(checkpoint).split("/").filter((word) => word !== "" && word !== ".");
    if (words.length > 1 && words.at(-1) === MODEL_FILE) words.pop();
    return words.at(-1) ?? checkpoint.path;
  });
  return labels.map((label, n) => labels.indexOf(label) === labels.lastIndexOf(label) ? label : nameOf(checkpoints[n]));
}

/** The layer and the part of each matrix in a layer, by name. */
type Places = ReadonlyMap<string, { readonly layer: number; readonly part: string }>;

function placesOf(config: Config): Places {
  const matrices = [...tensorsOf(config)].filter(({ part }) => PARTS.includes(part));
  return new Map(matrices.map(({ name, layer, part }) => [name, { layer: layer!, part }]));
}

function layerErrors({ tensors }: WeightErrors, places: Places, layers: number): number[] {
  const sums = Array.from({ length: layers }, () => ({ errors: 0, squares: 0 }));
  for (const { name, rms, squares } of tensors) {
    const layer = places.get(name)?.layer;
    if (layer === undefined || rms === undefined) continue;
    sums[layer].errors += rms ** 2 * squares!;
    sums[layer].squares += squares!;
  }
  return sums.map(({ errors, squares }) => squares === 0 ? 0 : Math.sqrt(errors / squares));
}

function layerLosses(matrices: readonly MatrixLoss[], places: Places, layers: number): QuantFigures["losses"] {
  const own = Map.groupBy(matrices, ({ name }) => places.get(name)?.layer);
  const mean = (losses: readonly number[]) => losses.reduce((sum, loss) => sum + loss, 0) / Math.max(1, losses.length);
  return Array.from({ length: layers }, (_, layer) => {
    const some = own.get(layer) ?? [];
    return { before: mean(some.map(({ before }) => before)), after: mean(some.map(({ after }) => after)) };
  });
}

function tensorFigures(float: Checkpoint, quants: Findings["quants"], places: Places): TensorFigures[] {
  const maps = quants.map(({ checkpoint, against }) => ({
    stored: new Map(checkpoint.tensors.map((tensor) => [tensor.name, tensor])),
    reports: new Map(against.tensors.map((report) => [report.name, report])),
  }));
  const sources = new Map(float.tensors.map((tensor) => [tensor.name, tensor]));
  const names = new Set([...sources.keys(), ...maps.flatMap(({ stored }) => [...stored.keys()])]);
  return [...names].map((name): TensorFigures => {
    const source = sources.get(name);
    const stored = maps.map(({ stored, reports }): StoredFigures | null => {
      const tensor = stored.get(name);
      if (tensor === undefined) return null;
      const { equal, problem, rms } = reports.get(name)!;
      return { dtype: tensor.stored?.type ?? tensor.dtype, bytes: storedBytes(tensor), equal, problem, rms };
    });
    const { shape } = source ?? maps.map(({ stored }) => stored.get(name)).find((tensor) => tensor !== undefined)!;
    const own = source && { dtype: source.stored?.type ?? source.dtype, bytes: storedBytes(source) };
    return { name, ...places.get(name), shape, ...own, quants: stored };
  });
}

/**
 * What the steps of a calibration cost, to tell how much of it is done.
 *
 * @module
 */

import type { Config } from "../model/config.ts";
import { type Part, tensorsOf } from "../model/tensors.ts";

/** A step of a calibration. */
export type Step =
  /** Tokens of the float model's own. */
  | { readonly kind: "sample"; readonly tokens: number }
  /** Matrices of a layer in a pass of the float model alone. */
  | { readonly kind: "float"; readonly parts: readonly Part[] }
  /** The same in both streams. */
  | { readonly kind: "streams"; readonly parts: readonly Part[] }
  /** The sums of a group of matrices. */
  | { readonly kind: "gather"; readonly columns: number; readonly residual: number }
  /** The blocks of a matrix. */
  | { readonly kind: "solve"; readonly rows: number; readonly columns: number };

/** Multiplications of the solver for each weight and column, in those of a product. */
const SOLVER = 6;

/** Adds up the costs of steps, in multiplications. */
export class Costs {
  /** The cost of all. */
  readonly total: number;
  readonly #sizes: ReadonlyMap<Part, readonly [rows: number, columns: number]>;
  readonly #weights: number;
  #done = 0;

  /**
   * @param tokens tokens of all windows
   * @param headTokens tokens that pass through the float model first
   * @param sampled tokens that are sampled before
   */
  constructor(config: Config, readonly tokens: number, readonly headTokens: number, sampled: number) {
    const one = { ...config, layers: 1 };
    this.#sizes = new Map([...tensorsOf(one)].map(({ part, shape: [rows, columns] }) => [part, [rows, columns]]));
    const solve = (part: Part): Step => {
      const [rows, columns] = this.#sizes.get(part)!;
      return { kind: "solve", rows, columns };
    };
    const { hidden, intermediate, heads, headDim } = config;
    const layer: Step[] = [
      { kind: "float", parts: LAYER },
      { kind: "streams", parts: LAYER },
      { kind: "gather", columns: hidden, residual: 0 },
      { kind: "gather", columns: heads * headDim, residual: hidden },
      { kind: "gather", columns: hidden, residual: 0 },
      { kind: "gather", columns: intermediate, residual: hidden },
      ...LAYER.map(solve),
    ];
    const ends: Step[] = [solve("embedding")];
    if (!config.tied) ends.push({ kind: "gather", columns: hidden, residual: 0 }, solve("head"));
    const sum = (steps: readonly Step[]) => steps.reduce((sum, step) => sum + this.#cost(step), 0);
    this.#weights = config.layers * this.#weightsOf(LAYER) + this.#weightsOf(["embedding"]);
    this.total = config.layers * sum(layer) + sum(ends) + this.#cost({ kind: "sample", tokens: sampled });
  }

  /** Adds a part of a step. @returns the cost of all so far */
  add(step: Step, part = 1): number {
    return this.#done += part * this.#cost(step);
  }

  #weightsOf(parts: readonly Part[]): number {
    return parts.map((part) => this.#sizes.get(part)!).reduce((sum, [rows, columns]) => sum + rows * columns, 0);
  }

  #cost(step: Step): number {
    const { tokens, headTokens } = this;
    switch (step.kind) {
      case "sample":
        return step.tokens * this.#weights;
      case "float":
        return headTokens * this.#weightsOf(step.parts);
      case "streams":
        return 2 * tokens * this.#weightsOf(step.parts);
      case "gather":
        return tokens * step.columns * (1.5 * step.columns + step.residual);
      case "solve":
        return SOLVER * step.rows * step.columns ** 2;
    }
  }
}

const LAYER: readonly Part[] = ["q", "k", "v", "o", "gate", "up", "down"];

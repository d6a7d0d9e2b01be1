/**
 * How far one model is from another: the same tokens, the logits of both, and the prediction of a text. A model is
 * whatever gives logits for tokens, as {@link LanguageModel} of `@rabbit/rabbit` does.
 *
 * ```ts
 * import { Distribution } from "@rabbit/rabbit/measure";
 *
 * const [p, q] = [new Distribution(3), new Distribution(3)];
 * p.set(Float32Array.of(1, 2, 3));
 * q.set(Float32Array.of(1, 2, 4));
 * console.log(p.divergence(q)); // in nats
 * ```
 *
 * @module
 */

export { compareWith, trace } from "./compare.ts";
export type { Comparison, Decoder, Observer, Trace } from "./compare.ts";
export { argmax, Difference, Distribution, Divergence, margin, mean, quantile } from "./metrics.ts";
export type { Estimate } from "./metrics.ts";
export { measureText, WINDOW, windowsOf } from "./perplexity.ts";
export type { TextModel, TextOptions, Window } from "./perplexity.ts";
export type { Progress, Watch } from "../pace.ts";

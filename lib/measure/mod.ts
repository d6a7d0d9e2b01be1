/**
 * Measures the difference of two models: their answers, their logits for the same tokens, and their predictions of a
 * text. A model is anything that computes logits for tokens, such as {@link LanguageModel} of `@rabbit/rabbit`.
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
export { argmax, Distribution } from "./distribution.ts";
export type { Pair } from "./distribution.ts";
export { Difference, Divergence, margin, mean, quantile } from "./metrics.ts";
export type { Estimate, Observations } from "./metrics.ts";
export { CONFIDENCE, judge, verdictOf } from "./gates.ts";
export type { Gate, Limits, Verdict } from "./gates.ts";
export { groupOf } from "./group.ts";
export type { ModelGroup, Sequence, TextModel, Visit } from "./group.ts";
export { measureText, WINDOW, windowsOf } from "./perplexity.ts";
export type { Window } from "./perplexity.ts";
export type { Counted, Progress, Watch } from "../pace.ts";

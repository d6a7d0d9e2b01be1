/**
 * Quantizes a checkpoint to eight bits, checks it against its source, and says how large it is.
 *
 *     deno run --allow-all examples/quantize.ts FLOAT QUANT
 */

import { quantize, verifyAgainst } from "@rabbit/rabbit";

const [float, quant] = Deno.args;

const { bytes, sourceBytes, digest } = await quantize(float, quant, {
  bits: 8,
  progress: (done, total) => console.error(`${Math.round(done / total * 100)}%`),
  signal: AbortSignal.timeout(3_600_000),
});
console.log(`${bytes} bytes, ${(bytes / sourceBytes).toFixed(3)} of the source, SHA-256 ${digest}`);

const { tensors, rms } = await verifyAgainst(quant, float);
console.log(`${tensors.filter(({ equal }) => equal).length} of ${tensors.length} tensors are as they should be`);
console.log(`the weights are off by ${(rms * 100).toFixed(2)}%`);

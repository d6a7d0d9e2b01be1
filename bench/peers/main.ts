/**
 * Measures rabbit and llama.cpp in turn, in one run, and prints the ratios of their rates:
 *
 *     deno run --allow-all bench/peers/main.ts quantize WORK FLOAT [--rounds 5] [--out DIR]
 *     deno run --allow-all bench/peers/main.ts decode|prefill|context|start WORK PREFIX --gguf small|large [--rounds 5]
 *         [--only NAME]
 *     deno run --allow-all bench/peers/main.ts text WORK PREFIX TEXT [--gguf small|large] [--rounds 3]
 *     deno run --allow-all bench/peers/main.ts quality WORK FLOAT TEXT… --calibrate FILE --out DIR [--window 512]
 *
 * WORK is what build.sh made. quantize: FLOAT is a checkpoint of the shape of WORK/models/large-bf16.gguf (bench/big_model.ts),
 * DIR a directory for the outputs (a memory file system measures the programs, not the disk). The others: PREFIX,
 * PREFIX-q4 and PREFIX-q8 are checkpoints of the shape of the GGUF models; context decodes after prompts of several
 * lengths, start is the time from the start of the process to its end with one token. text measures how two checkpoints
 * predict the file TEXT: compare PREFIX PREFIX-q8 --text TEXT against two runs of llama-perplexity, which keeps the logits
 * of the first one in a file, for the divergence of the second one. quality has no times: it quantizes the checkpoint FLOAT
 * with both programs, with and without the text FILE in view, and has llama-perplexity measure all GGUF files on each TEXT.
 * They stay in DIR, and are not made again if they are there. --only takes the rows whose name has NAME in it.
 * RABBIT_BIN measures the executable.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { DEFAULT_WIDTH, WIDTHS } from "../../lib/format/blocks.ts";
import { parseGguf } from "../../lib/gguf/container.ts";
import { WINDOW } from "../../lib/measure/perplexity.ts";
import { engineFlags } from "../../lib/kernels/engine_flags.ts";

const { _: [mode, work, model, ...texts], rounds, out, gguf, only, calibrate, window } = parseArgs(Deno.args, {
  string: ["rounds", "out", "gguf", "only", "calibrate", "window", "_"],
  default: { rounds: "5", out: "/tmp", gguf: "small", only: "", window: `${WINDOW}` },
});
const [text] = texts;
const binary = Deno.env.get("RABBIT_BIN");
const main = `${import.meta.dirname}/../../main.ts`;
const rabbit = binary ? [binary] : [Deno.execPath(), "run", "--allow-all", main];

/** The widths that llama.cpp has too, narrowest first. */
const PEERED = WIDTHS.toSorted((a, b) => a.bits - b.bits).flatMap((width) => {
  const { ggml } = width;
  return ggml === undefined ? [] : [{ ...width, ggml }];
});

/** Runs a command to its end. */
function run([program, ...args]: string[]): { seconds: number; output: string } {
  const start = performance.now();
  const { code, stdout, stderr } = new Deno.Command(program, { args, env: { DENO_V8_FLAGS: engineFlags().join(",") } })
    .outputSync();
  const seconds = (performance.now() - start) / 1000;
  const output = new TextDecoder().decode(stdout);
  if (code !== 0) throw new Error(`${program} ${args.join(" ")}: exit ${code}\n${new TextDecoder().decode(stderr)}`);
  return { seconds, output };
}

function summary(values: number[]): string {
  const sorted = values.toSorted((a, b) => a - b);
  const [low, high] = [sorted[0], sorted.at(-1)!];
  const middle = (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
  return `${middle.toFixed(2)} (${low.toFixed(2)}–${high.toFixed(2)})`;
}

/** Takes both rates in turn, and prints a row with the ratio of each pair. */
function pair(name: string, own: () => number, peer: () => number): void {
  if (!name.includes(only)) return;
  const pairs = Array.from({ length: Number(rounds) }, () => [own(), peer()]);
  const columns = [pairs.map(([a]) => a), pairs.map(([, b]) => b), pairs.map(([a, b]) => a / b)].map(summary);
  console.log(`| ${name} | ${columns.join(" | ")} |`);
}

function quantize(): void {
  const bytes = Deno.statSync(`${model}/model.safetensors`).size / 1e9;
  const clear = () => {
    for (const name of ["rabbit-out", "peer.gguf"]) {
      try {
        Deno.removeSync(`${out}/${name}`, { recursive: true });
      } catch (error) {
        if (!(error instanceof Deno.errors.NotFound)) throw error;
      }
    }
  };
  console.log(`| source GB/s, median (min–max) of ${rounds} | rabbit | llama-quantize | ratio |\n|---|---|---|---|`);
  for (const { bits, ggml } of PEERED) {
    for (const threads of ["1", "2"]) {
      pair(`${bits} bits, ${threads} threads`, () => {
        clear();
        const args = [
          "quantize",
          "--in",
          String(model),
          "--out",
          `${out}/rabbit-out`,
          "--bits",
          String(bits),
          "--threads",
          threads,
        ];
        return bytes / run([...rabbit, ...args]).seconds;
      }, () => {
        clear();
        const type = ggml.toLowerCase();
        const types = ["--pure", "--token-embedding-type", type, "--output-tensor-type", type];
        const files = [`${work}/models/large-bf16.gguf`, `${out}/peer.gguf`, type.toUpperCase(), threads];
        return bytes / run([`${work}/bin/llama-quantize`, ...types, ...files]).seconds;
      });
    }
  }
  clear();
}

/** A prompt of n ids of common words. */
function prompt(n: number): string {
  return Array.from({ length: n }, (_, i) => 300 + (i * 37) % 2000).join(" ");
}

/** Suffix of the checkpoint, type of the GGUF file, activations: the default ones, and exact ones for the default width. */
const CASES = [
  ...PEERED.flatMap(({ name, bits, ggml, activations }) => {
    const all = name === DEFAULT_WIDTH.name ? [activations, "f32"] : [activations];
    return all.map((each) => [`-q${bits}`, ggml.toLowerCase(), each]);
  }),
  ["", "bf16", "f32"],
];

/** What `rabbit infer` says of a run that stops only after `steps` tokens. */
function infer(suffix: string, prompted: number, steps: number, threads: string, activations: string) {
  const tokens = ["--ids", prompt(prompted), "--steps", String(steps), "--ignore-eos"];
  const how = ["--threads", threads, "--activations", activations, "--json"];
  return JSON.parse(run([...rabbit, "infer", "--model", `${model}${suffix}`, ...tokens, ...how]).output);
}

/** Tokens a second of llama-bench. */
function llamaBench(type: string, threads: string, ...args: string[]): number {
  const how = ["-m", `${work}/models/${gguf}-${type}.gguf`, "-t", threads, "-r", "1", "-o", "json"];
  return JSON.parse(run([`${work}/bin/llama-bench`, ...how, ...args]).output)[0].avg_ts;
}

function heading(what: string): void {
  console.log(`\n| ${what}, median (min–max) of ${rounds} | rabbit | llama.cpp | ratio |\n|---|---|---|---|`);
}

function eachCase(measure: (name: string, threads: string, suffix: string, type: string, activations: string) => void) {
  for (const [suffix, type, activations] of CASES) {
    for (const threads of ["1", "2"]) {
      measure(`${type} ${activations}, ${threads} threads`, threads, suffix, type, activations);
    }
  }
}

function decode(): void {
  heading("decode, tokens/s");
  eachCase((name, threads, suffix, type, activations) => {
    pair(
      name,
      () => infer(suffix, 1, 129, threads, activations).decode.tokens_per_s,
      () => llamaBench(type, threads, "-p", "0", "-n", "128"),
    );
  });
}

function prefill(): void {
  const length = gguf === "large" ? 128 : 512;
  heading(`prefill of ${length}, tokens/s`);
  eachCase((name, threads, suffix, type, activations) => {
    pair(
      name,
      () => infer(suffix, length, 1, threads, activations).prefill.tokens_per_s,
      () => llamaBench(type, threads, "-p", String(length), "-n", "0"),
    );
  });
}

function context(): void {
  for (const length of [1, 512, 2048]) {
    heading(`decode after ${length}, tokens/s`);
    eachCase((name, threads, suffix, type, activations) => {
      pair(
        name,
        () => infer(suffix, length, 33, threads, activations).decode.tokens_per_s,
        () => llamaBench(type, threads, "-p", "0", "-n", "32", "-d", String(length)),
      );
    });
  }
}

/** Rates, as everywhere: processes a second. */
function start(): void {
  heading("starts to first token a second");
  eachCase((name, threads, suffix, type, activations) => {
    const file = `${work}/models/${gguf}-${type}.gguf`;
    const args = ["-p", "The capital of France is", "-n", "1", "-t", threads, "-no-cnv"];
    const own = ["infer", "--model", `${model}${suffix}`, "--steps", "1", "--threads", threads];
    for (const [more, flags] of [["", []], [" (-fit off)", ["-fit", "off"]]] as const) {
      pair(
        name + more,
        () => 1 / run([...rabbit, ...own, "--ids", "504 3575 282 4649 314", "--activations", activations]).seconds,
        () => 1 / run([`${work}/bin/llama-completion`, "-m", file, ...args, ...flags]).seconds,
      );
    }
  });
}

/**
 * Tokens of the text a second, through both models. llama-perplexity leaves out what does not fill a window, and computes
 * the logits of the second half of each window only.
 */
function predict(): void {
  heading("prediction of a text by BF16 and Q8B32, tokens/s");
  const directory = Deno.makeTempDirSync();
  try {
    for (const threads of ["1", "2"]) {
      const file = ["--text", String(text), "--threads", threads, "--json"];
      let tokens = 0;
      pair(`${threads} threads`, () => {
        const { seconds, output } = run([...rabbit, "compare", String(model), `${model}-q8`, ...file]);
        tokens = JSON.parse(output).text.tokens;
        return tokens / seconds;
      }, () => {
        const seconds = ["bf16", "q8_0"].map((type) => {
          const how = [
            "-m",
            `${work}/models/${gguf}-${type}.gguf`,
            "-f",
            String(text),
            "-t",
            threads,
            "-c",
            `${WINDOW}`,
          ];
          const logits = ["--kl-divergence-base", `${directory}/logits`, ...type === "bf16" ? [] : ["--kl-divergence"]];
          return run([`${work}/bin/llama-perplexity`, ...how, ...logits]).seconds;
        });
        return (tokens - tokens % WINDOW) / (seconds[0] + seconds[1]);
      });
    }
  } finally {
    Deno.removeSync(directory, { recursive: true });
  }
}

/** The bytes of a GGUF file, and the bits that its tensors take for each of their values. */
function sizes(path: string): { bytes: number; bits: number } {
  using file = Deno.openSync(path);
  const bytes = file.statSync().size;
  const read = (position: number, into: Uint8Array) => {
    file.seekSync(position, Deno.SeekMode.Start);
    for (let at = 0; at < into.length;) at += file.readSync(into.subarray(at)) ?? into.length;
  };
  const { tensors } = parseGguf({ path, bytes, read });
  const sum = (values: number[]) => values.reduce((a, b) => a + b);
  const values = sum(tensors.map(({ shape }) => shape.reduce((a, b) => a * b)));
  return { bytes, bits: 8 * sum(tensors.map((tensor) => tensor.bytes)) / values };
}

/**
 * The ratio of perplexities, the mean divergence and the rate of equal top tokens, with their errors, that llama-perplexity
 * prints. It sometimes ends before the last lines of its log are written, and is asked again.
 */
function statistics(command: string[]): number[][] {
  for (let attempt = 0; attempt < 5; attempt++) {
    const lines = run(command).output.split("\n");
    const found = ["Mean PPL(Q)/PPL(base)", "Mean    KLD:", "Same top p:"].map((label) => {
      return lines.find((line) => line.startsWith(label))?.split(":")[1].split("±").map((part) => parseFloat(part)) ??
        [];
    });
    if (found.every((values) => values.length > 1)) return found;
  }
  throw new Error(`${command.join(" ")} printed no statistics`);
}

/** What four and eight bits of both programs cost on texts, in llama.cpp. */
function quality(): void {
  if (calibrate === undefined) throw new Error("quality needs --calibrate FILE");
  Deno.mkdirSync(out, { recursive: true });
  const at = (name: string) => `${out}/${name}`;
  const made = (name: string, make: (path: string) => string[]) => {
    try {
      Deno.statSync(at(name));
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
      run(make(at(name)));
    }
    return at(name);
  };

  const float = made("bf16.gguf", (path) => [...rabbit, "export", String(model), path]);
  const imatrix = made("imatrix.gguf", (path) => {
    return [`${work}/bin/llama-imatrix`, "-m", float, "-f", calibrate, "-c", window, "-o", path];
  });
  // --pure alone would leave more bits to the embedding. Q4_K_S and Q4_K_M are mixtures, and stay so.
  const peer = (type: string, name: string, pure: boolean, data: boolean) => () =>
    made(name, (path) => {
      const types = pure ? ["--pure", "--token-embedding-type", type, "--output-tensor-type", type] : [];
      return [`${work}/bin/llama-quantize`, ...types, ...data ? ["--imatrix", imatrix] : [], float, path, type];
    });
  const own = (name: string, ...how: string[]) => () => {
    const checkpoint = made(name, (path) => [...rabbit, "quantize", String(model), path, "--bits", "4", ...how]);
    return made(`${name}.gguf`, (path) => [...rabbit, "export", checkpoint, path]);
  };
  const rows: [string, () => string][] = [
    ["rabbit, absmax, as Q4_0", own("absmax")],
    ["rabbit, signed, as Q4_0", own("signed", "--rule", "signed")],
    ["rabbit, calibrated, as Q4_0", own("calibrated", "--calibrate", calibrate, "--window", window)],
    ["Q4_0", peer("Q4_0", "q4_0.gguf", true, false)],
    ["Q4_0, imatrix", peer("Q4_0", "q4_0-imatrix.gguf", true, true)],
    ["IQ4_NL, imatrix", peer("IQ4_NL", "iq4_nl-imatrix.gguf", true, true)],
    ["Q4_K_S, imatrix", peer("Q4_K_S", "q4_k_s-imatrix.gguf", false, true)],
    ["Q4_K_M, imatrix", peer("Q4_K_M", "q4_k_m-imatrix.gguf", false, true)],
    ["Q8_0", peer("Q8_0", "q8_0.gguf", true, false)],
  ];

  const logits = at("logits");
  for (const text of texts) {
    const perplexity = (path: string) => {
      const how = ["-m", path, "-f", String(text), "-c", window, "--kl-divergence-base", logits];
      return [`${work}/bin/llama-perplexity`, ...how];
    };
    run(perplexity(float));
    console.log(
      `\n| ${text} | bytes | bits a weight | perplexity / BF16 | KL | same top token |\n|---|---|---|---|---|---|`,
    );
    for (const [name, make] of rows) {
      if (!name.includes(only)) continue;
      const path = make();
      const [[ratio, spread], [divergence, error], [same]] = statistics([...perplexity(path), "--kl-divergence"]);
      const { bytes, bits } = sizes(path);
      const cells = [
        bytes.toLocaleString("en"),
        bits.toFixed(2),
        `${ratio.toFixed(3)} ± ${spread.toFixed(3)}`,
        `${divergence.toFixed(4)} ± ${error.toFixed(4)}`,
        `${same.toFixed(1)} %`,
      ];
      console.log(`| ${name} | ${cells.join(" | ")} |`);
    }
  }
  Deno.removeSync(logits);
}

const modes: Record<string, () => void> = { quantize, decode, prefill, context, start, text: predict, quality };
const measure = modes[String(mode)];
if (measure === undefined) throw new Error(`one of ${Object.keys(modes).join(", ")}, not ${mode}`);
console.log(`${/^model name\s*: (.*)$/m.exec(Deno.readTextFileSync("/proc/cpuinfo"))?.[1]}\n`);
measure();

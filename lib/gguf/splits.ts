/**
 * The pre-tokenizers of byte-level BPE: GGUF names them (`tokenizer.ggml.pre`), tokenizer.json describes them in full.
 *
 * @module
 */

/** A pre-tokenizer: llama.cpp's name, and the equivalent parts of tokenizer.json. */
export interface Split {
  readonly name: string;
  /** Other names of the same pre-tokenizer. */
  readonly aliases: readonly string[];
  /** How tokenizer.json splits before bytes are mapped: into single digits, by an expression, or as GPT-2 does. */
  readonly digits?: boolean;
  readonly regex?: string;
  /** A word in the vocabulary is encoded as its token, without merges. */
  readonly ignoreMerges: boolean;
  /** llama.cpp adds the BOS token by default. */
  readonly addBos?: boolean;
  readonly nfc?: boolean;
}

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const SPACES = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const CASED = "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]";
const LETTERS = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";

/** Taken from llama-vocab.cpp, which has the expressions and, for most, the text of the tokenizer.json. */
export const SPLITS: readonly Split[] = [
  { name: "gpt-2", aliases: ["phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling"], ignoreMerges: false },
  {
    name: "smollm",
    aliases: ["starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
    digits: true,
    ignoreMerges: false,
  },
  {
    name: "llama-bpe",
    aliases: ["llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
    regex: `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`,
    ignoreMerges: true,
    addBos: true,
  },
  {
    name: "smaug-bpe",
    aliases: ["dbrx"],
    regex: `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`,
    ignoreMerges: false,
  },
  {
    name: "qwen2",
    aliases: ["deepseek-r1-qwen", "megrez", "kormo", "f2llmv2"],
    regex: `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`,
    ignoreMerges: false,
    nfc: true,
  },
  {
    name: "tekken",
    aliases: [],
    regex: `${CASED}*${LETTERS}+|${CASED}+${LETTERS}*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`,
    ignoreMerges: true,
  },
  {
    name: "gpt-4o",
    aliases: ["llama4", "kanana2"],
    regex: `${CASED}*${LETTERS}+${CONTRACTIONS}?|${CASED}+${LETTERS}*${CONTRACTIONS}?|` +
      `\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`,
    ignoreMerges: false,
  },
];

/** The pre-tokenizer with this name or alias. */
export function splitNamed(name: string): Split | undefined {
  return SPLITS.find((split) => split.name === name || split.aliases.includes(name));
}

/** The equivalent parts of tokenizer.json: the model is without its vocabulary. */
export function tokenizerJson({ digits, regex, ignoreMerges, nfc }: Split) {
  const bytes = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: regex === undefined };
  const first = digits
    ? { type: "Digits", individual_digits: true }
    : { type: "Split", pattern: { Regex: regex }, behavior: "Isolated", invert: false };
  return {
    normalizer: nfc ? { type: "NFC" } : null,
    pre_tokenizer: digits || regex !== undefined ? { type: "Sequence", pretokenizers: [first, bytes] } : bytes,
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: ignoreMerges,
    },
  };
}

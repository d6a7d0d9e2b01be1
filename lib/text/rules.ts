/**
 * tokenizer.json as @huggingface/tokenizers (JavaScript) must read it to give the ids of the `tokenizers` library of
 * Python and Rust, which models are trained with. Where the two differ, the rule is written in terms that both read
 * alike; what can't be is refused by name:
 *
 * | rule | in JavaScript | in Rust | becomes |
 * | ---- | ------------- | ------- | ------- |
 * | ByteLevel with use_regex | `\s` has U+FEFF and lacks U+0085 | White_Space | Split with the same pattern, whose `\s` is White_Space |
 * | Digits | `\d` is 0-9 | general categories Nd, Nl, No | Split with `\p{N}` |
 * | Metaspace | does not split at the replacement | splits before each | a Split after it |
 * | Split, Isolated and inverted | drops what is between the matches | keeps it | not inverted |
 *
 * Found by comparing both over all of Unicode; fixtures/tokenizers holds what the Rust library gives. What is left: NFC
 * orders combining marks by the Unicode of its library, and those of Unicode 10 and later are unknown to the Rust one
 * (three of 224,617 strings that have every code point).
 *
 * @module
 */

/** A part of tokenizer.json. */
export interface Part {
  readonly type?: string;
  readonly [field: string]: unknown;
}

/** The parts of tokenizer.json that are read. */
export interface TokenizerFile {
  readonly added_tokens?: readonly AddedToken[];
  readonly normalizer?: Part | null;
  readonly pre_tokenizer?: Part | null;
  readonly post_processor?: Part | null;
  readonly decoder?: Part | null;
  readonly model: Part;
  readonly [field: string]: unknown;
}

/** A token that is found in the text before anything else. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly single_word?: boolean;
  readonly [field: string]: unknown;
}

/** A rule that would not give the ids that the model was trained with. */
export class UnknownRule extends Error {
  override name = "UnknownRule";

  constructor(readonly field: string, problem: string) {
    super(problem);
  }
}

/** GPT-2's pattern, as ByteLevel has it. */
const GPT2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/** Numbers of Unicode 17, which Rust's Digits knows; the others are in \p{N} of every version of Deno that runs this. */
const NUMERIC = String.raw`[\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}]`;

/** Normalizers that both libraries have alike. */
const NORMALIZERS = ["NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace"];

/** The same tokenizer, for the library to encode with. @throws {UnknownRule} it would give other ids */
export function exactRules(file: TokenizerFile): TokenizerFile {
  checkModel(file.model);
  const word = file.added_tokens?.find(({ single_word }) => single_word);
  if (word !== undefined) throw new UnknownRule("added_tokens", `single_word of ${JSON.stringify(word.content)}`);
  if (file.normalizer) checkNormalizer(file.normalizer);
  return { ...file, pre_tokenizer: file.pre_tokenizer ? exactSplit(file.pre_tokenizer) : null };
}

function checkModel(model: Part): void {
  if (model.type !== undefined && model.type !== "BPE") throw new UnknownRule("model", `type ${show(model.type)}`);
  for (const field of ["dropout", "continuing_subword_prefix", "end_of_word_suffix"]) {
    if (model[field]) throw new UnknownRule("model", `${field} ${show(model[field])}`);
  }
}

function checkNormalizer(part: Part): void {
  if (part.type === "Sequence") return list(part, "normalizers").forEach(checkNormalizer);
  if (!NORMALIZERS.includes(String(part.type))) throw new UnknownRule("normalizer", `type ${show(part.type)}`);
}

function exactSplit(part: Part): Part {
  const refuse = (problem: string): never => {
    throw new UnknownRule("pre_tokenizer", problem);
  };
  switch (part.type) {
    case "Sequence":
      return { ...part, pretokenizers: list(part, "pretokenizers").map(exactSplit) };
    case "ByteLevel": {
      if (part.add_prefix_space) refuse("add_prefix_space of ByteLevel");
      const bytes = { ...part, use_regex: false };
      return part.use_regex === false ? bytes : sequence(isolated(GPT2), bytes);
    }
    case "Digits":
      return isolated(part.individual_digits ? NUMERIC : `${NUMERIC}+`);
    case "Metaspace": {
      const replacement = part.replacement ?? "▁";
      if (replacement !== "▁") refuse(`replacement ${show(replacement)} of Metaspace`);
      const prepend_scheme = part.prepend_scheme ?? (part.add_prefix_space === false ? "never" : "always");
      const space = { type: "Metaspace", replacement, prepend_scheme };
      return part.split === false ? space : sequence(space, isolated("▁[^▁]*|[^▁]+"));
    }
    case "Split": {
      const behavior = String(part.behavior).toLowerCase();
      if (behavior === "isolated") return { ...part, invert: false };
      if (behavior === "removed" && part.invert) return part;
      return refuse(`behavior ${show(part.behavior)} of Split`);
    }
  }
  return refuse(`type ${show(part.type)}`);
}

function isolated(Regex: string): Part {
  return { type: "Split", pattern: { Regex }, behavior: "Isolated", invert: false };
}

function sequence(...pretokenizers: Part[]): Part {
  return { type: "Sequence", pretokenizers };
}

function list(part: Part, field: string): Part[] {
  const parts = part[field];
  if (!Array.isArray(parts)) throw new UnknownRule(field, "expected a list");
  return parts;
}

function show(value: unknown): string {
  return String(JSON.stringify(value)).slice(0, 80);
}

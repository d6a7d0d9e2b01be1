/**
 * Compares the tokenizer of a model with the `tokenizers` library of Python on 1,000 strings:
 *
 *     pip install tokenizers==0.23.3
 *     python fixtures/tokenizers/make_tokenizers.py --model DIR --out ids.json
 *     deno run --allow-all bench/tokenizer.ts DIR ids.json
 *
 * @module
 */

import { loadTokenizer } from "../lib/text/tokenizer.ts";

const [directory, path] = Deno.args;
const { strings, ids, changed, odd }: {
  strings: string[];
  ids: string[];
  changed: Record<string, string>;
  odd: [string, string][];
} = JSON.parse(Deno.readTextFileSync(path));
const tokenizer = (await loadTokenizer(directory, "encode"))!;
const numbers = (text: string) => text === "" ? [] : text.split(" ").map(Number);

const encoded = strings.filter((text, n) => tokenizer.encode(text).join(" ") === ids[n]).length;
const texts = [...strings.map((text, n) => [ids[n], changed[n] ?? text]), ...odd];
const decoded = texts.filter(([ids, text]) => tokenizer.decode(numbers(ids)) === text).length;
const back = strings.filter((text) => tokenizer.decode(tokenizer.encode(text)) === text).length;
console.log(`TOKENIZER strings=${strings.length} ids_equal=${encoded} round_trips=${back}`);
console.log(`TOKENIZER texts=${texts.length} texts_equal=${decoded}`);
Deno.exit(encoded === strings.length && decoded === texts.length ? 0 : 1);

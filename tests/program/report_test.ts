// `rabbit report`, run as a user runs it. The figures are those of fixtures/tiny/expected.json, which an independent
// implementation computed.

import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { inTemporary, temporary, tree, write } from "../support/files.ts";
import { expected, IDS, json, ROOT, TINY, WEIGHTS } from "../support/fixtures.ts";
import { copyModel, quantizeTo } from "../support/models.ts";
import { done, rabbit, refused, run } from "../support/program.ts";
import { attribute, Page, textOf, wrongFigures } from "../support/report_page.ts";

const HOSTILE = "</script><script>alert(1)</script><b title='";

/** Quantized once for all tests. */
const made = temporary();
const Q4 = await quantizeTo(`${made}/q4`, TINY, 4);
const Q8 = await quantizeTo(`${made}/q8`, TINY, 8);

function open(path: string): Page {
  const page = new Page(Deno.readTextFileSync(path));
  assertEquals(page.errors, []);
  return page;
}

Deno.test("rabbit report writes a page with the figures of both widths", () =>
  inTemporary(async (directory) => {
    const file = join(directory, "new", "page.html");
    const out = await done("report", TINY, Q8, Q4, "--out", file, ...IDS);
    assertEquals(tree(directory), ["new/", "new/page.html"]);
    const page = open(file);
    const { data } = page;
    assertEquals(data.model.bytes, Deno.statSync(join(TINY, WEIGHTS)).size);
    assertEquals([data.prompt, data.answer.ids], [{ ids: expected.prompt_ids }, expected.float.tokens]);
    assertAlmostEquals(Math.min(...data.answer.margins), expected.float.smallest_margin, expected.tolerance);
    for (const [n, kind] of ["q8", "q4"].entries()) {
      const quant = data.quants[n];
      const { tokens, compare, bytes, smallest_margin } = expected[kind];
      assertEquals([quant.name, quant.bytes, quant.match, quant.answer.ids], [kind, bytes, compare.match, tokens]);
      assertEquals([quant.values, quant.histogram.counts.reduce((a, b) => a + b)], [2560, 2560]);
      assertEquals([quant.equal, quant.different], [20, 0]);
      assertAlmostEquals(quant.logits_max, compare.max, expected.tolerance);
      assertAlmostEquals(quant.logits_mean, compare.mean, expected.tolerance);
      assertAlmostEquals(quant.prefill_max, compare.prefill_max, expected.tolerance);
      assertAlmostEquals(quant.prefill_mean, compare.prefill_mean, expected.tolerance);
      assertAlmostEquals(Math.min(...quant.answer.margins), smallest_margin, expected.tolerance);
    }
    const lines = out.trimEnd().split("\n");
    assertEquals(lines[1], `REPORT tokens_float ${expected.float.tokens.join(" ")}`);
    assert(lines[2].includes(` format=Q8B32 `) && lines[2].includes(" match=true kept=8 "), lines[2]);
    assertEquals(lines[4], `REPORT page file=${file} bytes=${Deno.statSync(file).size}`);
  }));

Deno.test("rabbit report says what compare and verify say, and its JSON what the page's JSON has", () =>
  inTemporary(async (directory) => {
    const file = join(directory, "page.html");
    const printed = JSON.parse(await done("report", TINY, Q4, "--out", file, ...IDS, "--steps", "3", "--json"));
    const { data } = open(file);
    const { model, tokens_float, quants: [quant], page } = printed;
    assertEquals(Object.keys(printed), ["model", "tokens_float", "quants", "page"]);
    assertEquals(tokens_float, data.answer.ids);
    assertEquals(page, { file, bytes: Deno.statSync(file).size });
    for (const [key, value] of Object.entries(model)) assertEquals([key, data.model[key as never]], [key, value]);
    const { tokens, ...rest } = quant;
    assertEquals(tokens, data.quants[0].answer.ids);
    for (const [key, value] of Object.entries(rest)) assertEquals([key, data.quants[0][key as never]], [key, value]);

    const compared = JSON.parse(
      (await rabbit(ROOT, ["compare", TINY, Q4, ...IDS, "--steps", "3", "--json"])).out,
    );
    assertEquals([tokens_float, tokens], [compared.tokens_float, compared.tokens_quant]);
    assertEquals([quant.logits_max, quant.logits_mean, quant.values, quant.steps], [
      compared.logits.max,
      compared.logits.mean,
      compared.logits.values,
      compared.logits.steps,
    ]);
    assertEquals([quant.prefill_max, quant.prefill_mean], [compared.prefill.max, compared.prefill.mean]);
    const verified = JSON.parse((await rabbit(ROOT, ["verify", Q4, "--against", TINY, "--json"])).out);
    assertEquals([quant.rms, quant.equal, quant.different], [verified.rms, verified.equal, verified.different]);
    const errors = data.tensors.map(({ name, quants: [stored] }) => [name, stored?.rms]);
    const list: { tensor: string; rms?: number }[] = verified.list;
    assertEquals(Object.fromEntries(errors), Object.fromEntries(list.map(({ tensor, rms }) => [tensor, rms])));
  }));

Deno.test("rabbit report --text says what compare --text says, of all checkpoints", () =>
  inTemporary(async (directory) => {
    const model = join(directory, "model");
    assertEquals((await rabbit(ROOT, ["gen", "--out", model])).code, 0);
    const quants = [
      await quantizeTo(join(directory, "q8"), model, 8),
      await quantizeTo(join(directory, "q4"), model, 4),
    ];
    const text = join(directory, "text.txt");
    Deno.writeTextFileSync(text, Deno.readTextFileSync(`${ROOT}fixtures/opticks.txt`).slice(0, 400));
    const file = join(directory, "page.html");
    const ran = await run("report", model, ...quants, "--out", file, "--text", text, "--steps", "2", "--json");
    // The development model's vocab.json does not say how a text is split, of which there is a warning.
    assert(ran.code === 0 && /^\{"kind":"warning","message":"--text: [^\n]*"\}\n$/.test(ran.err), ran.err);
    const printed = JSON.parse(ran.out);
    const { data } = open(file);
    const { file: name, ...counts } = printed.text;
    assertEquals([name, data.text], [text, printed.text]);
    for (const [n, quant] of quants.entries()) {
      const compared = JSON.parse((await rabbit(ROOT, ["compare", model, quant, "--text", text, "--json"])).out);
      const { perplexity, kl, same_top, prob } = compared;
      const { tokens, windows, window, scored } = compared.text;
      assertEquals(counts, {
        ...{ tokens, windows, window, scored },
        perplexity: { float: perplexity.float, float_error: perplexity.float_error },
      });
      const wanted = { perplexity, kl, same_top, prob };
      for (const quants of [data.quants, printed.quants]) {
        const { perplexity, kl, same_top, prob } = quants[n];
        assertEquals({ perplexity, kl, same_top, prob }, wanted);
      }
      assertEquals(data.quants[n].kl_quantiles!.length, 101);
    }
    await refused(
      `--text needs tokenizer.json, or vocab.json and merges.txt, in ${TINY}; copy them there`,
      "report",
      ...[TINY, Q4, "--out", join(directory, "other.html"), ...IDS, "--text", text],
    );
  }));

Deno.test("rabbit report writes the same page at every number of threads", () =>
  inTemporary(async (directory) => {
    const pages: string[] = [];
    for (const threads of ["1", "3"]) {
      const file = join(directory, `${threads}.html`);
      await done("report", TINY, Q4, Q8, "--out", file, ...IDS, "--threads", threads);
      pages.push(Deno.readTextFileSync(file));
    }
    assert(pages[0] === pages[1]);
  }));

Deno.test("rabbit report shows hostile names of paths and tokens as text", () =>
  inTemporary(async (directory) => {
    const float = join(directory, "a<i>&amp;\"'");
    write(float, {
      [WEIGHTS]: Deno.readFileSync(join(TINY, WEIGHTS)),
      "config.json": Deno.readTextFileSync(join(TINY, "config.json")),
      "vocab.json": JSON.stringify(
        Object.fromEntries(Array.from({ length: 320 }, (_, n) => [`${HOSTILE.replace(" ", "Ġ")}${n}`, n])),
      ),
      "merges.txt": "#version: 0.2\n",
    });
    const quant = await quantizeTo(join(directory, "<script>q"), float, 4);
    const file = join(directory, "page.html");
    await done("report", float, quant, "--out", file, ...IDS);
    const page = open(file);
    assertEquals(page.all("script").map((script) => attribute(script, "id")), ["data"]);
    assertEquals([page.all("b").filter((b) => attribute(b, "title")), page.all("i").length], [[], 2]);
    assertEquals(textOf(page.all("h1")[0]), "a<i>&amp;\"'");
    const { data } = page;
    assertEquals(data.answer.texts, data.answer.ids.map((id) => `${HOSTILE}${id}`));
    const texts = page.elements.filter((element) => attribute(element, "class") === "text").map(textOf);
    assertEquals(texts.slice(0, 1), data.answer.texts!.slice(0, 1));
    const shown = page.having("data-figure").map((element) => {
      const [path, scale] = [attribute(element, "data-figure")!, attribute(element, "data-scale") ?? null];
      return { path, text: textOf(element), scale };
    });
    assertEquals(wrongFigures(data, shown), []);
  }));

Deno.test("rabbit report tells of a quantized checkpoint that is not what quantizing gives", () =>
  inTemporary(async (directory) => {
    const other = join(directory, "other");
    Deno.mkdirSync(other);
    const bytes = Deno.readFileSync(join(Q4, WEIGHTS));
    bytes[bytes.length - 1] ^= 0x11;
    Deno.writeFileSync(join(other, WEIGHTS), bytes);
    const file = join(directory, "page.html");
    await done("report", TINY, other, "--out", file, ...IDS, "--steps", "1");
    const page = open(file);
    assertEquals([page.data.quants[0].equal, page.data.quants[0].different], [19, 1]);
    const [odd] = page.all("td").filter((cell) => attribute(cell, "class") === "odd");
    assertEquals(textOf(odd).split(" ").slice(1, 2), ["≠"]);
  }));

Deno.test("rabbit report replaces a page only when it is told to, and leaves nothing where it fails", () =>
  inTemporary(async (directory) => {
    const file = join(directory, "page.html");
    write(directory, { "page.html": "old" });
    // A scale that is not finite is found when the weights are read: after what is refused at once.
    const broken = join(directory, "broken");
    Deno.mkdirSync(broken);
    const bytes = Deno.readFileSync(join(Q4, WEIGHTS));
    const start = 8 + new DataView(bytes.buffer).getUint32(0, true);
    bytes.set([0, 0x7c], start);
    Deno.writeFileSync(join(broken, WEIGHTS), bytes);
    await refused(`${file} exists already; --force replaces it`, "report", TINY, broken, "--out", file, ...IDS);
    const { code, err } = await run("report", TINY, broken, "--out", file, "--force", ...IDS);
    assertEquals(code, 2);
    assert(/^rabbit: report: .*broken\/model.safetensors: tensor ".*": scale: row 0 block 0: .*\n$/.test(err), err);
    assertEquals([tree(directory), Deno.readTextFileSync(file)], [
      ["broken/", "broken/model.safetensors", "page.html"],
      "old",
    ]);
    const fresh = await run("report", TINY, broken, "--out", join(directory, "a", "b", "page.html"), ...IDS);
    assertEquals([fresh.code, tree(directory).length], [2, 3]);
    await done("report", TINY, Q4, "--out", file, "--force", ...IDS, "--steps", "1");
    assert(Deno.readTextFileSync(file).startsWith("<!DOCTYPE html>"));
    assertEquals(tree(directory).length, 3);
  }));

Deno.test("rabbit report refuses what can't be a report, before it computes anything", () =>
  inTemporary(async (directory) => {
    const file = join(directory, "page.html");
    const out = ["--out", file];
    const copy = copyModel(TINY, join(directory, "copy"));
    await refused("QUANT is missing; see rabbit report --help", "report", TINY, ...out);
    await refused("FLOAT is missing; see rabbit report --help", "report", ...out);
    await refused("--out FILE is missing; see rabbit report --help", "report", TINY, Q4);
    await refused('--out takes a file that ends in .html, found "page"', "report", TINY, Q4, "--out", "page");
    await refused(
      `${copy}/${WEIGHTS}: __metadata__: declares no width, so it is not a quantized checkpoint; the first argument is the float one, the others are quantized`,
      "report",
      ...[TINY, Q4, copy, ...out],
    );
    const other = join(directory, "other");
    write(other, {
      [WEIGHTS]: Deno.readFileSync(join(Q4, WEIGHTS)),
      "config.json": JSON.stringify({ ...json(join(TINY, "config.json")), rope_theta: 500 }),
    });
    const { code, err } = await run("report", TINY, Q4, other, ...out);
    assertEquals([code, err.includes("are not of one architecture: their config.json differ in rope")], [2, true], err);
    Deno.mkdirSync(join(directory, "dir.html"));
    await refused(
      `${directory}/dir.html is not a regular file; choose another name`,
      "report",
      ...[TINY, Q4, "--out", join(directory, "dir.html"), "--force"],
    );
    write(directory, { "plain": "" });
    await refused(
      `cannot read ${directory}/plain/page.html: a part of the path is not a directory`,
      "report",
      ...[TINY, Q4, "--out", join(directory, "plain", "page.html")],
    );
    const same = join(directory, "q4.html");
    Deno.copyFileSync(join(Q4, WEIGHTS), same);
    await refused(
      `${same} is a file of the checkpoint (${same}), which would be overwritten; choose another name`,
      "report",
      ...[TINY, same, "--out", same, "--force"],
    );
    const text = join(directory, "text.html");
    write(directory, { "text.html": "words" });
    await refused(
      `${text} is read by this command (${text}), and would be overwritten; choose another name`,
      "report",
      ...[TINY, Q4, "--text", text, "--out", text, "--force"],
    );
    assertEquals(Deno.readTextFileSync(text), "words");
    await refused("the prompt is empty", "report", TINY, Q4, ...out, "--ids", ",");
    await refused('--steps takes a whole number of at least 1, found "0"', "report", TINY, Q4, ...out, "--steps", "0");
    assertEquals(tree(directory).filter((path) => /html|partial/.test(path)), ["dir.html/", "q4.html", "text.html"]);
  }));

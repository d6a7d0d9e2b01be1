/// <reference lib="dom" />

/**
 * The page of `rabbit report` in a real browser: Chromium, from CHROMIUM or as `chromium` on the PATH.
 */

import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import axe from "axe-core";
import puppeteer, { type Browser, type Page } from "puppeteer-core";
import { page as pageOf } from "../../lib/report/page.ts";
import { inTemporary, sha256 } from "../support/files.ts";
import { ROOT, TINY } from "../support/fixtures.ts";
import { quantizeTo } from "../support/models.ts";
import { isExecutable, needs, path } from "../support/needs.ts";
import { execute, rabbit } from "../support/program.ts";
import { wrongFigures } from "../support/report_page.ts";
import { madeUp, withText } from "../support/reports.ts";

const named = Deno.env.get("CHROMIUM");

/** Where the browser is; undefined where there is none. */
const chromium = named ? [named].find(isExecutable) : path("chromium");

function inBrowser(name: string, fn: (browser: Browser, directory: string) => Promise<void>): void {
  needs(
    name,
    {
      missing: chromium === undefined ? ["install chromium, or set CHROMIUM=path"] : [],
      // The browser's connection and process are the library's to end.
      sanitizeOps: false,
      sanitizeResources: false,
    },
    () =>
      inTemporary(async (directory) => {
        const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        const profile = Deno.makeTempDirSync({ prefix: "rabbit-chromium-" });
        const browser = await puppeteer.launch({ executablePath: chromium, args, userDataDir: profile });
        try {
          await fn(browser, directory);
        } finally {
          await browser.close();
          Deno.removeSync(profile, { recursive: true });
        }
      }),
  );
}

/** A4 between margins of 14 mm, in CSS pixels. */
const PAPER = Math.floor((210 - 28) / 25.4 * 96);

/** How a page is looked at. */
interface Look {
  readonly width: number;
  readonly scheme?: "light" | "dark";
  readonly media?: "screen" | "print";
  readonly script?: boolean;
}

/** Calls `look` with the page opened, and checks that it asked for nothing and complained of nothing. */
async function opened(browser: Browser, path: string, how: Look, look: (page: Page) => Promise<void>): Promise<void> {
  const page = await browser.newPage();
  const heard: string[] = [];
  page.on("console", (message) => heard.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => heard.push(`error: ${error}`));
  page.on("request", (request) => heard.push(`request: ${request.url()}`));
  await page.setJavaScriptEnabled(how.script ?? true);
  await page.setViewport({ width: how.width, height: 800 });
  // Both in one call: a second one would undo the first.
  const session = await page.createCDPSession();
  await session.send("Emulation.setEmulatedMedia", {
    media: how.media ?? "screen",
    features: [{ name: "prefers-color-scheme", value: how.scheme ?? "light" }],
  });
  await page.goto(`file://${path}`);
  await look(page);
  await page.close();
  assertEquals(heard, [`request: file://${path}`], JSON.stringify(how));
}

/** The page of the tiny model, as the program writes it. */
async function written(directory: string): Promise<string> {
  const q8 = await quantizeTo(join(directory, "q8"), TINY, 8);
  const q4 = await quantizeTo(join(directory, "q4"), TINY, 4);
  const path = join(directory, "page.html");
  const { code, err } = await rabbit(ROOT, ["report", TINY, q8, q4, "--out", path, "--ids", "1 2 3", "--steps", "4"]);
  assertEquals([code, err], [0, ""]);
  return path;
}

const openDetails = (page: Page) => page.evaluate(() => document.querySelector("details")!.open = true);

/** What sticks out of the page on the right, and is not in an element that scrolls by itself. */
const overflowing = (page: Page) =>
  page.evaluate(() => {
    const root = document.documentElement;
    const out = [...document.querySelectorAll("body *")].filter((element) =>
      !element.closest(".scroll, .vh") && element.getBoundingClientRect().right > root.clientWidth + 0.5
    ).map((element) => element.outerHTML.slice(0, 80));
    return [root.scrollWidth - root.clientWidth, ...out];
  });

inBrowser(
  "the page of a report fits phones and desks, light and dark, and shows what its JSON says",
  async (browser, directory) => {
    const path = await written(directory);
    for (const width of [360, 1280]) {
      for (const scheme of ["light", "dark"] as const) {
        await opened(browser, path, { width, scheme }, async (page) => {
          assertEquals(await overflowing(page), [0]);
          await openDetails(page);
          assertEquals(await overflowing(page), [0]);
          const { data, shown, hidden } = await page.evaluate(() => {
            const figures = [...document.querySelectorAll("[data-figure]")];
            return {
              data: JSON.parse(document.getElementById("data")!.textContent!),
              shown: figures.map((element) => ({
                path: element.getAttribute("data-figure")!,
                text: element.textContent!,
                scale: element.getAttribute("data-scale"),
              })),
              hidden: figures.filter((element) => !element.checkVisibility({ visibilityProperty: true })).length,
            };
          });
          assertEquals([wrongFigures(data, shown), hidden], [[], 0]);
          // Each figure of the two checkpoints, and two of each of their tensors.
          assert(shown.length > 100, `${shown.length}`);
        });
      }
    }
  },
);

inBrowser("long names of a report's page stay in it", async (browser, directory) => {
  const report = withText();
  const long = "a_very_long_name_without_any_place_to_break".repeat(8);
  const path = join(directory, "page.html");
  const page = pageOf({
    ...report,
    model: { ...report.model, name: long, path: long },
    text: { ...report.text!, file: long },
    prompt: { ids: [1], texts: [long] },
    answer: { ...report.answer, texts: [long, long, long] },
    quants: report.quants.map((quant) => ({ ...quant, name: long, path: long })),
    tensors: report.tensors.map((tensor) => ({ ...tensor, name: long })),
  });
  Deno.writeTextFileSync(path, page);
  for (const width of [320, 360, 1280]) {
    await opened(browser, path, { width }, async (page) => {
      await openDetails(page);
      assertEquals(await overflowing(page), [0]);
    });
  }
});

inBrowser("the tensors of a report's page are sorted without a script", async (browser, directory) => {
  const report = madeUp();
  const path = join(directory, "page.html");
  Deno.writeTextFileSync(path, pageOf(report));
  await opened(browser, path, { width: 1280, script: false }, async (page) => {
    await page.click("summary");
    /** The rows as they stand on the screen. */
    const rows = () =>
      page.$$eval(
        "section.tensors tbody tr",
        (rows) =>
          rows.map((row) => ({ top: row.getBoundingClientRect().top, name: row.querySelector("th")!.textContent! }))
            .sort((a, b) => a.top - b.top).map(({ name }) => name),
      );
    const names = report.tensors.map(({ name }) => name);
    assertEquals(await rows(), names);
    await page.click("#sort-1");
    assertEquals(await rows(), names.toSorted());
    await page.click("#sort-4");
    const error = (name: string) => report.tensors.find((tensor) => tensor.name === name)!.quants[1]?.rms ?? -1;
    const errors = (await rows()).map(error);
    assertEquals(errors, errors.toSorted((a, b) => b - a));
    await page.click("#sort-0");
    assertEquals(await rows(), names);
    // The head stays above, and its columns are those of the rows.
    const [head, first] = await page.evaluate(() =>
      ["thead tr:last-child", "tbody tr:first-child"].map((row) =>
        Array.from(document.querySelector(`section.tensors ${row}`)!.children).map((cell) =>
          cell.getBoundingClientRect()
        )
          .map(({ left, width, top }) => ({ left, width, top }))
      )
    );
    assert(head[0].top < first[0].top);
    assertEquals(head.map(({ left, width }) => [left, width]), first.map(({ left, width }) => [left, width]));
  });
});

inBrowser("a report's page is accessible, by axe's rules, in both schemes", async (browser, directory) => {
  const path = await written(directory);
  for (const scheme of ["light", "dark"] as const) {
    for (const width of [360, 1280]) {
      await opened(browser, path, { width, scheme }, async (page) => {
        await openDetails(page);
        await page.evaluate(axe.source);
        const { violations, passes } = await page.evaluate(() => {
          // deno-lint-ignore no-explicit-any
          return (globalThis as any).axe.run(document, { resultTypes: ["violations"] });
        });
        assert(passes.some(({ id }: { id: string }) => id === "color-contrast"));
        const found = violations.map(({ id, nodes }: { id: string; nodes: { html: string }[] }) => {
          return `${id}: ${nodes.map(({ html }) => html.slice(0, 100)).join(" | ").slice(0, 400)}`;
        });
        assertEquals(found, [], `${scheme} ${width}`);
      });
    }
  }
});

inBrowser("a report's page is printed in light colours, with all its tensors", async (browser, directory) => {
  const path = await written(directory);
  await opened(browser, path, { width: PAPER, scheme: "dark", media: "print" }, async (page) => {
    const seen = await page.evaluate(() => {
      const style = getComputedStyle(document.body);
      const rows = [...document.querySelectorAll("section.tensors tbody tr")];
      const charts = [...document.querySelectorAll("svg")];
      return {
        colours: [style.backgroundColor, style.color],
        open: document.querySelector("details")!.open,
        visible: rows.filter((row) => row.checkVisibility({ contentVisibilityAuto: true })).length,
        height: rows.every((row) => row.getBoundingClientRect().height > 5),
        rows: rows.length,
        choices: document.querySelector("fieldset")!.checkVisibility(),
        // A chart that is higher than a page, or may be broken, would be cut. A4 without its margins is 269 mm.
        tall: charts.filter((chart) => chart.getBoundingClientRect().height > 269 / 25.4 * 96).length,
        broken: charts.filter((chart) => getComputedStyle(chart.closest("figure")!).breakInside !== "avoid").length,
      };
    });
    assertEquals(seen, {
      colours: ["rgb(247, 248, 249)", "rgb(26, 31, 38)"],
      open: false,
      visible: 20,
      height: true,
      rows: 20,
      choices: false,
      tall: 0,
      broken: 0,
    });
    assertEquals(await overflowing(page), [0]);
  });
});

Deno.test("the task picture says in one line that Chromium is missing, and leaves the picture", async () => {
  const before = await sha256(`${ROOT}docs/report.png`);
  const args = ["run", "--frozen", "--allow-all", `${ROOT}tools/picture.ts`];
  const { code, out, err } = await execute(Deno.execPath(), args, { env: { CHROMIUM: "/none" } });
  assertEquals([code, out, err], [2, "", "picture: no program /none; install chromium, or set CHROMIUM=path\n"]);
  assertEquals(await sha256(`${ROOT}docs/report.png`), before);
});

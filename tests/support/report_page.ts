/**
 * Reads the page of a report with a parser that is not ours.
 *
 * @module
 */

import { defaultTreeAdapter as tree, type DefaultTreeAdapterTypes, parse } from "parse5";
import type { Report } from "../../lib/report/figures.ts";

/** An element of a page. */
export type Element = DefaultTreeAdapterTypes.Element;

/** A page after parsing. */
export class Page {
  /** The names of the parser's errors. */
  readonly errors: string[] = [];
  readonly elements: readonly Element[];

  constructor(readonly html: string) {
    const document = parse(html, { onParseError: ({ code }) => this.errors.push(code) });
    this.elements = elementsOf(document);
  }

  /** The elements of a name. */
  all(name: string): Element[] {
    return this.elements.filter(({ tagName }) => tagName === name);
  }

  /** The elements that have an attribute. */
  having(name: string): Element[] {
    return this.elements.filter((element) => attribute(element, name) !== undefined);
  }

  /** The JSON of the page. */
  get data(): Report {
    const [script] = this.all("script").filter((element) => attribute(element, "id") === "data");
    return JSON.parse(textOf(script));
  }
}

function elementsOf(node: DefaultTreeAdapterTypes.ParentNode): Element[] {
  return tree.getChildNodes(node).flatMap((child) => tree.isElementNode(child) ? [child, ...elementsOf(child)] : []);
}

/** The value of an attribute. */
export function attribute(element: Element, name: string): string | undefined {
  return element.attrs.find((attribute) => attribute.name === name)?.value;
}

/** The text in an element. */
export function textOf(element: Element): string {
  return tree.getChildNodes(element).map((child) =>
    tree.isTextNode(child) ? child.value : tree.isElementNode(child) ? textOf(child) : ""
  ).join("");
}

/** The elements in an element. */
export function within(element: Element, name: string): Element[] {
  return elementsOf(element).filter(({ tagName }) => tagName === name);
}

/** What stands at a path such as `quants.0.logits_max`. */
export function valueAt(data: unknown, path: string): unknown {
  // deno-lint-ignore no-explicit-any
  return path.split(".").reduce((value: any, key) => value?.[key], data);
}

/** What a page shows of a figure: the path, the text, and the factor between the JSON's value and the text. */
export interface Shown {
  readonly path: string;
  readonly text: string;
  readonly scale: string | null;
}

/** Those figures whose text is not the JSON's value, rounded to the digits that are shown. */
export function wrongFigures(data: unknown, shown: readonly Shown[]): Shown[] {
  return shown.filter(({ path, text: sign, scale }) => {
    const text = sign.replace("−", "-");
    const value = valueAt(data, path);
    if (typeof value !== "number" || !/^(<?\.\d+|-?[\d,]+(\.\d+)?)$/.test(text)) return true;
    const wanted = value * Number(scale ?? 1);
    const number = Number(text.replace(/[<,]/g, ""));
    if (text.startsWith("<")) return !(wanted > 0 && wanted < number);
    const half = 0.5 * 10 ** -(text.split(".")[1]?.length ?? 0);
    return !(Math.abs(number - wanted) <= half * (1 + 1e-6) + Math.abs(wanted) * 1e-12);
  });
}

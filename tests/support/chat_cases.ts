/**
 * Chat templates and what transformers renders of them.
 *
 * @module
 */

import type { Moment } from "../../lib/text/jinja/dates.ts";
import type { Plain } from "../../lib/text/jinja/render.ts";

/** A template, and the text or the error that transformers gives. */
export interface ChatCase {
  readonly name: string;
  readonly template: string;
  readonly variables: Readonly<Record<string, Plain>>;
  readonly now: Moment;
  readonly text?: string;
  readonly error?: string;
}

/** What fixtures/make_chat.py writes. */
interface Fixture {
  readonly now: readonly bigint[];
  readonly sets: readonly Readonly<Record<string, Plain>>[];
  readonly cases: readonly (Omit<ChatCase, "variables" | "now"> & { set: bigint })[];
  readonly formats: readonly string[];
  readonly dates: readonly { readonly now: readonly bigint[]; readonly texts: readonly string[] }[];
  /** Each with its upper, lower and title case, capitalized, swapped, its representation, and its classes. */
  readonly characters: readonly (readonly string[])[];
  readonly directories: readonly {
    readonly name: string;
    readonly files: Readonly<Record<string, unknown>>;
    readonly template?: string;
    readonly tokens?: Readonly<Record<string, string>>;
    readonly refused?: boolean;
  }[];
}

/** JSON in which integers become bigints, so that 1 and 1.0 are told apart. */
function parseExact(json: string): unknown {
  const revive = (_: string, value: unknown, { source }: { source?: string } = {}) =>
    typeof value === "number" && /^-?\d+$/.test(source!) ? BigInt(source!) : value;
  return JSON.parse(json, revive as (key: string, value: unknown) => unknown);
}

/** A time from its parts. */
export function moment(parts: readonly bigint[]): Moment {
  const [year, month, day, hour, minute, second, microsecond] = parts.map(Number);
  return { year, month, day, hour, minute, second, microsecond };
}

/** A line of what fixtures/render_chat.py prints. */
export function parseCase(json: string): ChatCase {
  const { now, ...rest } = parseExact(json) as Omit<ChatCase, "now"> & { now: bigint[] };
  return { ...rest, now: moment(now) };
}

/** fixtures/chat.json */
export function chatFixture(): Omit<Fixture, "cases"> & { cases: ChatCase[] } {
  const fixture = parseExact(Deno.readTextFileSync(new URL("../../fixtures/chat.json", import.meta.url))) as Fixture;
  const now = moment(fixture.now);
  return {
    ...fixture,
    cases: fixture.cases.map((each) => ({ ...each, variables: fixture.sets[Number(each.set)], now })),
  };
}

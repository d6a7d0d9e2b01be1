/**
 * The functions of Jinja2 and transformers that templates can call, and `self`.
 *
 * @module
 */

import { Dict, Namespace, Range } from "./collections.ts";
import { type Moment, strftime } from "./dates.ts";
import { spendItems, TemplateError, Unsupported } from "./limits.ts";
import { Cycler, Joiner, TemplateReference } from "./loop.ts";
import { intArgument, strArgument } from "./methods.ts";
import { type Args, bind, listOf, Native, over, textOf, Undefined, type Value } from "./values.ts";

/** The error of raise_exception: the template rejects the messages, with its own message. */
export class Raised extends TemplateError {
  override name = "Raised";
}

/** The sandbox's limit for a range. */
const MAX_RANGE = 100_000;

function range(args: Args): Value {
  const numbers = args.list.map((value) => intArgument(value, "range"));
  if (args.named.size > 0 || numbers.length < 1 || numbers.length > 3) {
    throw new TemplateError("range: expected 1 to 3 integers");
  }
  if (!numbers.every((number) => Math.abs(number) < Number.MAX_SAFE_INTEGER / 2)) {
    throw new Unsupported("a range of integers above 2^52");
  }
  const [start, stop, step = 1] = numbers.length === 1 ? [0, numbers[0]] : numbers;
  if (step === 0) throw new TemplateError("range: the step must not be zero");
  const found = new Range(start, stop, step);
  if (found.length() > MAX_RANGE) throw new TemplateError(`range: has more than ${MAX_RANGE} items`);
  return found;
}

/** The pairs that `dict(…)` takes from its arguments. */
function pairsOf({ list, named }: Args, name: string): [Value, Value][] {
  if (list.length > 1) throw new TemplateError(`${name}: expected at most 1 argument, found ${list.length}`);
  const [source] = list;
  const pairs: [Value, Value][] = [];
  if (source instanceof Undefined) source.fail();
  if (source instanceof Dict) pairs.push(...source.entries().map(([key, value]): [Value, Value] => [key, value]));
  else if (source instanceof Namespace) throw new TemplateError(`${name}: a namespace has no pairs`);
  else if (source !== undefined) {
    for (const item of over(source)) {
      const pair = listOf(item);
      if (pair.length !== 2) throw new TemplateError(`${name}: expected pairs, found ${pair.length} items`);
      spendItems(2);
      pairs.push([pair[0], pair[1]]);
    }
  }
  return [...pairs, ...named];
}

/**
 * The functions, by name.
 *
 * @param now the time that strftime_now gives
 * @param asked is called when a template asks for it
 */
export function globalsOf(now: Moment, asked: () => void): Map<string, Value> {
  const functions: Record<string, (args: Args, name: string) => Value> = {
    range,
    dict: (args, name) => new Dict(pairsOf(args, name)),
    lipsum() {
      throw new Unsupported("the function lipsum");
    },
    cycler(args, name) {
      if (args.named.size > 0) throw new TemplateError(`${name}: takes no named arguments`);
      return new Cycler(args.list);
    },
    joiner: (args, name) => new Joiner(bind(name, ["sep?"], args)[0] ?? ", "),
    namespace(args, name) {
      const namespace = new Namespace();
      for (const [key, value] of pairsOf(args, name)) namespace.set(key, value);
      return namespace;
    },
    raise_exception(args, name) {
      throw new Raised(textOf(bind(name, ["message"], args)[0]!));
    },
    strftime_now(args, name) {
      asked();
      return strftime(now, strArgument(bind(name, ["format"], args)[0], name));
    },
  };
  const natives = Object.entries(functions).map(([name, run]): [string, Value] => [
    name,
    new Native(name, (args) => run(args, name)),
  ]);
  return new Map([...natives, ["self", new TemplateReference()]]);
}

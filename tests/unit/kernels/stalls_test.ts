/**
 * When the first thread goes alone, on a machine with a made-up clock.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { Stalls } from "../../../lib/kernels/stalls.ts";

/** Milliseconds of a program, with all threads and alone, and how long the first thread sleeps with all. */
interface Program {
  readonly together: number;
  readonly alone: number;
  readonly slept?: number;
  readonly tokens?: number;
}

/** A machine that nobody else uses, and one with another busy process. */
const FREE: Program = { together: 8, alone: 14 };
const BUSY: Program = { together: 28, alone: 14, slept: 16 };

/** Runs programs one after the other, and keeps a clock. */
class Machine {
  readonly stalls = new Stalls();
  now = 0;

  /** Runs a program. @returns whether it was run alone */
  run({ together, alone, slept = 0, tokens = 1 }: Program): boolean {
    const single = this.stalls.alone;
    const elapsed = single ? alone : together;
    this.now += elapsed;
    this.stalls.add(tokens, elapsed, single ? 0 : slept);
    return single;
  }

  /** Runs programs as long as each is run alone, or is not. @returns how many, and their milliseconds */
  while(single: boolean, program: Program): { count: number; ms: number } {
    const start = this.now;
    let count = 0;
    for (; this.stalls.alone === single; count++) this.run(program);
    return { count, ms: this.now - start };
  }

  /** Runs programs for so long. @returns the programs that were finished in a second */
  rate(seconds: number, program: Program): number {
    const end = this.now + 1000 * seconds;
    let count = 0;
    for (; this.now < end; count++) this.run(program);
    return count / seconds;
  }
}

/** A machine after five stalled programs in a row. */
function stalled(program = BUSY): Machine {
  const machine = new Machine();
  assertEquals(machine.while(false, program).count, 5);
  return machine;
}

Deno.test("Stalls: programs that do not sleep, or rarely, are never run alone", () => {
  const machine = new Machine();
  const never = (count: number, program: Program) => {
    for (let n = 0; n < count; n++) assert(!machine.run(program));
  };
  for (let n = 0; n < 100; n++) {
    never(40, FREE);
    never(1, BUSY);
  }
  never(3, BUSY);
  never(100, { ...FREE, slept: 2 });
});

Deno.test("Stalls: one stalled program in twenty is enough in the end", () => {
  const machine = new Machine();
  let alone = false;
  for (let n = 0; n < 400; n++) alone ||= machine.run(n % 20 === 0 ? BUSY : FREE);
  assert(alone);
});

Deno.test("Stalls: 32 milliseconds are spent alone, after slow trials twice as long, at most a second", () => {
  const machine = stalled();
  for (const ms of [32, 64, 128, 256, 512, 1000, 1000]) {
    const alone = machine.while(true, BUSY);
    assert(alone.ms >= ms && alone.ms < ms + BUSY.alone, `${alone.ms} ms for ${ms}`);
    // Two such programs take as long as four alone: the trial has failed.
    assertEquals(machine.while(false, BUSY).count, 2);
  }
});

Deno.test("Stalls: after a trial that is faster all threads run, and the next time begins anew", () => {
  const machine = stalled();
  machine.while(true, BUSY);
  machine.while(false, BUSY);
  machine.while(true, BUSY);
  for (let n = 0; n < 100; n++) assert(!machine.run(FREE));
  assertEquals(machine.while(false, BUSY).count, 5);
  assert(machine.while(true, BUSY).ms < 32 + BUSY.alone);
});

Deno.test("Stalls: a trial is four programs, and faster or not by their mean", () => {
  const machine = stalled();
  machine.while(true, BUSY);
  assertEquals(machine.while(false, { together: 14, alone: 14 }).count, 4);
  machine.while(true, BUSY);
  for (const together of [20, 8, 8, 8]) assert(!machine.run({ together, alone: 14 }));
  assert(!machine.stalls.alone);
});

Deno.test("Stalls: programs that take longer than a trial are never run alone", () => {
  const machine = new Machine();
  for (let n = 0; n < 100; n++) assert(!machine.run({ together: 2000, alone: 1500, slept: 1500 }));
  // Nor those of which one takes as long.
  const other = stalled();
  other.run({ together: 0, alone: 300 });
  assert(!other.stalls.alone);
});

Deno.test("Stalls: programs for another number of tokens are not compared", () => {
  const machine = stalled();
  machine.run({ ...FREE, tokens: 32 });
  assert(!machine.stalls.alone);
  for (let n = 0; n < 2; n++) assert(!machine.run(BUSY));
});

Deno.test("Stalls: beside a busy process the rate is nearly that of one thread, and soon back when that has ended", () => {
  for (const scale of [0.05, 1, 4, 8]) {
    const by = ({ together, alone, slept = 0 }: Program) => {
      return { together: scale * together, alone: scale * alone, slept: scale * slept };
    };
    for (let ms = 0; ms < 3000; ms += 250) {
      const machine = new Machine();
      machine.rate(10 + ms / 1000, by(BUSY));
      const busy = machine.rate(10, by(BUSY));
      assert(busy >= 0.8 * 1000 / by(BUSY).alone, `${busy} programs a second, times ${scale}`);
      machine.rate(2, by(FREE));
      const free = machine.rate(10, by(FREE));
      assert(free >= 0.99 * 1000 / by(FREE).together, `${free} programs a second, times ${scale}`);
    }
  }
});

/**
 * Long work in phases, each with its own progress.
 *
 * @module
 */

import type { Watch } from "../pace.ts";

/** Runs one phase: its name, how much there is to do, and the unit of that. */
export type Phase = <T>(
  name: string,
  total: number,
  unit: "bytes" | "tokens" | "parts",
  work: (watch: Watch) => Promise<T>,
) => Promise<T>;

/** Phases that report to one caller, one after the other. */
export function phasesOf({ signal, progress }: Watch): Phase {
  return (_name, _total, _unit, work) => work({ ...signal && { signal }, ...progress && { progress } });
}

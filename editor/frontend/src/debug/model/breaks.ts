// Breakpoints of the graph's uses, in words and as marks. Pure.
import { factsOf } from "../../document/routes";
import type { GraphDocument } from "../../document/types";
import type { BreakShown } from "../../messages/frames";
import { strings } from "../../strings";

/** A use of a Walk. */
export interface Spot {
  walk: string;
  use: string;
}

/** Where a node of the components canvas is used. */
export function spotsOf(graph: GraphDocument, node: string): Spot[] {
  return Object.entries(graph.walks ?? {}).flatMap(([walk, body]) =>
    [...factsOf(body).uses.values()].filter((entry) => entry.node === node).map(({ name }) => ({ walk, use: name })),
  );
}

export function isAt(one: Spot, { walk, use }: Spot): boolean {
  return one.walk === walk && one.use === use;
}

export function breaksAt(breakpoints: readonly BreakShown[], spots: readonly Spot[]): BreakShown[] {
  return breakpoints.filter((one) => spots.some((spot) => isAt(one, spot)));
}

/** When it stops runs: `at every call`, `in iteration 3`, `in iteration 3 of one run`. */
export function breakWords({ iteration, run }: Pick<BreakShown, "iteration" | "run">): string {
  const when = iteration === null ? strings.debug.atEveryCall : strings.debug.inIterationWithIteration(iteration + 1);
  return run === null ? when : strings.debug.ofOneRun(when);
}

/** The tooltip of the red dot. */
export function dotWords(found: readonly BreakShown[]): string {
  const [first, ...others] = found;
  if (!first) return strings.debug.pauseRunsBeforeItF9;
  const words = others.length
    ? strings.debug.breakpointsWithCount(found.length)
    : strings.debug.breakpointWithFirst(breakWords(first));
  return found.some((one) => one.inside) ? strings.debug.itIsInsideADevice(words) : words;
}

/** The iteration that is typed, counted from 1, as the service counts; null: every one. Undefined: it is none. */
export function readIteration(text: string): number | null | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  if (!/^\d{1,9}$/.test(trimmed) || Number(trimmed) < 1) return undefined;
  return Number(trimmed) - 1;
}

/** True if a use is in a loop, so that an iteration can be named. */
export function isLooped(graph: GraphDocument, { walk, use }: Spot): boolean {
  const body = graph.walks?.[walk];
  return body ? (factsOf(body).uses.get(use)?.loops.length ?? 0) > 0 : false;
}

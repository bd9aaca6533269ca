// Which problem of the check belongs to which row. Pure.
import type { Problem } from "../../messages/answers";
import { isUnder, join } from "../../document/pointer";
import type { Pointer } from "../../document/types";

/** Those of one task, their pointers relative to it. */
export function ofTask(problems: readonly Problem[], task: string): Problem[] {
  const base = join("tasks", task);
  return problems
    .filter((problem) => isUnder(problem.pointer, base))
    .map((problem) => ({ ...problem, pointer: problem.pointer.slice(base.length) }));
}

/** Each problem at the deepest of these places that holds it; the rest at "". */
export function byPlace(problems: readonly Problem[], places: readonly Pointer[]): Map<Pointer, Problem[]> {
  const found = new Map<Pointer, Problem[]>();
  for (const problem of problems) {
    const holds = places.filter((place) => isUnder(problem.pointer, place));
    const place = holds.reduce((deepest, other) => (other.length > deepest.length ? other : deepest), "");
    found.set(place, [...(found.get(place) ?? []), problem]);
  }
  return found;
}

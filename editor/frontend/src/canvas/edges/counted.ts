// Whose calls tell that a value went along a wire. Pure.
import { factsOf, type End } from "../../document/routes";
import type { Walk } from "../../document/types";
import type { WireData } from "../types";

export interface Counted {
  node: string;
  /** Of its use in loops; null: of any. */
  depth: number | null;
}

/**
 * The source's; where only the last value or all together leave the source's loops, and where the value comes from the
 * Walk's inputs, the target's. null: nothing tells. `body`: of the canvas; null: of components.
 */
export function countedOn(body: Walk | null, data: WireData): Counted | null {
  if (!body) return data.node ? { node: data.node, depth: null } : null;
  const { routes, results, uses } = factsOf(body);
  if (data.index < 0) {
    const result = results.find(({ target }) => data.to === `@result.${target.name}`);
    const source = uses.get(data.from.split(".", 1)[0] ?? "");
    return !source || (result && result.leave !== "none") ? null : { node: source.node, depth: source.loops.length };
  }
  const route = routes[data.index];
  if (!route) return null;
  const atTarget = route.leave === "last" || route.leave === "collect" || route.source.kind === "in";
  if (!atTarget) return called(route.source);
  return route.source.kind === "in" && route.entered.length > 0 ? null : called(route.target);
}

function called({ entry }: End): Counted | null {
  return entry ? { node: entry.node, depth: entry.loops.length } : null;
}

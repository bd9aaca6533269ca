// Whose calls tell that a value went along a wire. Pure.
import { factsOf, type End } from "../../document/routes";
import type { Walk } from "../../document/types";
import { useKey } from "../../telemetry/calls";
import type { WireData } from "../shapes/types";

/**
 * The source's; where only the last value or all together leave the source's loops, and where the value comes from the
 * Walk's inputs or a merge, the target's: the key of a use. null: nothing tells. `walk`: of the canvas, with its body; null: of
 * components, whose wires are of nodes.
 */
export function countedOn(walk: string | null, body: Walk | null, data: WireData): string | null {
  if (walk === null || !body) return data.node || null;
  const { routes, results, uses } = factsOf(body);
  if (data.index < 0) {
    const result = results.find(({ target }) => data.to === `@result.${target.name}`);
    const source = data.from.split(".", 1)[0] ?? "";
    return !uses.has(source) || (result && result.leave !== "none") ? null : useKey(walk, source);
  }
  const route = routes[data.index];
  if (!route) return null;
  const atTarget = route.leave === "last" || route.leave === "collect" || ["in", "merge"].includes(route.source.kind);
  if (!atTarget) return called(walk, route.source);
  return route.source.kind === "in" && route.entered.length > 0 ? null : called(walk, route.target);
}

function called(walk: string, { entry }: End): string | null {
  return entry ? useKey(walk, entry.name) : null;
}

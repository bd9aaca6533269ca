// Where a run's outputs are shown on the canvas: at the nodes whose edges feed them. Pure.
import { splitReference } from "../document/names";
import { factsOf } from "../document/routes";
import type { GraphDocument } from "../document/types";
import { stepsOf } from "./steps";

/**
 * Output name -> nodes with an edge to `@out.NAME` in a Walk of the task (of any Walk without a task), of a merge the
 * nodes of all its sources.
 */
export function feeders(graph: GraphDocument, task?: string): Map<string, string[]> {
  const walks = task === undefined ? null : stepsOf(graph, task).walks;
  const found = new Map<string, string[]>();
  for (const [name, walk] of Object.entries(graph.walks ?? {})) {
    if (walks && !walks.has(name)) continue;
    const { routes, merges, uses } = factsOf(walk);
    for (const { from, source, target } of routes) {
      if (target.kind !== "out") continue;
      const sources = source.kind === "merge" ? (merges.get(source.name)?.sources ?? []) : [from];
      const list = found.get(target.name) ?? [];
      const nodes = sources.flatMap((each) => uses.get(splitReference(each)[0])?.node ?? []);
      if (nodes.length) found.set(target.name, [...new Set([...list, ...nodes])]);
    }
  }
  return found;
}

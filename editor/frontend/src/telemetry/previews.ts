// Where a run's outputs are shown on the canvas: at the nodes whose edges feed them. Pure.
import type { GraphDocument } from "../document/types";
import { entries, flat } from "../document/tree";
import { stepsOf } from "./steps";

/** Output name -> nodes with an edge to `@out.NAME` in a Walk of the task (of any Walk without a task). */
export function feeders(graph: GraphDocument, task?: string): Map<string, string[]> {
  const walks = task === undefined ? null : stepsOf(graph, task).walks;
  const found = new Map<string, string[]>();
  for (const [name, walk] of Object.entries(graph.walks ?? {})) {
    if (walks && !walks.has(name)) continue;
    const nodes = new Map(flat(entries(walk)).map((entry) => [entry.name, entry.node]));
    for (const edge of Array.isArray(walk.edges) ? walk.edges : []) {
      const [from, to] = Array.isArray(edge) ? edge : [fieldOf(edge, "from"), fieldOf(edge, "to")];
      if (typeof from !== "string" || typeof to !== "string" || !to.startsWith("@out.")) continue;
      const node = nodes.get(from.split(".")[0] ?? "");
      if (!node) continue;
      const output = to.slice("@out.".length);
      const list = found.get(output) ?? [];
      if (!list.includes(node)) found.set(output, [...list, node]);
    }
  }
  return found;
}

function fieldOf(edge: unknown, key: string): unknown {
  return typeof edge === "object" && edge !== null ? (edge as Record<string, unknown>)[key] : undefined;
}

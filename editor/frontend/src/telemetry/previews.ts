// Where a run's outputs are shown on the canvas: at the nodes whose edges feed them. Pure.
import type { GraphDocument } from "../document/types";
import { entries, flat } from "../document/tree";

/** Output name -> nodes with an edge to `@out.NAME` in a Walk of the task (of any Walk without a task). */
export function feeders(graph: GraphDocument, task?: string): Map<string, string[]> {
  const walks = task === undefined ? null : walksOf(graph, task);
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

/** Nodes that a task's Walks use: those that a run of it may call. */
export function nodesOf(graph: GraphDocument, task: string): Set<string> {
  const found = new Set<string>();
  for (const name of walksOf(graph, task)) {
    const walk = graph.walks?.[name];
    if (walk) for (const entry of flat(entries(walk))) if (entry.node) found.add(entry.node);
  }
  return found;
}

/** Walks that a task's steps name, at any depth. */
export function walksOf(graph: GraphDocument, task: string): Set<string> {
  const found = new Set<string>();
  const read = (value: unknown): void => {
    if (Array.isArray(value)) return value.forEach(read);
    if (typeof value !== "object" || value === null) return;
    for (const [key, child] of Object.entries(value)) {
      if (key === "walk" && typeof child === "string") found.add(child);
      else if (key !== "with") read(child);
    }
  };
  read(graph.tasks?.[task]?.steps);
  return found;
}

function fieldOf(edge: unknown, key: string): unknown {
  return typeof edge === "object" && edge !== null ? (edge as Record<string, unknown>)[key] : undefined;
}

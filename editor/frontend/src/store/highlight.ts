// Nodes that are pointed at in one view and marked in the others, by name.
import { useStore } from "zustand";
import { createStore } from "zustand/vanilla";
import { entries, flat } from "../document/tree";
import type { GraphDocument } from "../document/types";
import type { View } from "./types";

interface Highlight {
  nodes: ReadonlySet<string>;
}

const NONE: ReadonlySet<string> = new Set();

export const highlight = createStore<Highlight>(() => ({ nodes: NONE }));

/** Mark these nodes until others are marked; none: no node is marked. */
export function mark(nodes: readonly string[]): void {
  const now = highlight.getState().nodes;
  if (nodes.length === now.size && nodes.every((node) => now.has(node))) return;
  highlight.setState({ nodes: nodes.length ? new Set(nodes) : NONE });
}

/** True while a node is marked; renders only when that changes. */
export function useMarked(node: string): boolean {
  return useStore(highlight, ({ nodes }) => nodes.has(node));
}

/** The nodes of what is selected on the canvas: components themselves, or those that a Walk's uses call. */
export function selectedNodes(
  graph: GraphDocument,
  { canvas, selection }: Pick<View, "canvas" | "selection">,
): string[] {
  if (canvas.kind === "components")
    return selection.flatMap((id) => (id.startsWith("node:") ? [id.slice("node:".length)] : []));
  const walk = graph.walks?.[canvas.walk];
  if (!walk || selection.length === 0) return [];
  const wanted = new Set(selection);
  const found = flat(entries(walk)).flatMap((entry) => (entry.node && wanted.has(entry.id) ? [entry.node] : []));
  return [...new Set(found)];
}

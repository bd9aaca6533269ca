// Where on the canvas a difference can be seen. Pure.
import type { Difference } from "../document/diff";
import type { GraphDocument } from "../document/types";
import { locate } from "../store/locate";
import type { Canvas } from "../store/types";

export interface Shown {
  canvas: Canvas;
  selection: string[];
}

/** The canvas that shows the most of these, with what the open graph still has of them selected; null: none. */
export function shownBy(graph: GraphDocument, differences: readonly Difference[]): Shown | null {
  const found = new Map<string, Shown>();
  for (const difference of differences) {
    const shown = placeOf(graph, difference);
    if (!shown) continue;
    const key = shown.canvas.kind === "walk" ? `walk:${shown.canvas.walk}` : "components";
    const known = found.get(key);
    if (known) known.selection = [...new Set([...known.selection, ...shown.selection])];
    else found.set(key, shown);
  }
  const byMost = [...found.values()].sort((a, b) => b.selection.length - a.selection.length);
  return byMost[0] ?? null;
}

function placeOf(graph: GraphDocument, { kind, what, name, walk, pointer }: Difference): Shown | null {
  if (what === "task") return null;
  const held = walk ?? (what === "walk" ? name : undefined);
  if (held !== undefined && !(held in (graph.walks ?? {}))) return null;
  if (what === "node" && !(name in (graph.nodes ?? {}))) return null;
  const { canvas, selection } = locate(graph, pointer);
  // The pointer of what is gone says where it was: something else may stand there.
  return { canvas, selection: kind === "removed" && what !== "node" ? [] : selection };
}

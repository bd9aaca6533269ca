// Where on the canvas a difference can be seen. Pure.
import type { Difference } from "../document/diff";
import { split } from "../document/pointer";
import { entries, flat } from "../document/tree";
import type { GraphDocument } from "../document/types";
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

function placeOf(graph: GraphDocument, difference: Difference): Shown | null {
  const [section, first = "", part, ...rest] = split(difference.pointer);
  if (section === "nodes")
    return first in (graph.nodes ?? {}) ? { canvas: { kind: "components" }, selection: [`node:${first}`] } : null;
  if (section === "streams") {
    const known = graph.streams?.some((stream) => stream.name === difference.name);
    return known ? { canvas: { kind: "components" }, selection: [`stream:${difference.name}`] } : null;
  }
  const walk = section === "walks" ? graph.walks?.[first] : undefined;
  if (!walk) return null;
  const canvas: Canvas = { kind: "walk", walk: first, inside: null };
  if (difference.kind === "removed") return { canvas, selection: [] };
  if (part === "edges") return { canvas, selection: rest[0] !== undefined ? [`edge:${rest[0]}`] : [] };
  if (part === "inputs") return { canvas, selection: ["@in"] };
  if (part !== "body") return { canvas, selection: [] };
  const inside = ["", part, ...rest].join("/");
  const held = flat(entries(walk)).filter((each) => inside === each.pointer || inside.startsWith(`${each.pointer}/`));
  const item = held.at(-1);
  return { canvas, selection: item ? [item.id] : [] };
}

// Lining up what is selected: new places for the layout, whole containers moving with what is in them. Pure.
import { aligned, distributed, type Side } from "../../../canvas/shapes/geometry";
import { ModelMaker, placeKey } from "../../../canvas/model/model";
import type { Point } from "../../../canvas/shapes/types";
import type { Catalogue } from "../../../messages/answers";
import { place } from "../../../document/edits/parts/layout";
import type { GraphDocument } from "../../../document/types";
import type { Canvas } from "../../../store/types";

export type Arrangement = Side | "columns" | "rows";

export function arrange(
  graph: GraphDocument,
  canvas: Canvas,
  catalogue: Catalogue,
  ids: readonly string[],
  how: Arrangement,
): GraphDocument {
  const model = new ModelMaker().make({ graph, canvas, catalogue, problems: [], lit: null, ranks: new Map() });
  const parents = new Map(model.nodes.map((node) => [node.id, node.parentId ?? null]));
  const holder = (id: string, among: ReadonlySet<string>): string | null => {
    for (let at: string | null = id; at; at = parents.get(at) ?? null) if (among.has(at)) return at;
    return null;
  };
  const movable = ids.filter((id) => model.boxes.has(id) && parents.has(id));
  const outer = movable.filter((id) => !holder(parents.get(id) ?? "", new Set(movable)));
  if (outer.length < 2) return graph;
  const boxes = new Map(outer.map((id) => [id, model.boxes.get(id)!]));
  const corners =
    how === "columns" ? distributed(boxes, "x") : how === "rows" ? distributed(boxes, "y") : aligned(boxes, how);
  const moving = new Set(outer);
  const places: Record<string, Point> = {};
  for (const [id, [x, y]] of model.places) {
    const mover = holder(id, moving);
    if (mover === null) continue;
    const from = boxes.get(mover)!;
    const [left, top] = corners.get(mover)!;
    places[placeKey(canvas, id)] = [x + left - from.x, y + top - from.y];
  }
  return place(graph, canvas, places);
}

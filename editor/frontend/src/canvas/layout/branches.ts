// Places in a choice that was just put around steps: its branches below one another. Pure.
import { canvasLayout, place } from "../../document/edits/parts/layout";
import { factsOf } from "../../document/routes";
import { flat, type Entry } from "../../document/tree";
import type { Canvas, GraphDocument, ItemId } from "../../document/types";
import { CONTAINER_HEAD, union } from "../shapes/geometry";
import type { Model, Point, Rect } from "../shapes/types";

/** From the steps of one branch to those of the next: the frames of both, and a gap. */
const BETWEEN = CONTAINER_HEAD + 62;

/** `model`: as it was before, where the steps have their boxes. */
export function branchesStacked(
  graph: GraphDocument,
  canvas: Canvas,
  model: Model,
  walk: string,
  choice: ItemId,
): GraphDocument {
  const at = canvasLayout(graph, canvas).at ?? {};
  const entry = factsOf(graph.walks![walk]!).byId.get(choice);
  const groups = (entry?.children ?? []).flatMap((branch) => {
    const boxes = branch.children.flatMap((child) => boxOf(child, model));
    return boxes.length ? [{ branch, box: union(boxes) }] : [];
  });
  const left = Math.min(...groups.map(({ box }) => box.x));
  let top = groups[0]?.box.y ?? 0;
  const places: Record<string, Point> = {};
  for (const { branch, box } of groups) {
    for (const { id } of flat(branch.children)) {
      const point = at[id];
      if (point) places[id] = [point[0] + left - box.x, point[1] + top - box.y];
    }
    top += box.h + BETWEEN;
  }
  return place(graph, canvas, places);
}

function boxOf({ id, children }: Entry, model: Model): Rect[] {
  const box = model.boxes.get(id);
  if (!box) return children.flatMap((child) => boxOf(child, model));
  return [{ ...box, h: box.h + (model.below.get(id) ?? 0) }];
}

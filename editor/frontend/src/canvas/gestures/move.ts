// The result of a drag: new positions, and new parents for items dragged into or out of a container. Pure.
import { place, putFrame, putNote, canvasLayout } from "../../document/edits/parts/layout";
import { moveItems } from "../../document/edits/items";
import type { GraphDocument } from "../../document/types";
import type { Canvas } from "../../store/types";
import { center, holderAt, indexAt, snapped, type Holder } from "../shapes/geometry";
import { placeKey } from "../model/model";
import type { CanvasNode, Model, Point, Rect } from "../shapes/types";

export interface Moved {
  id: string;
  /** By how much, in canvas pixels. */
  by: Point;
}

export interface Reparent {
  ids: string[];
  parent: string | null;
  index: number;
}

const ITEMS = new Set(["use", "container", "fork"]);

/** Open containers that something can be put into. */
export function holdersOf(model: Model): Holder[] {
  const depth = new Map<string, number>();
  const holders: Holder[] = [];
  const branches = new Map<string, Holder[]>();
  for (const node of model.nodes) {
    depth.set(node.id, node.parentId ? (depth.get(node.parentId) ?? 0) + 1 : 0);
    if (node.data.kind !== "container" || node.data.closed) continue;
    const holder: Holder = { id: node.id, depth: depth.get(node.id) ?? 0, rect: model.boxes.get(node.id) as Rect };
    const { container, branch } = node.data;
    const choice = container === "choose";
    if (choice) branches.set(node.id, []);
    if (branch) branches.get(branch.choice)?.push(holder);
    holders.push(choice ? { ...holder, branches: branches.get(node.id)! } : holder);
  }
  return holders;
}

export function descendants(model: Model, id: string): CanvasNode[] {
  const found = new Set([id]);
  const list: CanvasNode[] = [];
  for (const node of model.nodes)
    if (node.parentId && found.has(node.parentId)) {
      found.add(node.id);
      list.push(node);
    }
  return list;
}

/** Where what was moved belongs now; empty where nobody changed hands. */
export function reparents(model: Model, moved: readonly Moved[], inside: string | null): Reparent[] {
  const nodes = new Map(model.nodes.map((node) => [node.id, node]));
  const dragged = moved.filter(({ id }) => {
    const data = nodes.get(id)?.data;
    return data !== undefined && ITEMS.has(data.kind) && !(data.kind === "container" && data.branch);
  });
  const without = new Set(dragged.flatMap(({ id }) => [id, ...descendants(model, id).map((node) => node.id)]));
  const holders = holdersOf(model);
  const groups = new Map<string, Reparent>();
  for (const { id, by } of dragged) {
    const box = model.boxes.get(id) as Rect;
    const point: Point = [center(box)[0] + by[0], center(box)[1] + by[1]];
    const parent = holderAt(holders, point, without)?.id ?? null;
    if (parent === (nodes.get(id)?.parentId ?? null)) continue;
    const group = groups.get(parent ?? "") ?? {
      ids: [],
      parent: parent ?? inside,
      index: siblingIndex(model, parent, point, without),
    };
    group.ids.push(id);
    groups.set(parent ?? "", group);
  }
  return [...groups.values()];
}

/** The position among the items of a container (or of the canvas) that a point stands for. */
export function siblingIndex(
  model: Model,
  parent: string | null,
  point: Point,
  without: ReadonlySet<string>,
): number {
  const siblings = model.nodes.filter((node) => (node.parentId ?? null) === parent && ITEMS.has(node.data.kind));
  const holder = model.nodes.find((node) => node.id === parent);
  const stacked = holder?.data.kind === "container" && holder.data.container === "parallel";
  const others = siblings.filter((node) => !without.has(node.id));
  const at = indexAt(
    others.map((node) => model.boxes.get(node.id) as Rect),
    point,
    stacked,
  );
  const next = others[at];
  return next ? siblings.indexOf(next) : siblings.length;
}

/** Everything where it is drawn now, in the document: what an edit of places begins with. */
export function settled(graph: GraphDocument, canvas: Canvas, model: Model): GraphDocument {
  return model.placed ? graph : place(graph, canvas, keyed(canvas, model.places));
}

function keyed(canvas: Canvas, places: ReadonlyMap<string, Point>): Record<string, Point> {
  return Object.fromEntries([...places].map(([id, point]) => [placeKey(canvas, id), point]));
}

/** The document after things were moved; containers take what is inside along. */
export function movedGraph(
  graph: GraphDocument,
  canvas: Canvas,
  model: Model,
  moved: readonly Moved[],
  snap: boolean,
): GraphDocument {
  const places = new Map<string, Point>();
  let made = settled(graph, canvas, model);
  const layout = canvasLayout(graph, canvas);
  for (const { id, by } of moved) {
    const shift = ([x, y]: Point): Point => (snap ? snapped([x + by[0], y + by[1]]) : [x + by[0], y + by[1]]);
    const note = layout.notes?.find((one) => `note:${one.id}` === id);
    const frame = layout.frames?.find((one) => `frame:${one.id}` === id);
    if (note) made = putNote(made, canvas, { ...note, at: shift(note.at) });
    else if (frame) made = putFrame(made, canvas, { ...frame, at: shift(frame.at) });
    else
      for (const one of [id, ...descendants(model, id).map((node) => node.id)]) {
        const point = model.places.get(one);
        if (point) places.set(one, shift(point));
      }
  }
  return place(made, canvas, keyed(canvas, places));
}

/** The same, with new parents where something was dragged into or out of a container. */
export function dropped(
  graph: GraphDocument,
  canvas: Canvas,
  model: Model,
  moved: readonly Moved[],
  options: { snap: boolean; keepParents: boolean },
): GraphDocument {
  let made = movedGraph(graph, canvas, model, moved, options.snap);
  if (canvas.kind !== "walk" || options.keepParents) return made;
  for (const { ids, parent, index } of reparents(model, moved, canvas.inside))
    made = moveItems(made, canvas.walk, ids, { parent, index });
  return made;
}

/** The contents of a frame: all items entirely inside it. */
export function framed(model: Model, frame: string): string[] {
  const area = model.boxes.get(frame);
  if (!area) return [];
  return model.nodes.flatMap((node) => {
    const box = model.boxes.get(node.id) as Rect;
    const within =
      box.x >= area.x && box.y >= area.y && box.x + box.w <= area.x + area.w && box.y + box.h <= area.y + area.h;
    return node.id !== frame && !node.parentId && within ? [node.id] : [];
  });
}

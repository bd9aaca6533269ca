// Something new on the canvas: from the palette, the quick list, or a wire that was let go. Pure.
import type { Catalogue } from "../../messages/answers";
import { insertOnEdge } from "../../document/edits/edges";
import {
  insertChoice,
  insertFork,
  insertLoop,
  insertMap,
  insertParallel,
  insertSequence,
  insertUse,
  type Place,
} from "../../document/edits/items";
import { freshId, place, putFrame, putNote } from "../../document/edits/parts/layout";
import { addNode } from "../../document/edits/nodes";
import { EditRefused } from "../../document/edits/parts/records";
import type { GraphDocument } from "../../document/types";
import type { Canvas } from "../../store/types";
import type { Payload } from "./dragging";
import { holderAt, overlap, snapped } from "../shapes/geometry";
import { ModelMaker, placeKey } from "../model/model";
import type { Model, Point, Rect } from "../shapes/types";
import { holdersOf, settled, siblingIndex } from "./move";
import { strings } from "../../strings";

export interface Inserted {
  graph: GraphDocument;
  /** On the canvas. */
  id: string;
}

interface Where {
  canvas: Canvas;
  model: Model;
  catalogue: Catalogue;
  /** The new thing's top left corner. */
  at: Point;
  /** The point that decides the container, if it is not the corner. */
  within?: Point;
  /** Into this edge of the Walk. */
  edge?: number | null;
}

export function inserted(graph: GraphDocument, payload: Payload, where: Where): Inserted {
  const { canvas, model } = where;
  const at = snapped(where.at);
  if (payload.kind === "note") {
    const id = freshId(graph, canvas, "note");
    return { graph: putNote(graph, canvas, { id, text: "", at, size: [200, 96] }), id: `note:${id}` };
  }
  if (payload.kind === "frame") {
    const id = freshId(graph, canvas, "frame");
    return {
      graph: putFrame(graph, canvas, { id, title: strings.canvas.frame, at, size: [360, 240] }),
      id: `frame:${id}`,
    };
  }
  const before = settled(graph, canvas, model);
  const made =
    canvas.kind === "components" ? onComponents(before, payload, where) : inWalk(before, payload, where, canvas.walk);
  const placed = place(made.graph, canvas, { [placeKey(canvas, made.id)]: at });
  return { graph: besideBorder(placed, made.id, where), id: made.id };
}

/** Pixels for the wires between something new and the Walk's inputs and outputs. */
const BESIDE = 48;

/** The inputs go left of something new that is too close to them, the outputs right of it. */
function besideBorder(graph: GraphDocument, id: string, { canvas, catalogue }: Where): GraphDocument {
  const model = new ModelMaker().make({ graph, canvas, catalogue, problems: [], lit: null, ranks: new Map() });
  const parents = new Map(model.nodes.map((node) => [node.id, node.parentId]));
  let outermost = id;
  for (let at = parents.get(id); at !== undefined; at = parents.get(at)) outermost = at;
  const added = model.boxes.get(outermost);
  if (!added) return graph;
  const room: Rect = { ...added, x: added.x - BESIDE, w: added.w + BESIDE * 2 };
  const beside = (border: string, x: (own: Rect) => number) => {
    const own = model.boxes.get(border);
    return own && overlap(own, room) ? { [border]: snapped([x(own), own.y]) } : {};
  };
  return place(graph, canvas, {
    ...beside("@in", (own) => added.x - BESIDE - own.w),
    ...beside("@out", () => added.x + added.w + BESIDE),
  });
}

function onComponents(graph: GraphDocument, payload: Payload, where: Where): Inserted {
  if (payload.kind !== "component") throw new EditRefused(strings.canvas.openAWalkFirst);
  const { graph: made, name } = addNode(graph, payload.component, { catalogue: where.catalogue });
  return { graph: made, id: `node:${name}` };
}

function inWalk(graph: GraphDocument, payload: Payload, where: Where, walk: string): Inserted {
  const to = placeAt({ ...where, at: where.within ?? where.at });
  switch (payload.kind) {
    case "component": {
      const { graph: made, name } = addNode(graph, payload.component, { catalogue: where.catalogue });
      return useOf(made, walk, name, to, where);
    }
    case "node":
      return useOf(graph, walk, payload.node, to, where);
    case "stream":
      if (where.canvas.kind === "walk" && where.canvas.inside)
        throw new EditRefused(strings.canvas.aStreamEntersTheWalk);
      return { graph, id: `@stream.${payload.stream}` };
    case "loop":
      return insertLoop(graph, walk, to);
    case "map":
      return insertMap(graph, walk, to);
    case "parallel":
      return insertParallel(graph, walk, to);
    case "sequence":
      return insertSequence(graph, walk, to);
    case "choose":
      return insertChoice(graph, walk, to);
    case "fork": {
      const states = Object.entries(graph.states ?? {}).filter(([, state]) => state.kind !== "rng");
      const [from, into] = states.map(([name]) => name);
      if (!from || !into) throw new EditRefused(strings.canvas.aForkCopiesOneState);
      return insertFork(graph, walk, from, into, to);
    }
    default:
      throw new EditRefused(strings.canvas.cantBePutIntoAWalk(payload.kind));
  }
}

function useOf(graph: GraphDocument, walk: string, node: string, to: Place, where: Where): Inserted {
  if (where.edge != null && where.edge >= 0) return insertOnEdge(graph, walk, where.edge, node, where.catalogue);
  return insertUse(graph, walk, node, to);
}

/** The container under a point and the position in it. */
export function placeAt({ canvas, model, at }: Pick<Where, "canvas" | "model" | "at">): Place {
  const nothing = new Set<string>();
  const holder = holderAt(holdersOf(model), at, nothing)?.id ?? null;
  const inside = canvas.kind === "walk" ? canvas.inside : null;
  return { parent: holder ?? inside, index: siblingIndex(model, holder, at, nothing) };
}

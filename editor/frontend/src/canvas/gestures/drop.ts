// Drops from the palette onto the canvas.
import type { Board } from "./board";
import { middle } from "./board";
import { payloadName, type DropTarget, type Payload } from "./dragging";
import type { Point } from "../shapes/types";
import { writeAtOnce } from "./fresh";
import { inserted, placeAt } from "./insert";
import type { GraphDocument } from "../../document/types";
import { addNode, EditRefused, insertOnEdge } from "../../document/edits";
import { attempt } from "./attempt";
import { strings } from "../../strings";

/** Half of a usual node, so that what is dropped lies under the pointer. */
const GRIP: Point = [88, 24];

export function dropTarget(board: Board, mark: (id: string | null | undefined) => void): DropTarget {
  const at = (x: number, y: number): Point => {
    const point = board.flow.screenToFlowPosition({ x, y });
    return [point.x, point.y];
  };
  return {
    over: (payload, x, y) => {
      const element = under(board, x, y);
      if (!element?.closest(".react-flow")) {
        mark(undefined);
        return null;
      }
      const edge = edgeUnder(board, payload, element);
      const { canvas } = board;
      const { parent } = placeAt({ canvas, model: board.model(), at: at(x, y) });
      const inItems = canvas.kind === "walk" && payload.kind !== "stream";
      const holder = inItems && parent !== canvas.inside ? parent : null;
      mark(holder ?? undefined);
      if (edge !== null) return strings.canvas.insertIntoThisWire;
      if (canvas.kind === "components") return payload.kind === "component" ? strings.canvas.addTheComponent : "add";
      if (payload.kind === "stream") return strings.canvas.readItsChunksInThis;
      return holder ? strings.canvas.addTo(holder.replace(/^(\w+):/, "$1 ")) : strings.canvas.addAStep;
    },
    drop: (payload, x, y) => {
      const [left, top] = at(x, y);
      const element = under(board, x, y);
      insertAt(board, payload, [left - GRIP[0], top - GRIP[1]], {
        edge: element ? edgeUnder(board, payload, element) : null,
        within: [left, top],
      });
      // Keys go on where the eyes are.
      board.root()?.focus({ preventScroll: true });
    },
    leave: () => mark(undefined),
    atCentre: (payload) => {
      const [x, y] = middle(board);
      insertAt(board, payload, free(board, [x - GRIP[0], y - GRIP[1]]));
    },
  };
}

interface Options {
  edge?: number | null;
  /** The point that decides about the container; the corner itself by default. */
  within?: Point;
  /** The rest of the same step: the wire to the new item. */
  then?: (graph: GraphDocument, id: string) => GraphDocument;
}

/** Puts it there as one step, and selects it; the id of what was made. */
export function insertAt(board: Board, payload: Payload, at: Point, options: Options = {}): string | null {
  const { editor, canvas } = board;
  const { catalogue } = editor.state;
  let id = "";
  const done = attempt(editor, strings.canvas.add(payloadName(payload)), (graph) => {
    const made = inserted(graph, payload, {
      canvas,
      model: board.model(),
      catalogue,
      at,
      edge: options.edge ?? null,
      ...(options.within && { within: options.within }),
    });
    id = made.id;
    return options.then ? options.then(made.graph, made.id) : made.graph;
  });
  if (!done) return null;
  if (payload.kind === "note") writeAtOnce(id);
  editor.select(id);
  board.announce(strings.canvas.added(payloadName(payload)));
  return id;
}

/** A spot near `at` with no node under it. */
function free(board: Board, [x, y]: Point): Point {
  const boxes = [...board.model().boxes.values()];
  for (let tries = 0; tries < 12; tries += 1) {
    const [left, top] = [x + tries * 24, y + tries * 24];
    if (!boxes.some((box) => Math.abs(box.x - left) < 12 && Math.abs(box.y - top) < 12)) return [left, top];
  }
  return [x, y];
}

function under(board: Board, x: number, y: number): Element | null {
  const home = board.root()?.getRootNode() as Document | ShadowRoot | undefined;
  return home?.elementFromPoint(x, y) ?? null;
}

/** True if the wire's type can go through it. */
function fits(board: Board, payload: Payload, edge: number, walk: string): boolean {
  const { graph } = board.editor;
  const { catalogue } = board.editor.state;
  try {
    const { graph: made, name } =
      payload.kind === "component"
        ? addNode(graph, payload.component, { catalogue })
        : { graph, name: payload.kind === "node" ? payload.node : "" };
    insertOnEdge(made, walk, edge, name, catalogue);
    return true;
  } catch (error) {
    if (error instanceof EditRefused) return false;
    throw error;
  }
}

function edgeUnder(board: Board, payload: Payload, element: Element): number | null {
  if (board.canvas.kind !== "walk" || (payload.kind !== "component" && payload.kind !== "node")) return null;
  const id = element.closest<HTMLElement>(".react-flow__edge")?.dataset["id"];
  const edge = id?.startsWith("edge:") ? Number(id.slice("edge:".length)) : null;
  return edge !== null && fits(board, payload, edge, board.canvas.walk) ? edge : null;
}

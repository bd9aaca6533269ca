import type { XYPosition } from "@xyflow/react";
import { setReroutes } from "../../document/edits/parts/layout";
import type { Board } from "./board";
import { slotFor } from "../edges/paths";
import { snapped } from "../shapes/geometry";
import type { CanvasEdge, Point } from "../shapes/types";
import { strings } from "../../strings";

/** A point on a wire where it was double-clicked, to be dragged. */
export function addReroute(board: Board, edge: CanvasEdge, at: XYPosition): void {
  if (!edge.data) return;
  const { from, to, points } = edge.data;
  const { x, y } = board.flow.screenToFlowPosition(at);
  const boxes = board.model().boxes;
  const [a, b] = [boxes.get(edge.source), boxes.get(edge.target)];
  if (!a || !b) return;
  const ends = { sx: a.x + a.w, sy: a.y + a.h / 2, tx: b.x, ty: b.y + b.h / 2 };
  const slot = slotFor(ends, points, [x, y]);
  const made: Point[] = [...points.slice(0, slot), snapped([x, y]), ...points.slice(slot)];
  board.editor.editGraph(strings.canvas.bendAWire, (graph) =>
    setReroutes(graph, board.canvas, `${from}>${to}`, made),
  );
}

import { useStore } from "@xyflow/react";
import { useEffect, useRef } from "react";
import type { Board } from "../gestures/board";
import { inSight, inWhole, union } from "../shapes/geometry";
import type { Model, Rect } from "../shapes/types";

/** Pixels of the canvas that its bar covers. */
const BAR = 54;

/**
 * An item that is selected from elsewhere (a problem, the outline) comes into sight, and stays there when the canvas gives room
 * to a panel below it. `fitted`: the canvas begins with all in sight.
 */
export function useFocusOn(board: Board, selection: readonly string[], fitted: boolean): void {
  const ready = useStore((state) => state.panZoom !== null);
  const height = useStore((state) => state.height);
  const fitting = useRef(fitted);
  const before = useRef(0);
  useEffect(() => {
    // A canvas that comes back may have less room than where it was left.
    const shrunk = height < before.current || before.current === 0;
    before.current = height;
    if (!ready) return;
    if (fitting.current) return void (fitting.current = false);
    const box = board.root()?.getBoundingClientRect();
    const rects = selection.flatMap((id) => rectOf(board.model(), id) ?? []);
    if (!box?.width || !rects.length) return;
    const view = board.flow.getViewport();
    // The bar lies over the canvas, at its bottom.
    const seen = shrunk
      ? rects.every((rect) => inWhole(rect, view, [box.width, box.height - BAR]))
      : rects.some((rect) => inSight(rect, view, [box.width, box.height]));
    if (seen) return;
    const { x, y, w, h } = union(rects);
    if (w * view.zoom > box.width || h * view.zoom > box.height - 2 * BAR)
      void board.flow.fitBounds({ x, y, width: w, height: h }, { padding: 0.25, duration: 200 });
    else void board.flow.setCenter(x + w / 2, y + h / 2, { zoom: view.zoom, duration: 200 });
  }, [board, selection, ready, height]);
}

/** For a wire: the rectangle between the middles of what it joins. */
function rectOf({ boxes, edges }: Model, id: string): Rect | null {
  const box = boxes.get(id);
  if (box) return box;
  const edge = edges.find((one) => one.id === id);
  const ends = edge ? [edge.source, edge.target].flatMap((end) => boxes.get(end) ?? []).map(middle) : [];
  return ends.length ? union(ends) : null;
}

function middle({ x, y, w, h }: Rect): Rect {
  return { x: x + w / 2, y: y + h / 2, w: 0, h: 0 };
}

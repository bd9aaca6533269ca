// Dragging chips between lanes, with the pointer held from press to drop. With Ctrl or Alt held at the drop they stay
// where they are, and get one more replica there. A chip's edge is dragged over the lanes that it is divided over.
import { useEffect, useRef, useState, type PointerEvent } from "react";
import type { Board } from "./board";
import type { Chip } from "../model/lanes";

const SLOP = 4;

export interface Drag {
  chips: Chip[];
  x: number;
  y: number;
  /** The lane under the pointer. */
  over: number | null;
  /** The lanes that a drop is for: that one, or all that the chip is divided over. */
  targets: readonly number[];
  /** The edge of the chip is dragged. */
  widens: boolean;
}

export interface DragSource {
  /** `widens`: the press is on the chip's edge. */
  onPointerDown: (event: PointerEvent<HTMLElement>, chip: Chip, widens?: boolean) => void;
}

/** The dragged item, and the handler for presses on chips. */
export function useDrag(board: Board): { drag: Drag | null; source: DragSource } {
  const [drag, setDrag] = useState<Drag | null>(null);
  const stop = useRef<(() => void) | null>(null);
  const latest = useRef(board);
  latest.current = board;
  useEffect(() => () => stop.current?.(), []);

  const onPointerDown = (event: PointerEvent<HTMLElement>, chip: Chip, widens = false) => {
    if (event.button !== 0 || board.fixed) return;
    event.stopPropagation();
    const element = event.currentTarget;
    const root = element.getRootNode() as Document | ShadowRoot;
    const start = { x: event.clientX, y: event.clientY };
    let current: Drag | null = null;
    const show = (next: Drag | null) => {
      current = next;
      setDrag(next);
    };
    const move = (to: globalThis.PointerEvent) => {
      if (!current && Math.hypot(to.clientX - start.x, to.clientY - start.y) < SLOP) return;
      element.setPointerCapture(to.pointerId);
      const over = laneAt(root, to.clientX, to.clientY);
      const targets = over === null ? [] : widens ? latest.current.spanned(chip, over) : [over];
      const chips = current?.chips ?? latest.current.taken(chip);
      show({ chips, x: to.clientX, y: to.clientY, over, targets, widens });
    };
    const end = (finish: boolean, more = false) => {
      const { chips = [], over = null } = current ?? {};
      stop.current?.();
      if (!finish || over === null) return;
      if (widens) latest.current.widen(chip, over);
      else latest.current[more ? "replicate" : "move"](chips, over);
    };
    const up = (at: globalThis.PointerEvent) => end(true, at.ctrlKey || at.altKey || at.metaKey);
    const cancel = () => end(false);
    const key = (pressed: KeyboardEvent) => {
      if (pressed.key !== "Escape" || !current) return;
      pressed.stopPropagation();
      end(false);
    };
    stop.current?.();
    stop.current = () => {
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", up);
      window.removeEventListener("pointercancel", cancel);
      window.removeEventListener("keydown", key, true);
      stop.current = null;
      show(null);
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", up);
    window.addEventListener("pointercancel", cancel);
    window.addEventListener("keydown", key, true);
  };
  return { drag, source: { onPointerDown } };
}

function laneAt(root: Document | ShadowRoot, x: number, y: number): number | null {
  const lane = root.elementFromPoint(x, y)?.closest<HTMLElement>("[data-lane]")?.dataset["lane"];
  return lane === undefined ? null : Number(lane);
}

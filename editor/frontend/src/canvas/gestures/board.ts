// The target of gestures, menus and keys: the open canvas with its model. One per mounted board.
import type { ReactFlowInstance } from "@xyflow/react";
import type { Editor } from "../../store/editor";
import type { Canvas } from "../../store/types";
import type { MenuEntry } from "../../ui/kit";
import type { CanvasEdge, CanvasNode, Model, Point } from "../shapes/types";

/** A menu that is open, and where. */
export interface OpenMenu {
  at: { x: number; y: number };
  entries: MenuEntry[];
}

export interface Board {
  editor: Editor;
  canvas: Canvas;
  flow: ReactFlowInstance<CanvasNode, CanvasEdge>;
  /** The latest. */
  model: () => Model;
  root: () => HTMLElement | null;
  /** Where the pointer was last, in canvas pixels; the middle of what is seen while it is elsewhere. */
  pointer: () => Point;
  /** Told to screen readers. */
  announce: (text: string) => void;
  /** The quick list: for something new, for what a wire goes to, or for what takes another's place. */
  openAdd: (at: { x: number; y: number }, purpose?: { wire?: Wiring; instead?: Replaced }) => void;
  /** A menu, to choose from. */
  ask: (menu: OpenMenu) => void;
}

/** The item to replace: a node, or one use of it. */
export interface Replaced {
  id: string;
  node: string;
}

/** A wire that hangs from one port. */
export interface Wiring {
  ref: string;
  end: "source" | "target";
  type: string;
}

export function walkOfBoard(board: Board): string | null {
  return board.canvas.kind === "walk" ? board.canvas.walk : null;
}

/** Ids of the selected items of a Walk: uses, containers, forks. */
export function itemsIn(board: Board, selection: readonly string[] = board.editor.state.view.selection): string[] {
  const kinds = new Set(["use", "container", "fork"]);
  const nodes = new Map(board.model().nodes.map((node) => [node.id, node]));
  return selection.filter((id) => board.canvas.kind === "walk" && kinds.has(nodes.get(id)?.data.kind ?? ""));
}

export function middle(board: Board): Point {
  const box = board.root()?.getBoundingClientRect();
  if (!box) return [0, 0];
  const { x, y } = board.flow.screenToFlowPosition({ x: box.left + box.width / 2, y: box.top + box.height / 2 });
  return [x, y];
}

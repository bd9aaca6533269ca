// Props with which rows of the table of steps move, and their indentation. Pure.
import type { Row } from "../model/rows";

export interface RowHandle {
  dragging: boolean;
  grab: (row: Row) => void;
  /** The drag has ended, dropped or not. */
  release: () => void;
  move: (row: Row, direction: -1 | 1) => void;
  menu: (row: Row, at: { x: number; y: number }) => void;
}

export function indent(depth: number): number {
  return 8 + depth * 14;
}

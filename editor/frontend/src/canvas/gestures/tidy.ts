// Lay out anew: all, or what is selected.
import { place } from "../../document/edits/layout";
import type { Board } from "../board";
import { elkLayout } from "../layout/elk";
import { placeKey } from "../model";
import { descendants, settled } from "./move";

export async function tidy(board: Board, ids: readonly string[] | null = null): Promise<void> {
  const { editor, canvas } = board;
  const model = board.model();
  const only = ids ? new Set(ids.flatMap((id) => [id, ...descendants(model, id).map((node) => node.id)])) : null;
  try {
    const places = await elkLayout(model, canvas, only);
    const keyed = Object.fromEntries([...places].map(([id, point]) => [placeKey(canvas, id), point]));
    editor.editGraph("Lay out", (graph) => place(settled(graph, canvas, model), canvas, keyed));
    board.announce(only ? "The selection is laid out anew" : "The canvas is laid out anew");
    if (!only) requestAnimationFrame(() => void board.flow.fitView({ padding: 0.08, maxZoom: 1, duration: 200 }));
  } catch (error) {
    editor.say(`The layout could not be made: ${error instanceof Error ? error.message : String(error)}`, "error");
  }
}

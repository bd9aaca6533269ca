// Lay out anew: all, or what is selected.
import { place } from "../../document/edits/parts/layout";
import type { Board } from "./board";
import { elkLayout } from "../layout/elk";
import { placeKey } from "../model/model";
import type { Model } from "../shapes/types";
import { descendants, settled } from "./move";
import { strings } from "../../strings";

export async function tidy(board: Board, ids: readonly string[] = []): Promise<void> {
  const { editor, canvas } = board;
  const model = board.model();
  const groups = groupsOf(model, ids);
  try {
    const made = groups.length
      ? await Promise.all(groups.map((group) => elkLayout(model, canvas, new Set(group))))
      : [await elkLayout(model, canvas, null)];
    const keyed = Object.fromEntries(
      made.flatMap((places) => [...places].map(([id, at]) => [placeKey(canvas, id), at])),
    );
    editor.editGraph(strings.canvas.layOut, (graph) => place(settled(graph, canvas, model), canvas, keyed));
    board.announce(groups.length ? strings.canvas.theSelectionWasLaidOut : strings.canvas.theCanvasWasLaidOut);
    if (!groups.length)
      requestAnimationFrame(() => void board.flow.fitView({ padding: 0.08, maxZoom: 1, duration: 200 }));
  } catch (error) {
    editor.say(strings.canvas.theLayoutFailed(error instanceof Error ? error.message : String(error)), "error");
  }
}

/**
 * The part of a selection that can be laid out: several that stand in one container, or an open container, with all inside; each
 * group by itself, as containers keep what is theirs. Empty: one thing has nothing to stand in line with.
 */
export function groupsOf(model: Model, ids: readonly string[]): string[][] {
  const chosen = new Set(ids.filter((id) => model.boxes.has(id)));
  const parents = new Map(model.nodes.map((node) => [node.id, node.parentId ?? null]));
  const isWithin = (id: string): boolean => {
    for (let at = parents.get(id) ?? null; at !== null; at = parents.get(at) ?? null) if (chosen.has(at)) return true;
    return false;
  };
  const groups = new Map<string | null, string[]>();
  for (const { id, parentId, data } of model.nodes) {
    if (!chosen.has(id) || isWithin(id) || data.kind === "note" || data.kind === "frame") continue;
    const parent = parentId ?? null;
    groups.set(parent, [...(groups.get(parent) ?? []), id]);
  }
  return [...groups.values()]
    .map((group) => group.flatMap((id) => [id, ...descendants(model, id).map((node) => node.id)]))
    .filter((group) => group.length > 1);
}

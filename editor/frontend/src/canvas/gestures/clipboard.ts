// Copy and paste through the system's clipboard as JSON; where that is refused, within this page.
import { copyItems, copyNodes, pasteItems, pasteNodes, readClip, type Clip } from "../../document/edits";
import type { GraphDocument } from "../../document/types";
import { itemsIn, walkOfBoard, type Board } from "./board";
import { remove } from "./commands";
import type { Point } from "../shapes/types";
import { attempt } from "./attempt";
import { placeAt } from "./insert";
import { settled } from "./move";
import { strings } from "../../strings";

let own: string | null = null;

function clipOf(board: Board): Clip | null {
  const { editor, canvas } = board;
  const walk = walkOfBoard(board);
  // With the places that are on screen, whether the document has them yet or not.
  const graph = settled(editor.graph, canvas, board.model());
  const items = itemsIn(board);
  if (walk !== null) return items.length ? copyItems(graph, walk, items) : null;
  const nodes = editor.state.view.selection.flatMap((id) => (id.startsWith("node:") ? id.slice("node:".length) : []));
  return nodes.length ? copyNodes(graph, nodes) : null;
}

/** True if there was anything to copy. */
export async function copy(board: Board): Promise<boolean> {
  const clip = clipOf(board);
  if (!clip) {
    board.editor.say(strings.canvas.selectWhatToCopyFirst);
    return false;
  }
  own = JSON.stringify(clip);
  board.announce(strings.canvas.copied);
  try {
    await navigator.clipboard.writeText(own);
  } catch {
    board.announce(strings.canvas.copiedForThisPageOnly);
  }
  return true;
}

export async function cut(board: Board): Promise<void> {
  if (await copy(board)) remove(board);
}

export async function paste(board: Board, keepIncoming: boolean): Promise<void> {
  const at = board.pointer();
  let text = "";
  try {
    text = await navigator.clipboard.readText();
  } catch {
    // Reading needs a permission that people may refuse; what this page copied is still there.
  }
  const clip = readClip(text) ?? readClip(own ?? "");
  if (clip) pasteClip(board, clip, keepIncoming, at);
  else board.editor.say(strings.canvas.thereIsNothingToPaste);
}

/** Beside what is selected, without touching the clipboard. */
export function duplicate(board: Board, keepIncoming = false): void {
  const clip = clipOf(board);
  if (clip) pasteClip(board, clip, keepIncoming, null);
}

function pasteClip(board: Board, clip: Clip, keepIncoming: boolean, at: Point | null): void {
  const { editor, canvas } = board;
  const walk = walkOfBoard(board);
  const model = board.model();
  let made: string[] = [];
  const where = at ? { at } : {};
  const change = (graph: GraphDocument): GraphDocument => {
    const before = settled(graph, canvas, model);
    if (walk === null) {
      const { graph: pasted, names } = pasteNodes(before, clip, where);
      made = names.map((name) => `node:${name}`);
      return pasted;
    }
    const place = placeAt({ canvas, model, at: at ?? beside(board) });
    const { graph: pasted, ids } = pasteItems(before, walk, clip, { keepIncoming, place, ...where });
    made = ids;
    return pasted;
  };
  if (!attempt(editor, at ? strings.canvas.paste : strings.canvas.duplicate, change)) return;
  editor.select(...made);
  board.announce(made.length === 1 ? strings.canvas.pasted1Item : strings.canvas.pastedItems(made.length));
}

/** The middle of what is selected. */
function beside(board: Board): Point {
  const box = board.editor.state.view.selection.map((id) => board.model().boxes.get(id)).find((one) => one);
  return box ? [box.x + box.w / 2 + 1, box.y + box.h / 2] : board.pointer();
}

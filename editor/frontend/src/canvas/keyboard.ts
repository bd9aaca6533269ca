// Keys of the canvas; those of the whole editor (undo, save, tabs) are the shell's.
import type { KeyboardEvent } from "react";
import { toggleTap } from "../taps/actions";
import { placeOfEdge } from "../taps/places";
import { middle, walkOfBoard, type Board } from "./gestures/board";
import { makeBlueprint } from "./gestures/blueprints";
import * as commands from "./gestures/commands";
import { GRID } from "./shapes/geometry";
import { copy, cut, duplicate, paste } from "./gestures/clipboard";
import { tidy } from "./gestures/tidy";
import type { Point } from "./shapes/types";
import { strings } from "../strings";

type Act = (board: Board, event: KeyboardEvent) => void;

const ARROWS: Record<string, Point> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** The action of a key here; `mod` is Ctrl or Cmd. */
const ACTS: Record<string, Act> = {
  delete: (board) => remove(board),
  backspace: (board) => remove(board),
  "shift+delete": (board) => remove(board, true),
  "mod+a": commands.selectAll,
  "mod+c": (board) => void copy(board),
  "mod+x": (board) => void cut(board),
  "mod+v": (board) => void paste(board, false),
  "mod+shift+v": (board) => void paste(board, true),
  "mod+d": (board) => duplicate(board),
  "shift+d": (board) => duplicate(board, true),
  "mod+m": (board) => commands.toggleMuted(board, "muted"),
  "mod+b": (board) => commands.toggleMuted(board, "bypassed"),
  "mod+shift+b": (board) => void makeBlueprint(board),
  "mod+g": (board) => commands.wrapSelection(board, "sequence"),
  "mod+shift+g": commands.unwrapSelection,
  "shift+enter": commands.enter,
  f: (board, event) => commands.fit(board, event.shiftKey),
  "shift+f": (board) => commands.fit(board, true),
  l: (board) => void tidy(board),
  "shift+l": (board) => void tidy(board, board.editor.state.view.selection),
  "1": (board) => void board.flow.zoomTo(1, { duration: 120 }),
  "+": (board) => void board.flow.zoomIn({ duration: 120 }),
  "=": (board) => void board.flow.zoomIn({ duration: 120 }),
  "-": (board) => void board.flow.zoomOut({ duration: 120 }),
  " ": (board) => openAddAtPointer(board),
  o: commands.toggleClosed,
  t: (board) => tap(board),
  enter: (board, event) => {
    const id = focused(event);
    if (id) board.editor.select(id);
  },
  escape: (board) => {
    if (board.editor.state.view.selection.length) board.editor.select();
    else commands.leave(board);
  },
};

/** Actions on the selection, or on the focused item if nothing is selected. */
const ON_SELECTION = new Set(
  "delete backspace shift+delete mod+c mod+x mod+d shift+d mod+m mod+b mod+shift+b mod+g mod+shift+g shift+enter o t".split(
    " ",
  ),
);

/** For the sheet of all keys. */
export const CANVAS_KEYS: readonly { label: string; keys: readonly string[] }[] = [
  { label: strings.canvas.addAtThePointer, keys: ["Space"] },
  { label: strings.canvas.delete, keys: ["Delete"] },
  { label: strings.canvas.deleteAndJoinWhat, keys: ["Shift+Delete"] },
  { label: strings.canvas.copyCutPaste, keys: ["Mod+C", "Mod+X", "Mod+V"] },
  { label: strings.canvas.pasteWithIncomingWires, keys: ["Mod+Shift+V"] },
  { label: strings.canvas.duplicate, keys: ["Mod+D"] },
  { label: strings.canvas.duplicateWithIncomingWires, keys: ["Shift+D"] },
  { label: strings.canvas.selectAll, keys: ["Mod+A"] },
  { label: strings.canvas.selectAnArea, keys: ["Shift+drag"] },
  { label: strings.canvas.muteBypass, keys: ["Mod+M", "Mod+B"] },
  { label: strings.canvas.makeABlueprint, keys: ["Mod+Shift+B"] },
  { label: strings.canvas.wrapInASequence, keys: ["Mod+G"] },
  { label: strings.canvas.unwrapAContainer, keys: ["Mod+Shift+G"] },
  { label: strings.canvas.openOrCloseAContainer, keys: ["O"] },
  { label: strings.canvas.enterAContainerLeave, keys: ["Shift+Enter", "Escape"] },
  { label: strings.canvas.moveWhatIsSelected, keys: ["Arrow keys"] },
  { label: strings.canvas.stayInTheContainerWhile, keys: ["Alt+drag"] },
  { label: strings.canvas.showAllShowTheSelection, keys: ["F", "Shift+F"] },
  { label: strings.canvas.layOutEverything, keys: ["L", "Shift+L"] },
  { label: strings.canvas.tapAnEdgeOrRemove, keys: ["T"] },
  { label: strings.canvas.zoomTo100InOut, keys: ["1", "+", "-"] },
];

export function onKey(event: KeyboardEvent, board: Board): void {
  const target = event.target as HTMLElement;
  if (event.defaultPrevented || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable) return;
  if (target.tagName === "BUTTON" && (event.key === " " || event.key === "Enter")) return;
  const act = ACTS[keyOf(event)];
  const arrow = event.ctrlKey || event.metaKey ? undefined : ARROWS[event.key];
  const id = focused(event);
  const none = !board.editor.state.view.selection.length;
  if (id && none && (arrow || ON_SELECTION.has(keyOf(event)))) board.editor.select(id);
  if (arrow && (id || !none)) {
    const step = event.shiftKey ? GRID * 4 : GRID;
    commands.nudge(board, [arrow[0] * step, arrow[1] * step]);
  } else if (act) act(board, event);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** The edge that is selected. */
function tap(board: Board): void {
  const walk = walkOfBoard(board);
  const { selection } = board.editor.state.view;
  const place = walk !== null && selection.length === 1 && placeOfEdge(board.editor.graph, walk, selection[0] ?? "");
  if (place) void toggleTap(board.editor, place);
}

/** The focus stays on the canvas when what had it goes. */
function remove(board: Board, bridge = false): void {
  commands.remove(board, bridge);
  board.root()?.focus({ preventScroll: true });
}

export function keyOf(event: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "shiftKey">): string {
  const key = event.key.toLowerCase();
  const shift = event.shiftKey && !"+=".includes(key) ? "shift+" : "";
  return `${event.ctrlKey || event.metaKey ? "mod+" : ""}${shift}${key}`;
}

function focused(event: KeyboardEvent): string | null {
  const element = (event.target as HTMLElement).closest<HTMLElement>(".react-flow__node, .react-flow__edge");
  return element?.dataset["id"] ?? null;
}

export function openAddAtPointer(board: Board): void {
  const [x, y] = board.pointer();
  const at = board.flow.flowToScreenPosition({ x, y });
  const [mx, my] = middle(board);
  board.openAdd(Number.isFinite(at.x) ? at : board.flow.flowToScreenPosition({ x: mx, y: my }));
}

// Actions of keys and menus on the open canvas. Each is one undoable step.
import {
  bypass,
  leaveStream,
  mute,
  removeFrame,
  removeItems,
  removeNode,
  removeNote,
  removeEdges,
  removeFromMerge,
  removeMerge,
  removeStream,
  setHead,
  setClosed,
  setResult,
  unbypass,
  unmute,
  unwrap,
  wrap,
  type WrapKind,
} from "../../document/edits";
import { factsOf } from "../../document/routes";
import type { GraphDocument } from "../../document/types";
import { itemsIn, walkOfBoard, type Board } from "./board";
import { aligned, distributed, type Side } from "../shapes/geometry";
import { attempt } from "./attempt";
import { branchesStacked } from "../layout/branches";
import { movedGraph, settled } from "./move";
import type { Point, Rect } from "../shapes/types";
import { strings } from "../../strings";

export function remove(board: Board, bridge = false): void {
  const { editor, canvas } = board;
  const { selection } = editor.state.view;
  const items = itemsIn(board);
  const walk = walkOfBoard(board);
  const known = new Set(selection);
  const done = attempt(editor, bridge ? strings.canvas.deleteAndJoin : strings.canvas.delete, (graph) => {
    let made = items.length || known.size ? settled(graph, canvas, board.model()) : graph;
    const before = made;
    if (walk !== null) {
      // Before all that takes other edges away: these are named by their numbers.
      const indices = selection.flatMap((id) => (id.startsWith("edge:") ? Number(id.slice("edge:".length)) : []));
      if (indices.length) made = removeEdges(made, walk, indices);
    }
    for (const id of inOrder(known)) made = removed(made, board, id);
    if (walk !== null) {
      if (items.length) made = removeItems(made, walk, items, { bridge, catalogue: editor.state.catalogue });
    }
    return made === before ? graph : made;
  });
  if (!done) return;
  const fixed = selection.filter((id) => id.startsWith("@") && !id.startsWith("@stream."));
  if (fixed.length === selection.length && fixed.length) editor.say(strings.canvas.inputsAndOutputsBelong);
  editor.select(...fixed);
  board.announce(strings.canvas.deleted);
}

/** Sources of merges from the last on, so that the numbers of the others stay; then the rest. */
function inOrder(ids: Iterable<string>): string[] {
  const number = (id: string) => Number(/^into:(\d+):/.exec(id)?.[1] ?? -1);
  return [...ids].sort((a, b) => number(b) - number(a));
}

function removed(graph: GraphDocument, { canvas }: Board, id: string): GraphDocument {
  const name = id.slice(id.indexOf(":") + 1);
  if (id.startsWith("note:")) return removeNote(graph, canvas, name);
  if (id.startsWith("frame:")) return removeFrame(graph, canvas, name);
  if (id.startsWith("stream:")) return removeStream(graph, name.replace(/#.*$/, ""));
  if (id.startsWith("@stream.") && canvas.kind === "walk")
    return leaveStream(graph, canvas.walk, id.slice("@stream.".length));
  if (id.startsWith("node:")) return removeNode(graph, name);
  if (canvas.kind === "walk" && /^(merge|into|head):/.test(id)) return unmerged(graph, canvas.walk, id);
  if (id.startsWith("result:") && canvas.kind === "walk") return setResult(graph, canvas.walk, name, null);
  return graph;
}

/** Without a merge, one wire into it, or what a head takes; what is gone already stays so. */
function unmerged(graph: GraphDocument, walk: string, id: string): GraphDocument {
  const [kind = "", ...rest] = id.split(":");
  const facts = factsOf(graph.walks![walk]!);
  const name = rest.join(":");
  if (kind === "head") return facts.byId.has(name) ? setHead(graph, walk, name, null) : graph;
  if (kind === "merge") return facts.merges.has(name) ? removeMerge(graph, walk, name) : graph;
  const merge = rest.slice(1).join(":");
  return facts.merges.has(merge) ? removeFromMerge(graph, walk, merge, Number(rest[0])) : graph;
}

export function wrapSelection(board: Board, kind: WrapKind): void {
  const walk = walkOfBoard(board);
  const items = itemsIn(board);
  if (walk === null || !items.length) return board.editor.say(strings.canvas.selectTheStepsToWrap);
  let made = "";
  const done = attempt(board.editor, strings.canvas.wrap(kindWord(kind)), (graph) => {
    const wrapped = wrap(settled(graph, board.canvas, board.model()), walk, items, kind);
    made = wrapped.id;
    if (kind !== "choose") return wrapped.graph;
    return branchesStacked(wrapped.graph, board.canvas, board.model(), walk, wrapped.id);
  });
  if (!done) return;
  board.editor.select(made);
  board.announce(strings.canvas.wrapped(kindWord(kind)));
}

function kindWord(kind: WrapKind): string {
  return kind === "choose" ? strings.canvas.choice : kind;
}

export function unwrapSelection(board: Board): void {
  const walk = walkOfBoard(board);
  const held = itemsIn(board).filter((id) => /^(loop|map|parallel|sequence|choose):/.test(id));
  if (walk === null || !held.length) return;
  // From the last on, so that the numbers in the others' ids stay.
  const change = (graph: GraphDocument) =>
    [...held].reverse().reduce((made, id) => unwrap(made, walk, id), settled(graph, board.canvas, board.model()));
  if (attempt(board.editor, strings.canvas.unwrap, change)) board.editor.select();
}

export function toggleMuted(board: Board, how: "muted" | "bypassed"): void {
  const walk = walkOfBoard(board);
  const items = itemsIn(board);
  if (walk === null || !items.length) return;
  const states = new Map(board.model().nodes.map((node) => [node.id, "muted" in node.data ? node.data.muted : ""]));
  const off = items.every((id) => states.get(id) === how);
  const [on, back] = how === "muted" ? [mute, unmute] : [bypass, unbypass];
  const word = how === "muted" ? strings.canvas.mute : strings.canvas.bypass;
  const { catalogue } = board.editor.state;
  const done = attempt(board.editor, off ? strings.canvas.clear(word) : word, (graph) =>
    off ? back(graph, walk, items) : on(graph, walk, items, catalogue),
  );
  if (done) board.announce(off ? strings.canvas.noLonger(how) : `${items.length} ${how}`);
}

export function toggleClosed(board: Board): void {
  const { canvas, editor } = board;
  const held = board.model().nodes.filter((node) => editor.state.view.selection.includes(node.id));
  attempt(editor, strings.canvas.openOrClose, (graph) => {
    let made = settled(graph, canvas, board.model());
    for (const { id, data } of held) if (data.kind === "container") made = setClosed(made, canvas, id, !data.closed);
    return made;
  });
}

export function enter(board: Board): void {
  const walk = walkOfBoard(board);
  const id = itemsIn(board).find((one) => /^(loop|map|parallel|sequence|choose|case|otherwise):/.test(one));
  if (walk !== null && id) board.editor.open({ kind: "walk", walk, inside: id });
}

/** Up to the canvas around the one that was entered. */
export function leave(board: Board): boolean {
  const { canvas, editor } = board;
  if (canvas.kind !== "walk" || canvas.inside === null) return false;
  editor.open({ kind: "walk", walk: canvas.walk, inside: null }, [canvas.inside]);
  return true;
}

export function nudge(board: Board, by: Point): void {
  const { editor, canvas } = board;
  const model = board.model();
  const chosen = new Set(editor.state.view.selection);
  const nodes = new Map(model.nodes.map((node) => [node.id, node]));
  const top = [...chosen].filter((id) => {
    for (let at = nodes.get(id)?.parentId; at; at = nodes.get(at)?.parentId) if (chosen.has(at)) return false;
    return nodes.has(id);
  });
  const moved = top.map((id) => ({ id, by }));
  if (moved.length)
    editor.editGraph(strings.canvas.move, (graph) => movedGraph(graph, canvas, model, moved, false), "canvas-nudge");
}

function chosenBoxes(board: Board): Map<string, Rect> {
  const model = board.model();
  const found = new Map<string, Rect>();
  for (const id of board.editor.state.view.selection) {
    const box = model.boxes.get(id);
    if (box) found.set(id, box);
  }
  return found;
}

function moveTo(board: Board, label: string, places: ReadonlyMap<string, Point>): void {
  const { canvas, editor } = board;
  const model = board.model();
  const moved = [...places].map(([id, [x, y]]) => {
    const box = model.boxes.get(id) as Rect;
    return { id, by: [x - box.x, y - box.y] as Point };
  });
  editor.editGraph(label, (graph) => movedGraph(graph, canvas, model, moved, false));
}

export function align(board: Board, side: Side): void {
  const boxes = chosenBoxes(board);
  if (boxes.size > 1) moveTo(board, strings.canvas.align(side), aligned(boxes, side));
}

export function distribute(board: Board, axis: "x" | "y"): void {
  const boxes = chosenBoxes(board);
  if (boxes.size > 2) moveTo(board, strings.canvas.distribute, distributed(boxes, axis));
}

export function selectAll(board: Board): void {
  board.editor.select(...board.model().nodes.map((node) => node.id));
}

export function fit(board: Board, selectionOnly: boolean): void {
  const chosen = board.editor.state.view.selection.map((id) => ({ id }));
  const options = { padding: selectionOnly ? 0.3 : 0.08, maxZoom: selectionOnly ? 1.25 : 1, duration: 200 };
  void board.flow.fitView(selectionOnly && chosen.length ? { ...options, nodes: chosen } : options);
}

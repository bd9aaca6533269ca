// Context menus of the canvas.
import { breakEntries, selectedSpots } from "../debug/model/actions";
import { makeCarried, makeForward, setEdge } from "../document/edits";
import type { GraphDocument } from "../document/types";
import { setReroutes } from "../document/edits/parts/layout";
import { tapEntries } from "../taps/actions";
import { placeOf, placeOfEdge } from "../taps/places";
import type { MenuEntry } from "../ui/kit";
import { itemsIn, walkOfBoard, type Board, type OpenMenu } from "./gestures/board";
import * as commands from "./gestures/commands";
import { attempt } from "./gestures/attempt";
import { copy, cut, duplicate, paste } from "./gestures/clipboard";
import { insertAt } from "./gestures/drop";
import { groupsOf, tidy } from "./gestures/tidy";
import type { Side } from "./shapes/geometry";
import type { CanvasEdge, CanvasNode } from "./shapes/types";

type At = OpenMenu["at"];

export function nodeMenu(board: Board, node: CanvasNode, at: At): OpenMenu {
  const { selection } = board.editor.state.view;
  const many = selection.length > 1;
  const items = itemsIn(board);
  const walk = walkOfBoard(board);
  const entries: MenuEntry[] = [];
  if (node.data.kind === "container" && !many) {
    const { closed } = node.data;
    entries.push(
      { label: closed ? "Open" : "Close", keys: "O", run: () => commands.toggleClosed(board) },
      { label: "Enter: show its inside alone", keys: "Shift+Enter", run: () => commands.enter(board) },
      { label: "Unwrap: take the container away", keys: "Mod+Shift+G", run: () => commands.unwrapSelection(board) },
    );
  }
  if (node.data.kind === "use" && walk !== null && !many) {
    const id = `node:${node.data.node}`;
    entries.push({ label: "Show on Components", run: () => board.editor.open({ kind: "components" }, [id]) });
  }
  if (node.data.kind === "use" && !many) {
    const instead = { id: node.id, node: node.data.node };
    entries.push(
      { label: "Replace with…", run: () => board.openAdd(at, { instead }) },
      ...breakEntries(board.editor, selectedSpots(board.editor)),
    );
  }
  entries.push(
    { label: "Copy", keys: "Mod+C", apart: entries.length > 0, run: () => void copy(board) },
    { label: "Cut", keys: "Mod+X", run: () => void cut(board) },
    { label: "Duplicate", keys: "Mod+D", run: () => duplicate(board) },
  );
  if (items.length) {
    entries.push({ label: "Duplicate with incoming wires", keys: "Shift+D", run: () => duplicate(board, true) });
    entries.push(...wraps(board), ...mutes(board, node));
  }
  if (many) entries.push(...lines(board));
  if (groupsOf(board.model(), selection).length)
    entries.push({
      label: many ? "Lay out the selection" : "Lay out what is inside",
      keys: "Shift+L",
      apart: !many,
      run: () => void tidy(board, selection),
    });
  entries.push({ label: "Delete", keys: "Del", apart: true, run: () => commands.remove(board) });
  if (items.length)
    entries.push({
      label: "Delete and join what it connected",
      keys: "Shift+Del",
      run: () => commands.remove(board, true),
    });
  return { at, entries };
}

function wraps(board: Board): MenuEntry[] {
  return [
    { label: "Wrap into a Loop", apart: true, run: () => commands.wrapSelection(board, "loop") },
    { label: "Wrap into a Parallel", run: () => commands.wrapSelection(board, "parallel") },
    { label: "Wrap into a Sequence", keys: "Mod+G", run: () => commands.wrapSelection(board, "sequence") },
  ];
}

function mutes(board: Board, node: CanvasNode): MenuEntry[] {
  const muted = "muted" in node.data ? node.data.muted : "";
  return [
    {
      label: muted === "muted" ? "Let it run again" : "Mute: never run it",
      keys: "Mod+M",
      apart: true,
      run: () => commands.toggleMuted(board, "muted"),
    },
    {
      label: muted === "bypassed" ? "Bypass no more" : "Bypass: pass its input on",
      keys: "Mod+B",
      run: () => commands.toggleMuted(board, "bypassed"),
    },
  ];
}

function lines(board: Board): MenuEntry[] {
  const side = (label: string, to: Side, apart = false): MenuEntry => ({
    label,
    apart,
    run: () => commands.align(board, to),
  });
  return [
    side("Align left", "left", true),
    side("Align right", "right"),
    side("Align tops", "top"),
    side("Align bottoms", "bottom"),
    { label: "Even gaps across", run: () => commands.distribute(board, "x") },
    { label: "Even gaps down", run: () => commands.distribute(board, "y") },
  ];
}

export function edgeMenu(board: Board, edge: CanvasEdge, at: At): OpenMenu {
  const walk = walkOfBoard(board);
  const { data } = edge;
  const place = walk === null ? null : placeOfEdge(board.editor.graph, walk, edge.id);
  const entries: MenuEntry[] = data ? tapEntries(board.editor, place ?? placeOf(walk, data.from)) : [];
  const taps = entries.length > 0;
  const change = (label: string, edit: (graph: GraphDocument) => GraphDocument, apart = false): MenuEntry => ({
    label,
    apart,
    run: () => void attempt(board.editor, label, edit),
  });
  if (walk !== null && data && data.index >= 0 && data.kind === "wire") {
    const each = data.chips.includes("each");
    const all = data.chips.includes("all");
    entries.push(
      change(
        each ? "Not each by itself" : "Each: one value an iteration",
        (graph) => setEdge(graph, walk, data.index, { each: !each, ...(each ? {} : { collect: false }) }),
        taps,
      ),
      change(all ? "Only the last value" : "Collect the values of all iterations", (graph) =>
        setEdge(graph, walk, data.index, { collect: !all, ...(all ? {} : { each: false }) }),
      ),
      data.carried
        ? change("Use it in the same iteration", (graph) => makeForward(graph, walk, data.index))
        : change("Carry it to the next iteration", (graph) => makeCarried(graph, walk, data.index)),
    );
  }
  if (data?.points.length)
    entries.push(change("Straighten", (graph) => setReroutes(graph, board.canvas, `${data.from}>${data.to}`, [])));
  entries.push(
    { label: "Select what it comes from", apart: entries.length > 0, run: () => board.editor.select(edge.source) },
    { label: "Select what it goes to", run: () => board.editor.select(edge.target) },
  );
  if (!edge.id.startsWith("wire:"))
    entries.push({ label: "Delete", keys: "Del", apart: true, run: () => commands.remove(board) });
  return { at, entries };
}

export function paneMenu(board: Board, at: At): OpenMenu {
  const { x, y } = board.flow.screenToFlowPosition(at);
  const put = (kind: "loop" | "parallel" | "sequence" | "fork" | "note" | "frame", label: string): MenuEntry => ({
    label,
    run: () => void insertAt(board, { kind }, [x, y]),
  });
  const walk = walkOfBoard(board) !== null;
  return {
    at,
    entries: [
      { label: walk ? "Add a step…" : "Add a component…", keys: "Space", run: () => board.openAdd(at) },
      ...(walk
        ? [
            put("loop", "Add a Loop"),
            put("parallel", "Add a Parallel"),
            put("sequence", "Add a Sequence"),
            put("fork", "Add a Fork"),
          ]
        : []),
      put("note", "Add a note"),
      put("frame", "Add a frame"),
      { label: "Paste", keys: "Mod+V", apart: true, run: () => void paste(board, false) },
      { label: "Paste with incoming wires", keys: "Mod+Shift+V", run: () => void paste(board, true) },
      { label: "Select all", keys: "Mod+A", run: () => commands.selectAll(board) },
      { label: "Lay out all anew", keys: "L", apart: true, run: () => void tidy(board) },
      { label: "Show all", keys: "F", run: () => commands.fit(board, false) },
    ],
  };
}

// Context menus of the canvas.
import { breakEntries, selectedSpots } from "../debug/model/actions";
import {
  addCase,
  addOtherwise,
  makeCarried,
  makeForward,
  removeMerge,
  setEdge,
  type WithId,
} from "../document/edits";
import { factsOf, mapLeft } from "../document/routes";
import type { GraphDocument } from "../document/types";
import { setReroutes } from "../document/edits/parts/layout";
import { tapEntries } from "../taps/actions";
import { placeOf, placeOfEdge } from "../taps/places";
import type { MenuEntry } from "../ui/kit";
import { itemsIn, walkOfBoard, type Board, type OpenMenu } from "./gestures/board";
import * as commands from "./gestures/commands";
import { attempt } from "./gestures/attempt";
import {
  addOtherWalk,
  blueprintAt,
  exportBlueprint,
  makeBlueprint,
  saveBlueprint,
  takeBlueprint,
  unpackBlueprint,
} from "./gestures/blueprints";
import { copy, cut, duplicate, paste } from "./gestures/clipboard";
import type { Flow } from "./gestures/dragging";
import { insertAt } from "./gestures/drop";
import { groupsOf, tidy } from "./gestures/tidy";
import type { Side } from "./shapes/geometry";
import type { CanvasEdge, CanvasNode, ContainerData, MergeData } from "./shapes/types";
import { strings } from "../strings";

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
      {
        label: closed ? strings.canvas.open : strings.canvas.close,
        keys: "O",
        run: () => commands.toggleClosed(board),
      },
      { label: strings.canvas.enterShowOnlyItsContents, keys: "Shift+Enter", run: () => commands.enter(board) },
    );
    if (!node.data.branch)
      entries.push({
        label: strings.canvas.unwrapRemoveTheContainer,
        keys: "Mod+Shift+G",
        run: () => commands.unwrapSelection(board),
      });
    if (node.data.container === "choose") entries.push(...casesMenu(board, node.data));
  }
  if (node.data.kind === "merge" && !many) entries.push(...mergeMenu(board, node.data));
  if (node.data.kind === "use" && walk !== null && !many) {
    const id = `node:${node.data.node}`;
    entries.push({
      label: strings.canvas.showOnComponents,
      run: () => board.editor.open({ kind: "components" }, [id]),
    });
  }
  if (node.data.kind === "use" && !many) {
    const instead = { id: node.id, node: node.data.node };
    entries.push(
      { label: strings.canvas.replace2, run: () => board.openAdd(at, { instead }) },
      ...breakEntries(board.editor, selectedSpots(board.editor)),
      ...blueprintMenu(board, node.data.node),
    );
  }
  if (items.length || node.data.kind !== "merge")
    entries.push(
      { label: strings.canvas.copy, keys: "Mod+C", apart: entries.length > 0, run: () => void copy(board) },
      { label: strings.canvas.cut, keys: "Mod+X", run: () => void cut(board) },
      { label: strings.canvas.duplicate, keys: "Mod+D", run: () => duplicate(board) },
    );
  if (items.length) {
    entries.push({
      label: strings.canvas.duplicateWithIncomingWires,
      keys: "Shift+D",
      run: () => duplicate(board, true),
    });
    const branches = items.some((id) => /^(case|otherwise):/.test(id));
    if (!branches)
      entries.push(
        ...wraps(board),
        { label: strings.canvas.makeABlueprint, keys: "Mod+Shift+B", run: () => void makeBlueprint(board) },
        ...mutes(board, node),
      );
  }
  if (many) entries.push(...lines(board));
  if (groupsOf(board.model(), selection).length)
    entries.push({
      label: many ? strings.canvas.layOutTheSelection : strings.canvas.layOutTheContents,
      keys: "Shift+L",
      apart: !many,
      run: () => void tidy(board, selection),
    });
  entries.push({ label: strings.canvas.delete, keys: "Del", apart: true, run: () => commands.remove(board) });
  if (items.length)
    entries.push({
      label: strings.canvas.deleteAndJoinWhat2,
      keys: "Shift+Del",
      run: () => commands.remove(board, true),
    });
  return { at, entries };
}

/** The actions on the blueprint that a node stands for. */
function blueprintMenu({ editor }: Board, node: string): MenuEntry[] {
  const name = blueprintAt(editor.graph, node);
  if (name === null) return [];
  const origin = editor.graph.blueprints![name]!.origin?.name;
  const entries = [
    { label: strings.canvas.openABlueprint, apart: true, run: () => editor.see({ opened: name, selection: [] }) },
    { label: strings.canvas.unpackABlueprint, run: () => void unpackBlueprint(editor, node) },
    { label: strings.canvas.saveToTheLibrary, run: () => void saveBlueprint(editor, name) },
    { label: strings.canvas.exportAsAFile, run: () => void exportBlueprint(editor, name) },
  ];
  const update = { label: strings.canvas.updateABlueprint, run: () => void takeBlueprint(editor, origin, name) };
  return origin ? [...entries, update] : entries;
}

function casesMenu(board: Board, { walk, id, head, otherwise }: ContainerData): MenuEntry[] {
  const add = (label: string, change: (graph: GraphDocument) => WithId): MenuEntry => ({
    label,
    run: () => {
      let made = "";
      const done = attempt(board.editor, label, (graph) => {
        const answer = change(graph);
        made = answer.id;
        return answer.graph;
      });
      if (done) board.editor.select(made);
    },
  });
  const type = head?.port.type || null;
  const entries = [add(strings.canvas.addACase, (graph) => addCase(graph, walk, id, undefined, type))];
  if (!otherwise)
    entries.push(add(strings.canvas.addABranchForOtherValues, (graph) => addOtherwise(graph, walk, id)));
  return entries.map((entry, index) => ({ ...entry, apart: index === 0 }));
}

/** The sources that the readers of a merge can have instead. */
function mergeMenu(board: Board, { walk, name, sources }: MergeData): MenuEntry[] {
  return sources.map((source) => ({
    label: strings.canvas.useOnlyWithSource(source),
    run: () =>
      void attempt(board.editor, strings.canvas.removeAMerge, (graph) => removeMerge(graph, walk, name, source)),
  }));
}

function wraps(board: Board): MenuEntry[] {
  return [
    { label: strings.canvas.wrapInALoop, apart: true, run: () => commands.wrapSelection(board, "loop") },
    { label: strings.canvas.wrapInAMap, run: () => commands.wrapSelection(board, "map") },
    { label: strings.canvas.wrapInAParallel, run: () => commands.wrapSelection(board, "parallel") },
    { label: strings.canvas.wrapInAChoice, run: () => commands.wrapSelection(board, "choose") },
    { label: strings.canvas.wrapInASequence, keys: "Mod+G", run: () => commands.wrapSelection(board, "sequence") },
  ];
}

function mutes(board: Board, node: CanvasNode): MenuEntry[] {
  const muted = "muted" in node.data ? node.data.muted : "";
  return [
    {
      label: muted === "muted" ? strings.canvas.unmute : strings.canvas.muteNeverRun,
      keys: "Mod+M",
      apart: true,
      run: () => commands.toggleMuted(board, "muted"),
    },
    {
      label: muted === "bypassed" ? strings.canvas.removeTheBypass : strings.canvas.bypassPassItsInputThrough,
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
    side(strings.canvas.alignLeft, "left", true),
    side(strings.canvas.alignRight, "right"),
    side(strings.canvas.alignTops, "top"),
    side(strings.canvas.alignBottoms, "bottom"),
    { label: strings.canvas.evenGapsAcross, run: () => commands.distribute(board, "x") },
    { label: strings.canvas.evenGapsDown, run: () => commands.distribute(board, "y") },
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
    const all = data.chips.includes("all") || data.chips.includes("list");
    const out = data.to.startsWith("@out.");
    const facts = factsOf(board.editor.graph.walks![walk]!);
    // Out of a map one of the two is needed, so that neither can be taken away alone.
    const needed = mapLeft(facts, facts.routes[data.index]!) !== null;
    if (!(needed && out && each))
      entries.push(
        change(
          each ? strings.canvas.holdTheSameValue : strings.canvas.eachOneSlicePerIteration,
          (graph) => setEdge(graph, walk, data.index, { each: !each, ...(each || !out ? {} : { collect: false }) }),
          taps,
        ),
      );
    if (!(needed && all))
      entries.push(
        change(all ? strings.canvas.onlyTheLastValue : strings.canvas.collectTheValuesOfAll, (graph) =>
          setEdge(graph, walk, data.index, { collect: !all, ...(all || !out ? {} : { each: false }) }),
        ),
      );
    entries.push(
      data.carried
        ? change(strings.canvas.useItInTheSameIteration, (graph) => makeForward(graph, walk, data.index))
        : change(strings.canvas.carryItToTheNext, (graph) => makeCarried(graph, walk, data.index)),
    );
  }
  if (data?.points.length)
    entries.push(
      change(strings.canvas.straighten, (graph) => setReroutes(graph, board.canvas, `${data.from}>${data.to}`, [])),
    );
  entries.push(
    { label: strings.canvas.selectItsSource, apart: entries.length > 0, run: () => board.editor.select(edge.source) },
    { label: strings.canvas.selectItsTarget, run: () => board.editor.select(edge.target) },
  );
  if (!edge.id.startsWith("wire:"))
    entries.push({ label: strings.canvas.delete, keys: "Del", apart: true, run: () => commands.remove(board) });
  return { at, entries };
}

export function paneMenu(board: Board, at: At): OpenMenu {
  const { x, y } = board.flow.screenToFlowPosition(at);
  const put = (kind: Flow | "note" | "frame", label: string): MenuEntry => ({
    label,
    run: () => void insertAt(board, { kind }, [x, y]),
  });
  const walk = walkOfBoard(board) !== null;
  return {
    at,
    entries: [
      {
        label: walk ? strings.canvas.addAStep2 : strings.canvas.addAComponent,
        keys: "Space",
        run: () => board.openAdd(at),
      },
      ...(walk
        ? [
            put("loop", strings.canvas.addALoop),
            put("map", strings.canvas.addAMap),
            put("parallel", strings.canvas.addAParallel),
            put("sequence", strings.canvas.addASequence),
            put("choose", strings.canvas.addAChoice),
            put("fork", strings.canvas.addAFork),
          ]
        : []),
      { label: strings.canvas.addAnotherGraphsWalk, apart: true, run: () => void addOtherWalk(board, at, [x, y]) },
      put("note", strings.canvas.addANote),
      put("frame", strings.canvas.addAFrame),
      { label: strings.canvas.paste, keys: "Mod+V", apart: true, run: () => void paste(board, false) },
      { label: strings.canvas.pasteWithIncomingWires, keys: "Mod+Shift+V", run: () => void paste(board, true) },
      { label: strings.canvas.selectAll, keys: "Mod+A", run: () => commands.selectAll(board) },
      { label: strings.canvas.layOutEverythingAgain, keys: "L", apart: true, run: () => void tidy(board) },
      { label: strings.canvas.showAll, keys: "F", run: () => commands.fit(board, false) },
    ],
  };
}

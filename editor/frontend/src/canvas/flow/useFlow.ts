// The model as React Flow's props: selection and drags laid over it, nothing of them in the model.
import { useStoreApi, type EdgeChange, type NodeChange, type OnNodeDrag } from "@xyflow/react";
import { useCallback, useMemo, useRef, useState } from "react";
import { ranksOf } from "../../placement/model/ranks";
import { useEditor, useEditorState } from "../../store/react";
import type { Canvas } from "../../store/types";
import { attempt } from "../gestures/attempt";
import { dropped, framed, reparents, type Moved } from "../gestures/move";
import { canvasLayout, putFrame, putNote } from "../../document/edits/parts/layout";
import { ModelMaker } from "../model/model";
import type { CanvasEdge, CanvasNode, Model, Point } from "../shapes/types";
import { strings } from "../../strings";

/** Where a node is while it is dragged or resized, before the document knows. */
interface Held {
  position?: { x: number; y: number };
  size?: { width: number; height: number };
}

const NO_RANKS: ReadonlyMap<string, number[]> = new Map();

export function useModel(canvas: Canvas): Model {
  const documents = useEditorState((state) => state.documents);
  const planned = useEditorState((state) => state.planned);
  const catalogue = useEditorState((state) => state.catalogue);
  const problems = useEditorState((state) => state.checked.problems);
  const lit = useEditorState((state) => state.view.lit);
  const lens = useEditorState((state) => state.view.lens);
  const maker = useRef<ModelMaker>(null);
  const walk = canvas.kind === "walk" ? canvas.walk : lit;
  const ranks = useMemo(() => {
    if (lens !== "rank") return NO_RANKS;
    const of = ranksOf({ documents, planned });
    return new Map(Object.keys(documents.graph.nodes ?? {}).map((node) => [node, of(node, walk)]));
  }, [lens, documents, planned, walk]);
  return useMemo(() => {
    maker.current ??= new ModelMaker();
    return maker.current.make({ graph: documents.graph, canvas, catalogue, problems, lit, ranks });
  }, [documents.graph, canvas, catalogue, problems, lit, ranks]);
}

export interface Dragging {
  /** The container that would take what is dragged; `undefined`: nothing is dragged. */
  onTarget: (id: string | null | undefined) => void;
}

export function useFlow(canvas: Canvas, model: Model, hideWires: boolean, { onTarget }: Dragging) {
  const editor = useEditor();
  const flow = useStoreApi<CanvasNode, CanvasEdge>();
  const selection = useEditorState((state) => state.view.selection);
  const held = useRef(new Map<string, Held>());
  const content = useRef(new Map<string, Set<string>>());
  const [beat, setBeat] = useState(0);
  const laid = useRef(new WeakMap<CanvasNode, { node: CanvasNode; selected: boolean; held: Held | undefined }>());
  const latest = useRef(model);
  latest.current = model;

  const nodes = useMemo(() => {
    const chosen = new Set(selection);
    return model.nodes.map((node) => {
      const selected = chosen.has(node.id);
      const over = held.current.get(node.id);
      const before = laid.current.get(node);
      if (before && before.selected === selected && before.held === over) return before.node;
      const size = over?.size ? { ...over.size, measured: over.size } : {};
      const made =
        selected || over ? { ...node, selected, ...(over?.position && { position: over.position }), ...size } : node;
      laid.current.set(node, { node: made, selected, held: over });
      return made;
    });
    // `beat` stands for what is held.
  }, [model.nodes, selection, beat]);

  const edges = useMemo(() => laidEdges(model.edges, selection, hideWires), [model.edges, selection, hideWires]);

  const select = useCallback(
    (changes: readonly (NodeChange<CanvasNode> | EdgeChange<CanvasEdge>)[]) => {
      const before = editor.state.view.selection;
      const { multiSelectionActive, userSelectionActive } = flow.getState();
      // A selection from elsewhere may not be drawn yet: a plain click selects only the item that it hits.
      const alone = !multiSelectionActive && !userSelectionActive;
      const anew = alone && changes.some((change) => change.type === "select" && change.selected);
      const chosen = new Set(anew ? [] : before);
      for (const change of changes) {
        if (change.type !== "select") continue;
        if (change.selected) chosen.add(change.id);
        else chosen.delete(change.id);
      }
      if (chosen.size !== before.length || before.some((id) => !chosen.has(id))) editor.select(...chosen);
    },
    [editor, flow],
  );

  const onNodesChange = useCallback(
    (changes: NodeChange<CanvasNode>[]) => {
      select(changes);
      if (hold(changes, held.current, content.current, latest.current)) setBeat((count) => count + 1);
      const resized = changes.find((change) => change.type === "dimensions" && change.resizing === false);
      if (resized?.type !== "dimensions") return;
      const { id } = resized;
      const over = held.current.get(id);
      held.current.clear();
      if (over) editor.editGraph(strings.canvas.resize, (graph) => resize(graph, canvas, latest.current, id, over));
      setBeat((count) => count + 1);
    },
    [select, editor, canvas],
  );

  const moved = useCallback((): Moved[] => {
    const { nodes: all } = latest.current;
    return all.flatMap((node): Moved[] => {
      const at = held.current.get(node.id)?.position;
      if (!at) return [];
      const by: Point = [at.x - node.position.x, at.y - node.position.y];
      return by[0] || by[1] ? [{ id: node.id, by }] : [];
    });
  }, []);

  const onNodeDragStart: OnNodeDrag<CanvasNode> = useCallback((_, __, dragged) => {
    content.current.clear();
    const ids = new Set(dragged.map((node) => node.id));
    for (const node of dragged)
      if (node.data.kind === "frame")
        content.current.set(node.id, new Set(framed(latest.current, node.id).filter((id) => !ids.has(id))));
  }, []);

  const onNodeDrag: OnNodeDrag<CanvasNode> = useCallback(
    (event) => {
      if (canvas.kind !== "walk" || event.altKey) return onTarget(undefined);
      const found = reparents(latest.current, moved(), canvas.inside)[0];
      onTarget(found ? found.parent : undefined);
    },
    [canvas, moved, onTarget],
  );

  const onNodeDragStop: OnNodeDrag<CanvasNode> = useCallback(
    (event) => {
      onTarget(undefined);
      const now = latest.current;
      const all = moved();
      held.current.clear();
      content.current.clear();
      if (all.length) {
        const options = { snap: true, keepParents: event.altKey };
        const said = all.length === 1 ? strings.canvas.move : strings.canvas.moveItems(all.length);
        attempt(editor, said, (graph) => dropped(graph, canvas, now, all, options));
      }
      setBeat((count) => count + 1);
    },
    [editor, canvas, moved, onTarget],
  );

  return {
    nodes,
    edges,
    onNodesChange,
    onEdgesChange: select as (changes: EdgeChange<CanvasEdge>[]) => void,
    onNodeDragStart,
    onNodeDrag,
    onNodeDragStop,
    onSelectionDragStart: useCallback(
      (event: React.MouseEvent, dragged: CanvasNode[]) =>
        onNodeDragStart(event.nativeEvent, dragged[0] as CanvasNode, dragged),
      [onNodeDragStart],
    ),
    onSelectionDragStop: useCallback(
      (event: React.MouseEvent, dragged: CanvasNode[]) =>
        onNodeDragStop(event.nativeEvent, dragged[0] as CanvasNode, dragged),
      [onNodeDragStop],
    ),
  };
}

/** Takes up positions and sizes; frames take along what they hold. Whether anything changed. */
function hold(
  changes: readonly NodeChange<CanvasNode>[],
  held: Map<string, Held>,
  content: ReadonlyMap<string, ReadonlySet<string>>,
  model: Model,
): boolean {
  let any = false;
  for (const change of changes) {
    if (change.type === "position" && change.position) {
      held.set(change.id, { ...held.get(change.id), position: change.position });
      any = true;
      const inside = content.get(change.id);
      const from = inside && model.nodes.find((node) => node.id === change.id)?.position;
      if (!from) continue;
      for (const node of model.nodes)
        if (inside.has(node.id)) {
          const position = {
            x: node.position.x + change.position.x - from.x,
            y: node.position.y + change.position.y - from.y,
          };
          held.set(node.id, { position });
        }
    } else if (change.type === "dimensions" && change.resizing && change.dimensions) {
      held.set(change.id, { ...held.get(change.id), size: change.dimensions });
      any = true;
    }
  }
  return any;
}

function resize(graph: Parameters<typeof putNote>[0], canvas: Canvas, model: Model, id: string, over: Held) {
  const box = model.boxes.get(id);
  if (!box) return graph;
  const at: Point = [Math.round(over.position?.x ?? box.x), Math.round(over.position?.y ?? box.y)];
  const size: Point = [Math.round(over.size?.width ?? box.w), Math.round(over.size?.height ?? box.h)];
  const layout = canvasLayout(graph, canvas);
  const note = layout.notes?.find((one) => `note:${one.id}` === id);
  const frame = layout.frames?.find((one) => `frame:${one.id}` === id);
  if (note) return putNote(graph, canvas, { ...note, at, size });
  return frame ? putFrame(graph, canvas, { ...frame, at, size }) : graph;
}

function laidEdges(edges: readonly CanvasEdge[], selection: readonly string[], hide: boolean): CanvasEdge[] {
  if (!selection.length && !hide) return edges as CanvasEdge[];
  const chosen = new Set(selection);
  return edges.map((edge) => {
    const selected = chosen.has(edge.id);
    const near = chosen.has(edge.source) || chosen.has(edge.target);
    if (!selected && !near && !hide) return edge;
    return {
      ...edge,
      selected,
      hidden: hide && !selected && !near,
      className: `${edge.className ?? ""}${near ? " wg-near" : ""}`,
    };
  });
}

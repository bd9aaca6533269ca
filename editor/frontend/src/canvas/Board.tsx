// The canvas itself.
import {
  Background,
  BackgroundVariant,
  MiniMap,
  ReactFlow,
  SelectionMode,
  useReactFlow,
  useStore,
  type EdgeTypes,
  type NodeTypes,
} from "@xyflow/react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useEditor, useEditorState } from "../store/react";
import type { Canvas } from "../store/types";
import { Menu } from "../ui/kit";
import { middle, type Board as BoardApi, type Wiring } from "./board";
import { Bar, type Prefs } from "./Bar";
import { receive } from "./dragging";
import { WireEdge, WireShape } from "./edges/WireEdge";
import { dropTarget } from "./gestures/drop";
import { addReroute } from "./gestures/reroute";
import { onKey } from "./keyboard";
import { edgeMenu, nodeMenu, paneMenu, type Opened } from "./menus";
import { ContainerNode } from "./nodes/ContainerNode";
import { BoundaryNode, ForkNode, FrameNode, NoteNode } from "./nodes/SmallNodes";
import { UseNode } from "./nodes/UseNode";
import { QuickAdd, type Adding } from "./QuickAdd";
import type { CanvasEdge, CanvasNode, Model, Point } from "./types";
import { useConnecting } from "./useConnecting";
import { useFlow, useModel } from "./useFlow";
import { GRID } from "./geometry";

const NODES: NodeTypes = {
  use: UseNode,
  container: ContainerNode,
  fork: ForkNode,
  boundary: BoundaryNode,
  note: NoteNode,
  frame: FrameNode,
};
const EDGES: EdgeTypes = { wire: WireEdge };
const FAR = 0.4;
const MANY = 400;
const MAP_MOST = 300;
const SNAP: [number, number] = [GRID, GRID];
const MULTI = ["Meta", "Control", "Shift"];
const FIT = { padding: 0.08, maxZoom: 1, minZoom: 0.15 };

export function Board({ canvas, viewKey }: { canvas: Canvas; viewKey: string }) {
  const editor = useEditor();
  const selection = useEditorState((state) => state.view.selection);
  const model = useModel(canvas);
  const root = useRef<HTMLDivElement>(null);
  const tip = useRef<HTMLDivElement>(null);
  const live = useRef<HTMLDivElement>(null);
  const [prefs, setPrefs] = useState<Prefs>({ map: true, hideWires: false, shape: "curved" });
  const [adding, setAdding] = useState<Adding | null>(null);
  const [menu, setMenu] = useState<Opened | null>(null);
  const board = useBoard(canvas, model, root, live, setAdding);
  const markTarget = useTargetMark(root);
  const laid = useFlow(canvas, model, prefs.hideWires, { onTarget: markTarget });
  const connecting = useConnecting(board, tip);
  useEffect(() => receive(dropTarget(board, markTarget)), [board, markTarget]);
  useFocusOn(board, selection);

  const many = model.nodes.length > MANY;
  return (
    <div
      ref={root}
      className="wg-board"
      tabIndex={-1}
      onPointerDown={() => root.current?.focus({ preventScroll: true })}
      onPointerMove={connecting.onPointerMove}
      onKeyDown={(event) => onKey(event, board)}
      onDoubleClick={(event) => {
        if ((event.target as Element).classList.contains("react-flow__pane"))
          board.openAdd({ x: event.clientX, y: event.clientY });
      }}
    >
      <WireShape value={prefs.shape}>
        <ReactFlow<CanvasNode, CanvasEdge>
          {...laid}
          {...connecting}
          onPointerMove={undefined}
          nodeTypes={NODES}
          edgeTypes={EDGES}
          defaultViewport={viewports.get(viewKey)}
          fitView={!viewports.has(viewKey)}
          fitViewOptions={FIT}
          onMoveEnd={(_, viewport) => viewports.set(viewKey, viewport)}
          minZoom={0.08}
          maxZoom={2.5}
          deleteKeyCode={null}
          selectionKeyCode="Shift"
          multiSelectionKeyCode={MULTI}
          selectionMode={SelectionMode.Partial}
          zoomOnDoubleClick={false}
          snapToGrid
          snapGrid={SNAP}
          connectionRadius={22}
          elevateNodesOnSelect={false}
          zIndexMode="manual"
          disableKeyboardA11y
          edgesFocusable
          onlyRenderVisibleElements={many}
          onNodeDoubleClick={(_, node) => {
            if (node.data.kind === "use" && canvas.kind === "walk") editor.select(node.id);
          }}
          onNodeContextMenu={(event, node) => {
            event.preventDefault();
            if (!editor.state.view.selection.includes(node.id)) editor.select(node.id);
            setMenu(nodeMenu(board, node, { x: event.clientX, y: event.clientY }));
          }}
          onSelectionContextMenu={(event, nodes) => {
            event.preventDefault();
            if (nodes[0]) setMenu(nodeMenu(board, nodes[0], { x: event.clientX, y: event.clientY }));
          }}
          onEdgeContextMenu={(event, edge) => {
            event.preventDefault();
            editor.select(edge.id);
            setMenu(edgeMenu(board, edge, { x: event.clientX, y: event.clientY }));
          }}
          onPaneContextMenu={(event) => {
            event.preventDefault();
            setMenu(paneMenu(board, { x: event.clientX, y: event.clientY }));
          }}
          onEdgeDoubleClick={(event, edge) => addReroute(board, edge, { x: event.clientX, y: event.clientY })}
        >
          <Background variant={BackgroundVariant.Dots} gap={24} size={1.2} />
          <Far root={root} />
          {prefs.map && model.nodes.length <= MAP_MOST && model.nodes.length > 0 && (
            <MiniMap pannable zoomable ariaLabel="Map" nodeColor={mapColor} nodeStrokeWidth={0} />
          )}
        </ReactFlow>
      </WireShape>
      <Bar board={board} prefs={prefs} onPrefs={setPrefs} mapOff={model.nodes.length > MAP_MOST} />
      {model.nodes.length <= 2 && <Hint canvas={canvas} model={model} />}
      <div ref={tip} className="wg-tip" role="status" hidden />
      <div ref={live} className="visually-hidden" aria-live="polite" />
      {adding && <QuickAdd board={board} adding={adding} onClose={() => (setAdding(null), root.current?.focus())} />}
      {menu && <Menu at={menu.at} entries={menu.entries} onClose={() => setMenu(null)} />}
    </div>
  );

  function mapColor(node: CanvasNode): string {
    if (node.data.kind === "use") return node.data.color;
    return node.data.kind === "container" ? "var(--soft)" : "var(--line-strong)";
  }
}

/** Where each canvas was looked at, while the page lives. */
const viewports = new Map<string, { x: number; y: number; zoom: number }>();

function useBoard(
  canvas: Canvas,
  model: Model,
  root: React.RefObject<HTMLDivElement | null>,
  live: React.RefObject<HTMLDivElement | null>,
  setAdding: (adding: Adding) => void,
): BoardApi {
  const editor = useEditor();
  const flow = useReactFlow<CanvasNode, CanvasEdge>();
  const latest = useRef(model);
  latest.current = model;
  const pointer = useRef<{ x: number; y: number } | null>(null);
  useEffect(() => {
    const board = root.current;
    const over = (event: PointerEvent) => void (pointer.current = { x: event.clientX, y: event.clientY });
    const out = () => void (pointer.current = null);
    board?.addEventListener("pointermove", over, { passive: true });
    board?.addEventListener("pointerleave", out);
    return () => {
      board?.removeEventListener("pointermove", over);
      board?.removeEventListener("pointerleave", out);
    };
  }, [root]);
  return useMemo(() => {
    const board: BoardApi = {
      editor,
      canvas,
      flow,
      model: () => latest.current,
      root: () => root.current,
      pointer: (): Point => {
        if (!pointer.current) return middle(board);
        const { x, y } = flow.screenToFlowPosition(pointer.current);
        return [x, y];
      },
      announce: (text) => {
        if (live.current) live.current.textContent = text;
      },
      openAdd: (at, wire?: Wiring) => setAdding({ at, wire: wire ?? null }),
    };
    return board;
  }, [editor, canvas, flow, root, live, setAdding]);
}

/** The container that would take what is dragged gets a border, without a render. */
function useTargetMark(root: React.RefObject<HTMLDivElement | null>) {
  return useCallback(
    (id: string | null | undefined) => {
      root.current?.classList.toggle("wg-taking", id === null);
      for (const old of root.current?.querySelectorAll(".wg-target") ?? []) old.classList.remove("wg-target");
      if (id)
        root.current?.querySelector(`.react-flow__node[data-id="${CSS.escape(id)}"]`)?.classList.add("wg-target");
    },
    [root],
  );
}

/** What is selected from elsewhere (a problem, the outline) comes into sight. */
function useFocusOn(board: BoardApi, selection: readonly string[]): void {
  useEffect(() => {
    const box = board.root()?.getBoundingClientRect();
    const rects = selection.flatMap((id) => board.model().boxes.get(id) ?? []);
    if (!box?.width || !rects.length) return;
    const { x, y, zoom } = board.flow.getViewport();
    const seen = rects.some((rect) => {
      const [left, top] = [rect.x * zoom + x, rect.y * zoom + y];
      return left < box.width && top < box.height && left + rect.w * zoom > 0 && top + rect.h * zoom > 0;
    });
    const rect = rects[0];
    if (!seen && rect) void board.flow.setCenter(rect.x + rect.w / 2, rect.y + rect.h / 2, { zoom, duration: 200 });
  }, [board, selection]);
}

/** Marks the board while it is looked at from afar: CSS then shows blocks and names only. */
function Far({ root }: { root: React.RefObject<HTMLDivElement | null> }) {
  const far = useStore((state) => state.transform[2] < FAR);
  useEffect(() => void root.current?.classList.toggle("wg-lod", far), [far, root]);
  return null;
}

function Hint({ canvas, model }: { canvas: Canvas; model: Model }) {
  const steps = model.nodes.some((node) => node.data.kind !== "boundary");
  if (steps) return null;
  return (
    <div className="wg-hint">
      {canvas.kind === "components" ? <b>No components yet.</b> : <b>This Walk does nothing yet.</b>}
      <span>
        Double-click, or press <kbd>Space</kbd>, to add {canvas.kind === "components" ? "a component" : "a step"}; or
        drag one from the palette.
      </span>
    </div>
  );
}

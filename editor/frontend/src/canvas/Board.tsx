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
  type Viewport,
} from "@xyflow/react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { calledGraph, editorOf } from "../catalogue/catalogue";
import { useEditor, useEditorState } from "../store/react";
import { useDeployed, useWatch } from "../store/watch";
import { TapList } from "../taps/TapList";
import type { Canvas } from "../store/types";
import { Menu } from "../ui/kit";
import { middle, type Board as BoardApi, type OpenMenu } from "./gestures/board";
import { Bar, type Prefs } from "./Bar";
import { receive } from "./gestures/dragging";
import { pointedAt, StateLayer } from "./edges/StateLayer";
import { FlowingOn, TokenLayer } from "./edges/TokenLayer";
import { Tokens } from "./edges/tokens";
import { WireEdge, WireShape } from "./edges/WireEdge";
import { dropTarget } from "./gestures/drop";
import { blueprintAt } from "./gestures/blueprints";
import { addReroute } from "./gestures/reroute";
import { onKey } from "./keyboard";
import { edgeMenu, nodeMenu, paneMenu } from "./menus";
import { MergeNode } from "./nodes/ChoiceNodes";
import { ContainerNode } from "./nodes/ContainerNode";
import { BoundaryNode, ForkNode, FrameNode, NoteNode } from "./nodes/SmallNodes";
import { UseNode } from "./nodes/UseNode";
import { Previews } from "./Previews";
import { QuickAdd, type Adding } from "./quick/QuickAdd";
import { TapCards, Tapped, tappedOn } from "./edges/TapCards";
import type { CanvasEdge, CanvasNode, Model, Point } from "./shapes/types";
import { useConnecting } from "./flow/useConnecting";
import { Far, isFar } from "./shapes/far";
import { useFlow, useModel } from "./flow/useFlow";
import { useFocusOn } from "./flow/useFocusOn";
import { useGeometry } from "./flow/useGeometry";
import { GRID } from "./shapes/geometry";
import { strings } from "../strings";

const NODES: NodeTypes = {
  use: UseNode,
  container: ContainerNode,
  fork: ForkNode,
  merge: MergeNode,
  boundary: BoundaryNode,
  note: NoteNode,
  frame: FrameNode,
};
const EDGES: EdgeTypes = { wire: WireEdge };
const MANY = 400;
const MAP_MOST = 300;
/** How far the handle that moves a wire's end reaches out from under the port. */
const REACH = 17;
const SNAP: [number, number] = [GRID, GRID];
const MULTI = ["Meta", "Control", "Shift"];
const FIT = { padding: 0.08, maxZoom: 1 };

export function Board({ canvas, viewKey }: { canvas: Canvas; viewKey: string }) {
  const selection = useEditorState((state) => state.view.selection);
  useGeometry();
  const model = useModel(canvas);
  const root = useRef<HTMLDivElement>(null);
  const tip = useRef<HTMLDivElement>(null);
  const live = useRef<HTMLDivElement>(null);
  const [prefs, setPrefs] = useState<Prefs>({ map: true, hideWires: false, shape: "curved" });
  const [adding, setAdding] = useState<Adding | null>(null);
  const [menu, setMenu] = useState<OpenMenu | null>(null);
  const board = useBoard(canvas, model, root, live, { setAdding, setMenu });
  const markTarget = useTargetMark(root);
  const laid = useFlow(canvas, model, prefs.hideWires, { onTarget: markTarget });
  const { onPointerMove, ...connecting } = useConnecting(board, tip);
  const menus = useMenus(board);
  const [viewport] = useState(() => viewports.get(viewKey));
  const remember = useCallback((_: unknown, seen: Viewport) => void viewports.set(viewKey, seen), [viewKey]);
  useEffect(() => receive(dropTarget(board, markTarget)), [board, markTarget]);
  useFocusOn(board, selection, viewport === undefined);
  // Keys go on where a canvas gave way to this one: a container was entered or left.
  useEffect(() => {
    if (document.activeElement === document.body) root.current?.focus({ preventScroll: true });
  }, []);

  const flowing = useMemo(
    () => ({ tokens: new Tokens(), walk: canvas.kind === "walk" ? canvas.walk : null }),
    [canvas],
  );
  const [pointed] = useState(pointedAt);
  const deployment = useDeployed();
  const { taps } = useWatch(deployment);
  const graph = useEditorState((state) => state.documents.graph);
  const tapped = useMemo(() => tappedOn(graph, canvas, taps), [graph, canvas, taps]);
  const many = model.nodes.length > MANY;
  const far = useStore(isFar);
  return (
    <div
      ref={root}
      className={far ? "wg-board wg-lod" : "wg-board"}
      tabIndex={-1}
      onPointerDown={() => root.current?.focus({ preventScroll: true })}
      onPointerMove={onPointerMove}
      onKeyDown={(event) => onKey(event, board)}
      onDoubleClick={(event) => {
        if (isFree(event.target as Element)) board.openAdd({ x: event.clientX, y: event.clientY });
      }}
    >
      <WireShape value={prefs.shape}>
        <FlowingOn value={flowing}>
          <Tapped value={tapped}>
            <Far value={far}>
              <ReactFlow<CanvasNode, CanvasEdge>
                {...laid}
                {...connecting}
                nodeTypes={NODES}
                edgeTypes={EDGES}
                defaultViewport={viewport}
                fitView={viewport === undefined}
                fitViewOptions={FIT}
                onMoveEnd={remember}
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
                reconnectRadius={REACH}
                elevateNodesOnSelect={false}
                zIndexMode="manual"
                disableKeyboardA11y
                edgesFocusable
                onlyRenderVisibleElements={many}
                {...menus}
                onNodeMouseEnter={(_, node) => pointed.setState(node.id, true)}
                onNodeMouseLeave={() => pointed.setState(null, true)}
              >
                <Background variant={BackgroundVariant.Dots} gap={24} size={1.2} />
                {prefs.map && model.nodes.length <= MAP_MOST && model.nodes.length > 0 && (
                  <MiniMap
                    pannable
                    zoomable
                    ariaLabel={strings.canvas.map}
                    nodeColor={mapColor}
                    nodeStrokeWidth={0}
                  />
                )}
                <Previews model={model} />
                <StateLayer all={model.dependencies} pointed={pointed} />
                <TokenLayer tokens={flowing.tokens} />
              </ReactFlow>
            </Far>
          </Tapped>
        </FlowingOn>
      </WireShape>
      {deployment !== null && taps.length > 0 && (
        <>
          <TapCards {...{ deployment, taps, canvas, model, selection }} />
          <TapList taps={taps} />
        </>
      )}
      <Bar board={board} prefs={prefs} onPrefs={setPrefs} mapOff={model.nodes.length > MAP_MOST} />
      {model.nodes.length <= 2 && <Hint canvas={canvas} model={model} />}
      <div ref={tip} className="wg-tip" role="status" hidden />
      <div ref={live} className="visually-hidden" aria-live="polite" />
      {adding && <QuickAdd board={board} adding={adding} onClose={() => (setAdding(null), root.current?.focus())} />}
      {menu && (
        <Menu
          at={menu.at}
          entries={menu.entries}
          onClose={() => (setMenu(null), root.current?.focus({ preventScroll: true }))}
        />
      )}
    </div>
  );
}

/** Nothing is there but the canvas, or the inside of a container. */
function isFree(target: Element): boolean {
  if (target.classList.contains("react-flow__pane")) return true;
  return target.matches(".wg-container, .wg-container > .wg-teach");
}

function mapColor(node: CanvasNode): string {
  if (node.data.kind === "use") return node.data.color;
  return node.data.kind === "container" ? "var(--soft)" : "var(--line-strong)";
}

/** Where each canvas was looked at, while the page lives. */
const viewports = new Map<string, Viewport>();

/** The same functions for all renders, so that no node is drawn anew for them. */
function useMenus(board: BoardApi) {
  return useMemo(() => {
    const { editor, ask: open } = board;
    const at = (event: { clientX: number; clientY: number }) => ({ x: event.clientX, y: event.clientY });
    return {
      onNodeContextMenu: (event: React.MouseEvent, node: CanvasNode) => {
        event.preventDefault();
        if (!editor.state.view.selection.includes(node.id)) editor.select(node.id);
        open(nodeMenu(board, node, at(event)));
      },
      onSelectionContextMenu: (event: React.MouseEvent, nodes: CanvasNode[]) => {
        event.preventDefault();
        if (nodes[0]) open(nodeMenu(board, nodes[0], at(event)));
      },
      onEdgeContextMenu: (event: React.MouseEvent, edge: CanvasEdge) => {
        event.preventDefault();
        editor.select(edge.id);
        open(edgeMenu(board, edge, at(event)));
      },
      onPaneContextMenu: (event: React.MouseEvent | MouseEvent) => {
        event.preventDefault();
        open(paneMenu(board, at(event)));
      },
      onNodeDoubleClick: (_: React.MouseEvent, node: CanvasNode) => {
        const opened = node.data.kind === "use" ? blueprintAt(editor.graph, node.data.node) : null;
        if (opened !== null) return editor.see({ opened, selection: [] });
        const graph = node.data.kind === "use" ? calledGraph(node.data.component) : null;
        if (graph !== null && graph !== editor.graph.name) window.open(editorOf(graph), "_blank", "noopener");
      },
      onEdgeDoubleClick: (event: React.MouseEvent, edge: CanvasEdge) => addReroute(board, edge, at(event)),
    };
  }, [board]);
}

function useBoard(
  canvas: Canvas,
  model: Model,
  root: React.RefObject<HTMLDivElement | null>,
  live: React.RefObject<HTMLDivElement | null>,
  { setAdding, setMenu }: { setAdding: (adding: Adding) => void; setMenu: (menu: OpenMenu) => void },
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
      openAdd: (at, { wire = null, instead = null } = {}) => setAdding({ at, wire, instead }),
      ask: setMenu,
    };
    return board;
  }, [editor, canvas, flow, root, live, setAdding, setMenu]);
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

function Hint({ canvas, model }: { canvas: Canvas; model: Model }) {
  const steps = model.nodes.some((node) => node.data.kind !== "boundary");
  if (steps) return null;
  return (
    <div className="wg-hint">
      {canvas.kind === "components" ? (
        <b>{strings.canvas.noComponentsYet}</b>
      ) : (
        <b>{strings.canvas.thisWalkHasNoSteps}</b>
      )}
      <span>
        {strings.canvas.doubleClickOrPress} <kbd>{strings.canvas.space}</kbd>
        {strings.canvas.toAddOrDragOne(
          canvas.kind === "components" ? strings.canvas.aComponent : strings.canvas.aStep,
        )}
      </span>
    </div>
  );
}

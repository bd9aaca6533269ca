// (graph, canvas, catalogue, problems) -> React Flow's nodes and edges. What an edit doesn't touch keeps its identity,
// so that React draws only what changed. Pure but for that memory.
import { Position } from "@xyflow/react";
import type { Catalogue, Problem } from "../../messages/answers";
import { canvasLayout } from "../../document/edits/parts/layout";
import type { GraphDocument } from "../../document/types";
import type { Canvas } from "../../store/types";
import {
  boundaryRow,
  boxesOf,
  chipWidth,
  byParent,
  closedRow,
  CONTAINER_HEAD,
  MERGE,
  RAIL,
  useRow,
} from "../shapes/geometry";
import { arranged, type Link } from "../layout/layered";
import { componentsDrawn } from "./components";
import type { Shown } from "./scene";
import { walkDrawn, type Drawn } from "./walk";
import type {
  CanvasData,
  CanvasEdge,
  CanvasNode,
  Dependency,
  Model,
  Piece,
  Point,
  PortShown,
  Rect,
  Wire,
} from "../shapes/types";
import { strings } from "../../strings";

export interface ModelInput {
  graph: GraphDocument;
  canvas: Canvas;
  catalogue: Catalogue;
  problems: readonly Problem[];
  lit: string | null;
  ranks: ReadonlyMap<string, number[]>;
}

export function drawn(input: ModelInput): Drawn {
  const shown: Shown = { ...input, layout: canvasLayout(input.graph, input.canvas) };
  if (input.canvas.kind === "components") return componentsDrawn(shown, input.lit);
  return walkDrawn(shown, input.canvas.walk, input.canvas.inside);
}

/** Keeps what it made last, to give the same objects again where nothing changed. */
export class ModelMaker {
  private nodes = new Map<string, CanvasNode>();
  private edges = new Map<string, CanvasEdge>();
  private dependencies: Dependency[] = [];

  make(input: ModelInput): Model {
    const { pieces, wires, dependencies } = drawn(input);
    const layout = canvasLayout(input.graph, input.canvas);
    const after = dependencies.map(({ source, target }): Link => [source, target]);
    const stored = storedFor(input.canvas, layout.at ?? {});
    const { places, placed } = arranged(pieces, { wires: linksOf(wires), after }, stored);
    const boxes = boxesOf(pieces, places);
    const depths = depthsOf(pieces);
    const children = byParent(pieces);
    const nodes = pieces.map((piece) => flowNode(piece, boxes, depths, children));
    for (const note of layout.notes ?? []) {
      const [w, h] = note.size ?? [200, 96];
      const data: CanvasData = { kind: "note", text: note.text, color: note.color ?? "", note: note.id };
      nodes.push(loose(`note:${note.id}`, data, { x: note.at[0], y: note.at[1], w, h }, 6, "note"));
      boxes.set(`note:${note.id}`, { x: note.at[0], y: note.at[1], w, h });
    }
    for (const frame of layout.frames ?? []) {
      const rect = { x: frame.at[0], y: frame.at[1], w: frame.size[0], h: frame.size[1] };
      const data: CanvasData = { kind: "frame", title: frame.title, color: frame.color ?? "", frame: frame.id };
      nodes.unshift(loose(`frame:${frame.id}`, data, rect, -1, strings.canvas.frameWithTitle(frame.title)));
      boxes.set(`frame:${frame.id}`, rect);
    }
    const edges = wires.map(flowEdge);
    const model: Model = {
      nodes: kept(nodes, this.nodes),
      edges: kept(edges, this.edges),
      dependencies: same(dependencies, this.dependencies) ? this.dependencies : dependencies,
      boxes,
      below: new Map(pieces.flatMap(({ id, below }) => (below ? [[id, below] as const] : []))),
      places,
      placed,
    };
    this.nodes = new Map(model.nodes.map((node) => [node.id, node]));
    this.edges = new Map(model.edges.map((edge) => [edge.id, edge]));
    this.dependencies = model.dependencies;
    return model;
  }
}

/** On the components canvas the layout knows nodes by name, the selection as `node:NAME`. */
export function placeKey(canvas: Canvas, id: string): string {
  return canvas.kind === "components" && id.startsWith("node:") ? id.slice("node:".length) : id;
}

function storedFor(canvas: Canvas, at: Readonly<Record<string, Point>>): Readonly<Record<string, Point>> {
  if (canvas.kind === "walk") return at;
  return Object.fromEntries(Object.entries(at).map(([name, point]) => [`node:${name}`, point]));
}

export function linksOf(wires: readonly Wire[]): Link[] {
  return wires
    .filter((wire) => !wire.data.carried)
    .map((wire) => [wire.source, wire.target, wire.data.kind === "stream" ? chipWidth(wire.data.chips) : 0]);
}

function depthsOf(pieces: readonly Piece[]): Map<string, number> {
  const depths = new Map<string, number>();
  for (const piece of pieces) depths.set(piece.id, piece.parent ? (depths.get(piece.parent) ?? 0) + 1 : 0);
  return depths;
}

function flowNode(
  piece: Piece,
  boxes: ReadonlyMap<string, Rect>,
  depths: ReadonlyMap<string, number>,
  children: ReadonlyMap<string | null, Piece[]>,
): CanvasNode {
  const box = boxes.get(piece.id) as Rect;
  const parent = piece.parent ? (boxes.get(piece.parent) as Rect) : { x: 0, y: 0 };
  const size = { width: box.w, height: box.h };
  const open = piece.pad !== null;
  const branches = (children.get(piece.id) ?? []).map((child) => {
    const rect = boxes.get(child.id) as Rect;
    return { y: rect.y - box.y, h: rect.h };
  });
  const data =
    piece.data.kind === "container" && piece.data.container === "parallel" ? { ...piece.data, branches } : piece.data;
  return {
    id: piece.id,
    type: data.kind,
    position: { x: box.x - parent.x, y: box.y - parent.y },
    ...(piece.parent ? { parentId: piece.parent } : {}),
    ...size,
    measured: size,
    handles: handlesOf(data, box),
    zIndex: open ? (depths.get(piece.id) ?? 0) : 5,
    data,
    ariaLabel: piece.label,
    className: classOf(data),
    ...(open ? { dragHandle: ".wg-container-head" } : {}),
  };
}

function loose(id: string, data: CanvasData, rect: Rect, zIndex: number, ariaLabel: string): CanvasNode {
  const size = { width: rect.w, height: rect.h };
  const position = { x: rect.x, y: rect.y };
  return { id, type: data.kind, position, ...size, measured: size, handles: [], zIndex, data, ariaLabel };
}

function classOf(data: CanvasData): string {
  const dim = data.kind === "use" && data.dim ? " wg-dim" : "";
  const open = data.kind === "container" && !data.closed ? " wg-open" : "";
  return `wg-at-${data.kind}${dim}${open}`;
}

type Handles = NonNullable<CanvasNode["handles"]>;

function handlesOf(data: CanvasData, box: Rect): Handles {
  if (data.kind === "note" || data.kind === "frame" || data.kind === "fork") return [];
  const row = (index: number): number => {
    if (data.kind === "use") return useRow(index);
    if (data.kind === "merge") return MERGE / 2;
    return data.kind === "boundary" ? boundaryRow(data, index) : closedRow(index);
  };
  const handles: Handles = [];
  const add = (port: PortShown, type: "source" | "target", x: number, y: number) =>
    handles.push({
      id: port.ref,
      type,
      position: type === "source" ? Position.Right : Position.Left,
      x: x - 1,
      y: y - 1,
      width: 2,
      height: 2,
    });
  for (const [index, port] of data.inputs.entries()) add(port, "target", 0, row(index));
  for (const [index, port] of data.outputs.entries()) add(port, "source", box.w, row(index));
  if (data.kind === "container" && data.head && !data.closed) add(data.head.port, "target", 0, CONTAINER_HEAD / 2);
  if (data.kind === "container" && data.index) add(data.index, "source", 70, CONTAINER_HEAD + RAIL / 2);
  return handles;
}

function flowEdge(wire: Wire): CanvasEdge {
  const broken = wire.data.broken ? strings.canvas.broken(wire.data.broken) : "";
  const source = wire.data.from.startsWith("@loop.") ? `@loop.${loopName(wire)}` : wire.data.from;
  return {
    id: wire.id,
    type: "wire",
    source: wire.source,
    target: wire.target,
    sourceHandle: source,
    targetHandle: wire.data.to,
    data: wire.data,
    zIndex: 4,
    reconnectable: wire.id.startsWith("edge:"),
    className: wire.data.dim ? "wg-dim" : "",
    ariaLabel: strings.canvas.to(wire.data.from, wire.data.to, broken),
  };
}

function loopName(wire: Wire): string {
  const [, loop] = /^(?:loop|map):(.*?)(?:#\d+)?$/.exec(wire.source) ?? [];
  return loop ?? wire.data.from.slice("@loop.".length);
}

/** The earlier objects where they say the same. */
function kept<T extends { id: string }>(made: T[], before: ReadonlyMap<string, T>): T[] {
  return made.map((thing) => {
    const old = before.get(thing.id);
    return old && same(old, thing) ? old : thing;
  });
}

export function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const [x, y] = [a as Record<string, unknown>, b as Record<string, unknown>];
  const keys = Object.keys(x);
  return keys.length === Object.keys(y).length && keys.every((key) => same(x[key], y[key]));
}

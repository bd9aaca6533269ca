// The careful layout: ELK's layered algorithm through all containers, with ports in their order. Loaded when asked for.
import type { ELK, ElkNode } from "elkjs/lib/elk-api";
import type { Canvas } from "../../store/types";
import { containerMin } from "../shapes/geometry";
import type { CanvasNode, Model, Point } from "../shapes/types";
import { agreeing, type Link } from "./layered";

let loading: Promise<ELK> | null = null;

function load(): Promise<ELK> {
  loading ??= import("elkjs/lib/elk.bundled.js").then(({ default: Elk }) => new Elk());
  return loading;
}

const OPTIONS: Record<string, string> = {
  "elk.algorithm": "layered",
  "elk.direction": "RIGHT",
  "elk.hierarchyHandling": "INCLUDE_CHILDREN",
  "elk.layered.spacing.nodeNodeBetweenLayers": "72",
  "elk.spacing.nodeNode": "28",
  "elk.spacing.edgeNode": "20",
  "elk.layered.considerModelOrder.strategy": "PREFER_NODES",
  "elk.layered.nodePlacement.strategy": "BRANDES_KOEPF",
  "elk.layered.nodePlacement.bk.fixedAlignment": "BALANCED",
};

/** Wires are drawn short and straight, before what is no wire. */
const WIRE: Record<string, string> = {
  "elk.layered.priority.direction": "10",
  "elk.layered.priority.shortness": "10",
  "elk.layered.priority.straightness": "10",
};

/** New top left corners of all that the layout keeps, or of `only` these; raises if ELK can't be loaded. */
export async function elkLayout(
  model: Model,
  canvas: Canvas,
  only: ReadonlySet<string> | null,
): Promise<Map<string, Point>> {
  const elk = await load();
  const nodes = model.nodes.filter((node) => node.data.kind !== "note" && node.data.kind !== "frame");
  const taking = only ? nodes.filter((node) => only.has(node.id)) : nodes;
  const ids = new Set(taking.map((node) => node.id));
  const holding = new Set(taking.map((node) => node.parentId));
  const edges = model.edges.flatMap((edge) => {
    const { source, target, data } = edge;
    if (data?.carried || !ids.has(source) || !ids.has(target) || source === target) return [];
    const from =
      canvas.kind === "walk" && /^(loop|map):/.test(source) ? source : port(source, "s", edge.sourceHandle);
    // An open container has no ports here: what a choice or a map takes at its head goes to its box.
    const to = holding.has(target) ? target : port(target, "t", edge.targetHandle);
    return [{ id: edge.id, sources: [from], targets: [to], layoutOptions: WIRE }];
  });
  // What reads a state stands after what filled it, where no wire says otherwise.
  const wires = model.edges.filter(({ data }) => !data?.carried).map(({ source, target }): Link => [source, target]);
  const after = model.dependencies.map(({ source, target }): Link => [source, target]);
  for (const [source, target] of agreeing(wires, after))
    if (ids.has(source) && ids.has(target))
      edges.push({ id: `after:${source}>${target}`, sources: [source], targets: [target], layoutOptions: {} });
  const root: ElkNode = { id: "root", layoutOptions: OPTIONS, edges, children: childrenOf(null, taking, ids, model) };
  const made = await elk.layout(root);
  const found = new Map<string, Point>();
  read(made, 0, 0, model, found);
  return only ? anchored(found, model) : found;
}

function port(node: string, side: "s" | "t", handle: string | null | undefined): string {
  return `${node}|${side}|${handle ?? ""}`;
}

function childrenOf(
  parent: string | null,
  nodes: readonly CanvasNode[],
  ids: ReadonlySet<string>,
  model: Model,
): ElkNode[] {
  return nodes
    .filter((node) => (node.parentId && ids.has(node.parentId) ? node.parentId : null) === parent)
    .map((node): ElkNode => {
      const children = childrenOf(node.id, nodes, ids, model);
      if (children.length) return container(node, children, model);
      const ports = (node.handles ?? []).map((handle) => ({
        id: port(node.id, handle.type === "source" ? "s" : "t", handle.id),
        x: handle.type === "source" ? (node.width ?? 0) : 0,
        y: handle.y + 1,
        width: 0,
        height: 0,
      }));
      return {
        id: node.id,
        width: node.width ?? 0,
        height: (node.height ?? 0) + (model.below.get(node.id) ?? 0),
        ports,
        layoutOptions: { "elk.portConstraints": "FIXED_POS" },
      };
    });
}

/** Keeps free around the children what the canvas draws there. */
function container(node: CanvasNode, children: ElkNode[], model: Model): ElkNode {
  const box = model.boxes.get(node.id);
  const inner = model.nodes.filter((other) => other.parentId === node.id);
  const top = Math.min(...inner.map((child) => child.position.y));
  const left = Math.min(...inner.map((child) => child.position.x));
  const ends = inner.map(({ id, position, height = 0 }) => position.y + height + (model.below.get(id) ?? 0));
  const bottom = (box?.h ?? 0) - Math.max(...ends);
  const [width, height] = node.data.kind === "container" ? containerMin(node.data) : [0, 0];
  const padding = `[top=${top},left=${left},bottom=${Math.min(bottom, 120)},right=24]`;
  return {
    id: node.id,
    children,
    layoutOptions: {
      "elk.padding": padding,
      "elk.nodeSize.constraints": "MINIMUM_SIZE",
      "elk.nodeSize.minimum": `(${width},${height})`,
    },
  };
}

function read(node: ElkNode, x: number, y: number, model: Model, found: Map<string, Point>): void {
  for (const child of node.children ?? []) {
    const at: Point = [x + (child.x ?? 0), y + (child.y ?? 0)];
    if (model.places.has(child.id)) found.set(child.id, [Math.round(at[0]), Math.round(at[1])]);
    read(child, at[0], at[1], model, found);
  }
}

/** A layout of some stays where they were: the corner of all of them together. */
function anchored(found: ReadonlyMap<string, Point>, model: Model): Map<string, Point> {
  const before = [...found.keys()].map((id) => model.places.get(id) as Point);
  const after = [...found.values()];
  const least = (points: Point[], axis: 0 | 1) => Math.min(...points.map((point) => point[axis]));
  const by: Point = [least(before, 0) - least(after, 0), least(before, 1) - least(after, 1)];
  return new Map([...found].map(([id, [x, y]]) => [id, [x + by[0], y + by[1]]]));
}

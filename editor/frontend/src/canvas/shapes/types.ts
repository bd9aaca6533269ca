// The canvas' nodes and edges for React Flow, with our data. Pure data, without telemetry.
import type { Edge, Node } from "@xyflow/react";
import type { Problem } from "../../messages/answers";
import type { ItemId } from "../../document/types";

export type Point = [number, number];

export interface Rect {
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface PortShown {
  /** Its name in edges: `llm.token`, `@in.text`, `@out.image`, `@result.token`, `@stream.x`, `@loop.n`. */
  ref: string;
  name: string;
  /** Empty: not known. */
  type: string;
  optional: boolean;
  wired: boolean;
  /** Named by an edge, but not declared by anything. */
  ghost: boolean;
  mark: "until" | "result" | "add" | "stream" | null;
  description: string;
}

export interface StateShown {
  slot: string;
  /** Empty: the slot isn't bound. */
  state: string;
  kind: string;
  scope: string;
  missing: boolean;
}

export type UseData = {
  kind: "use";
  name: string;
  node: string;
  component: string;
  description: string;
  inputs: PortShown[];
  outputs: PortShown[];
  states: StateShown[];
  /** Program order, or the numbers on the lit Walk's way. */
  badge: string;
  when: string;
  problems: Problem[];
  /** No such component in the catalogue. */
  ghost: boolean;
  /** The component can be drawn, not deployed. */
  drawnOnly: boolean;
  muted: "" | "muted" | "bypassed";
  dim: boolean;
  ranks: number[];
  /** Modality of its first output: the block's colour. */
  color: string;
  footnote: string;
  /** Activity keys of the uses in other branches of the choices around it. */
  others: string[];
};

/** The value that a choice goes by, or the list of a map. */
export type HeadShown = {
  /** As the document has it; empty: none yet. */
  value: string;
  /** Where a wire with the value ends. */
  port: PortShown;
};

/** A case of a choice, or its branch for other values. */
export type BranchShown = {
  choice: ItemId;
  /** Activity keys of its own uses, and of those in the other branches. */
  own: string[];
  others: string[];
};

export type ContainerData = {
  kind: "container";
  container: "loop" | "map" | "parallel" | "sequence" | "choose" | "case" | "otherwise";
  id: ItemId;
  walk: string;
  name: string;
  times: string;
  until: string;
  dropLast: boolean;
  /** The most items of a map, and the most at once. */
  bound: string;
  width: string;
  when: string;
  closed: boolean;
  empty: boolean;
  /** For a closed container: the ports that cross its border. */
  inputs: PortShown[];
  outputs: PortShown[];
  /** For a loop or a map, `@loop.NAME`. */
  index: PortShown | null;
  /** For a parallel: the middle of each branch, in pixels from its top. */
  branches: { y: number; h: number }[];
  /** Of a choice or a map. */
  head: HeadShown | null;
  /** Of a choice: it says what is taken where no case has the value. */
  otherwise: boolean;
  branch: BranchShown | null;
  problems: Problem[];
  badge: string;
  muted: "" | "muted" | "bypassed";
  /** How many uses it holds. */
  count: number;
  /** The component nodes inside, for the telemetry of a closed one. */
  nodes: string[];
};

export type ForkData = {
  kind: "fork";
  fork: string;
  into: string;
  when: string;
  badge: string;
  problems: Problem[];
  muted: "" | "muted" | "bypassed";
};

export type MergeData = {
  kind: "merge";
  walk: string;
  name: string;
  /** Where the wires of its sources end: one port. */
  inputs: PortShown[];
  /** Its value: one port. */
  outputs: PortShown[];
  sources: string[];
  problems: Problem[];
  color: string;
};

export type BoundaryData = {
  kind: "boundary";
  role: "in" | "out" | "stream" | "sink" | "before" | "after" | "missing";
  title: string;
  subtitle: string;
  inputs: PortShown[];
  outputs: PortShown[];
  problems: Problem[];
};

export type NoteData = { kind: "note"; text: string; color: string; note: string };
export type FrameData = { kind: "frame"; title: string; color: string; frame: string };

export type CanvasData = UseData | ContainerData | ForkData | MergeData | BoundaryData | NoteData | FrameData;
export type CanvasNode = Node<CanvasData>;

export type WireData = {
  kind: "wire" | "stream";
  from: string;
  to: string;
  /** Position in the Walk's edges; -1 for what is no edge (a result, a stream, a union). */
  index: number;
  /** Port type at the source. */
  type: string;
  color: string;
  /** To the next iteration: drawn back below what is between. */
  carried: boolean;
  /** The open loop that carries it, whose bottom it runs along. */
  around: ItemId | null;
  lane: number;
  chips: string[];
  /** Why it can't be: drawn red and dashed. */
  broken: string;
  warning: string;
  dim: boolean;
  /** The component node whose work it carries. */
  node: string;
  points: Point[];
  /** Walks that have it (components canvas). */
  walks: string[];
};
export type CanvasEdge = Edge<WireData>;

/** Something with a place, before it has one. */
export interface Piece {
  id: string;
  parent: string | null;
  /** Program order; what comes in stands before all, what leaves after. */
  order: number;
  data: CanvasData;
  /** Size of a leaf; least size of a container. */
  size: Point;
  /** Kept free below a leaf, for what it shows of a run. */
  below: number;
  /** For a container: what it keeps free around its children. */
  pad: Pad | null;
  label: string;
}

export interface Pad {
  top: number;
  right: number;
  bottom: number;
  left: number;
}

export interface Wire {
  id: string;
  source: string;
  target: string;
  data: WireData;
}

/** The content that `target` reads of a state was left there by `source`; no wire says so. */
export interface Dependency {
  id: string;
  source: string;
  target: string;
  states: string[];
}

export interface Model {
  nodes: CanvasNode[];
  edges: CanvasEdge[];
  dependencies: Dependency[];
  /** Absolute boxes of all nodes. */
  boxes: ReadonlyMap<string, Rect>;
  /** The space below nodes that need it. */
  below: ReadonlyMap<string, number>;
  /** Absolute places of all that the document's layout holds or would hold. */
  places: ReadonlyMap<string, Point>;
  /** True if all of them came from the document. */
  placed: boolean;
}

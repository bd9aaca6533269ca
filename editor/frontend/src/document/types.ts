// The words of the graph document in TypeScript. The generated interfaces are the published JSON form, shorthands
// included; the document in memory is that JSON as the author wrote it, unknown fields and all.
export type {
  ApproveStep,
  Blueprint,
  Choose,
  ChooseStep,
  Edge,
  Fork,
  GraphDocument,
  Item,
  Link,
  Loop,
  LoopStep,
  Map as MapItem,
  Node,
  Parallel,
  Result,
  ResultFrom,
  Sequence,
  State,
  Step,
  Stream,
  Task,
  TaskInput,
  TaskParam,
  Use,
  Walk,
  WalkStep,
  PartsStep,
  TurnsStep,
  FirstStep,
  Weights,
} from "./schema.generated";

import type { PartsStep, Stream, TurnsStep } from "./schema.generated";

/** A step that goes through parts or turns, with the steps for each kind. */
export type ForStep = PartsStep | TurnsStep;

export type ChunkPolicy = Stream["chunks"];
export type Literal = boolean | number | string;

/** Where something stands in the document: a JSON pointer (RFC 6901) into it as the author wrote it. */
export type Pointer = string;

/**
 * An item of a Walk, stable while others are edited: `use:llm`, `loop:denoise`, `map:items`, and for what has no name its kind
 * and its number in program order, `parallel:0`, `sequence:1`, `fork:0`. A second use of one name is `use:llm#1`. The
 * branches of a choice have ids too: `case:photo`, `otherwise:0`.
 */
export type ItemId = string;

/** Kept in the document under `layout`; the runtime never reads it. Positions are pixels of the canvas. */
export interface Layout {
  components?: CanvasLayout;
  walks?: Record<string, CanvasLayout>;
  [other: string]: unknown;
}

export interface CanvasLayout {
  /**
   * Node name (components canvas); item id, `@in`, `@out`, `@stream.NAME`, or `merge:NAME` (Walk canvas) -> top left
   * corner.
   */
  at?: Record<string, [number, number]>;
  /** Item ids of containers shown closed. */
  closed?: string[];
  /** Edge key (`from>to`) -> points that the wire passes, in order. */
  reroutes?: Record<string, [number, number][]>;
  notes?: Note[];
  frames?: Frame[];
  /** Item id -> what a muted or bypassed item was, to be brought back. */
  muted?: Record<string, unknown>;
}

export interface Note {
  id: string;
  text: string;
  at: [number, number];
  size?: [number, number];
  color?: string;
}

export interface Frame {
  id: string;
  title: string;
  at: [number, number];
  size: [number, number];
  color?: string;
}

/** A canvas with its own layout. `inside`: the container whose contents alone are shown. */
export type Canvas = { kind: "components" } | { kind: "walk"; walk: string; inside: ItemId | null };

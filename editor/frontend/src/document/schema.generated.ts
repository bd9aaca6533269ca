/* Made from graph/graph-v1.schema.json by `npm run schema`; not to be edited. */

/**
 * An item of a body.
 */
export type Item = string | Item[] | Use | Parallel | Sequence | Loop | Fork;
/**
 * An edge.
 */
export type Link = unknown[] | Edge;
/**
 * A result.
 */
export type ResultFrom = string | Result;
/**
 * A step of a task.
 */
export type Step = WalkStep | ForStep | FirstStep;

export interface GraphDocument {
  format?: "walkgraph/graph@1";
  name: string;
  description?: string;
  weights?: {
    [k: string]: Weights;
  };
  states?: {
    [k: string]: State;
  };
  nodes?: {
    [k: string]: Node;
  };
  walks?: {
    [k: string]: Walk;
  };
  streams?: Stream[];
  tasks?: {
    [k: string]: Task;
  };
  /**
   * The editor's; never read by the runtime.
   */
  layout?: {
    [k: string]: unknown;
  };
}
export interface Weights {
  family: string;
  source: string;
}
export interface State {
  kind: "paged_kv" | "tensor" | "rng";
  scope?: "session" | "run" | "walk" | "iteration";
  /**
   * Sequences kept together (CEM's samples).
   */
  width?: string;
  /**
   * Most tokens one sequence can hold, over the task's parameters. A `paged_kv` needs it: it is reserved at admission.
   */
  capacity?: string | null;
}
export interface Node {
  component: string;
  weights?: string | null;
  /**
   * The component's state slot -> the graph's state.
   */
  states?: {
    [k: string]: string;
  };
  /**
   * A literal, or an expression written with a leading `=` (`"=cfg_text_scale"`). One that names a parameter which the running task lacks, or a loop that isn't around the use, takes the component's default, if it has one.
   */
  params?: {
    [k: string]: boolean | number | string;
  };
}
export interface Walk {
  label?: string;
  /**
   * Name -> port type (`tokens`, `latents: float[n, 64]`).
   */
  inputs?: {
    [k: string]: string;
  };
  body: Item[];
  edges?: Link[];
  results?: {
    [k: string]: ResultFrom;
  };
}
export interface Use {
  /**
   * The node.
   */
  use: string;
  as?: string | null;
  when?: string | null;
}
export interface Parallel {
  /**
   * @minItems 1
   */
  parallel: Item[];
  when?: string | null;
}
/**
 * A list, as a branch of a `parallel`.
 */
export interface Sequence {
  /**
   * @minItems 1
   */
  sequence: Item[];
  when?: string | null;
}
export interface Loop {
  loop: string;
  times: string;
  /**
   * A boolean port of a use in the body; the iteration that raises it is the last.
   */
  until?: string | null;
  /**
   * Suppress the `each` values, to the client and to streams, that this loop's own uses made in the iteration that raised `until`. Those of loops inside have left before.
   */
  drop_last?: boolean;
  /**
   * Judged once, before the loop: `@loop.index` is the loop around it.
   */
  when?: string | null;
  /**
   * @minItems 1
   */
  body: Item[];
}
/**
 * Copy-on-write: `into` becomes `fork`, position counter included.
 */
export interface Fork {
  fork: string;
  into: string;
  when?: string | null;
}
export interface Edge {
  from: string;
  to: string;
  /**
   * Entering a loop: slice i to iteration i. Leaving one: every iteration's value as it comes (to `@out` only).
   */
  each?: boolean;
  /**
   * Leaving a loop: the values of all iterations, stacked.
   */
  collect?: boolean;
}
/**
 * A Walk's named value for later steps: of a use in a loop the last one, or all stacked.
 */
export interface Result {
  from: string;
  collect?: boolean;
}
/**
 * Joins two partitions. The consumer reads it as `@stream.NAME` in an edge of its Walk: a whole chunk a Walk where
 * the step says `per: chunk`; one chunk an iteration where the edge enters a loop with `each`.
 */
export interface Stream {
  name: string;
  /**
   * `use.port`; inside a loop, every iteration's value is an item.
   */
  from: string;
  /**
   * The Walks of the producer whose values are items of this stream; it is done when the last of them is.
   *
   * @minItems 1
   */
  walks: string[];
  chunks: Fixed | Sliding | LeftContext | Whole;
  /**
   * Chunks under way at most; the producer waits beyond it.
   */
  credits?: number;
}
export interface Fixed {
  policy: "fixed";
  size: number;
  /**
   * After the end an explicit absent value is delivered for as long as the consumer goes on.
   */
  continue_after_done?: boolean;
  first?: number | null;
}
export interface Sliding {
  policy: "sliding";
  window: number;
  stride: number;
  first?: number | null;
}
export interface LeftContext {
  policy: "left_context";
  chunk: number;
  context: number;
  first?: number | null;
}
export interface Whole {
  policy: "whole";
}
export interface Task {
  label?: string;
  inputs?: {
    [k: string]: TaskInput;
  };
  /**
   * Names of `@out.x`; the modality is that of the port the edge comes from.
   */
  outputs: string[];
  /**
   * `seed` (integer, drawn if absent) is always available.
   */
  params?: {
    [k: string]: TaskParam;
  };
  /**
   * One list; where the graph has streams, one list a partition, under names of the author's choice.
   */
  steps:
    | Step[]
    | {
        [k: string]: Step[];
      };
  session?: SessionPolicy | null;
}
export interface TaskInput {
  modality: string;
  many?: boolean;
  optional?: boolean;
  description?: string;
}
export interface TaskParam {
  type: "integer" | "number" | "boolean" | "string";
  /**
   * None: the client must give it.
   */
  default?: boolean | number | string | null;
  min?: number | null;
  max?: number | null;
  choices?: (boolean | number | string)[];
  description?: string;
}
export interface WalkStep {
  walk: string;
  as?: string | null;
  with?: {
    [k: string]: boolean | number | string;
  };
  when?: string | null;
  per?: "chunk" | null;
}
/**
 * Walks the interleaved input parts in their order; a part of a modality without steps is refused at the door.
 */
export interface ForStep {
  for: "parts";
  text?: Step[] | null;
  image?: Step[] | null;
  audio?: Step[] | null;
  state?: Step[] | null;
  actions?: Step[] | null;
}
/**
 * Takes the first step whose `when` holds; a step without one always does.
 */
export interface FirstStep {
  /**
   * @minItems 1
   */
  first: WalkStep[];
}
export interface SessionPolicy {
  queue?: "fifo" | "latest";
  ttl_seconds?: number;
  /**
   * Of the cache pages that its states may fill; a request that could pass it is refused.
   */
  max_bytes?: number | null;
}

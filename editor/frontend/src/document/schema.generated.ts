/* Made from graph/graph-v1.schema.json by `npm run schema`; not to be edited. */

/**
 * An item of a body.
 */
export type Item = string | Item[] | Use | Parallel | Sequence | Loop | Fork | Choose | Map;
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
export type Step = WalkStep | PartsStep | TurnsStep | FirstStep | ChooseStep | LoopStep | ApproveStep;

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
  blueprints?: {
    [k: string]: Blueprint;
  };
  /**
   * Belongs to the editor; the runtime never reads it.
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
   * Sequences kept together, such as CEM's samples.
   */
  width?: string;
  /**
   * The most tokens one sequence can hold, from the task's parameters. A `paged_kv` needs it; the pages are reserved at admission.
   */
  capacity?: string | null;
}
export interface Node {
  /**
   * A registered component, a task that the node calls (`graph/task`), or a blueprint of the graph that the node stands for (`blueprint.NAME`).
   */
  component: string;
  /**
   * For a blueprint: instead of the weights of that family inside.
   */
  weights?: string | null;
  /**
   * The component's state slot -> the graph's state. For a blueprint: a state inside -> the graph's state that it is.
   */
  states?: {
    [k: string]: string;
  };
  /**
   * A literal, or an expression with a leading `=` (`"=cfg_text_scale"`). An expression takes the component's default, if there is one, where it names a parameter that the running task lacks or a loop that isn't around the use.
   */
  params?: {
    [k: string]: boolean | number | string;
  };
  /**
   * Keep its outputs by the contents of its inputs, so that the same call isn't made again: `own` gives them to runs of the same access key, `shared` to all runs of the deployment. Only for a deterministic component.
   */
  kept?: ("own" | "shared") | null;
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
  /**
   * Name -> ports of uses in different branches of a choice. `@merge.NAME` is the value of the branch that was taken.
   */
  merges?: {
    /**
     * @minItems 1
     * @maxItems 64
     */
    [k: string]: string[];
  };
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
 * A list of items, one after the other; inside `parallel` it is one branch.
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
   * A boolean port of a use in the body, or a merge of such ports; the iteration that raises it is the last.
   */
  until?: string | null;
  /**
   * Suppress the `each` and `collect` values, to the client, to streams and to later uses and steps, of this loop's own uses in the iteration that raised `until`. Values of loops inside have already left.
   */
  drop_last?: boolean;
  /**
   * Judged once, before the loop; `@loop.index` belongs to the loop around it.
   */
  when?: string | null;
  /**
   * @minItems 1
   */
  body: Item[];
}
/**
 * Copy-on-write: `into` becomes a copy of `fork`, position counter included.
 */
export interface Fork {
  fork: string;
  into: string;
  when?: string | null;
}
/**
 * Takes at most one branch: the case that equals the value, otherwise `otherwise`. The branches exclude each
 * other.
 */
export interface Choose {
  /**
   * `use.port`, `@in.x` or `@merge.x`: a flag, a whole number or a text. An absent value takes `otherwise`.
   */
  choose: string;
  /**
   * Value, as text -> the items to run.
   */
  cases: {
    [k: string]: Item[];
  };
  /**
   * Runs for any other value.
   */
  otherwise?: Item[];
  /**
   * If it doesn't hold, no branch is taken.
   */
  when?: string | null;
}
/**
 * Runs its body for every item of a list, up to `width` items at once. The items are independent: nothing is
 * carried from one to the next, and no state is shared that one of them writes. What leaves is collected in the order
 * of the items, or goes to the client in that order.
 */
export interface Map {
  /**
   * The list: `use.port`, `@in.x` or `@merge.x`; a `list of` values, or a tensor with its slices along the first axis. An edge into the body with `each` brings item i. An absent value has no items.
   */
  map: string;
  /**
   * The name by which `@loop.NAME` reads the item's index; `items` if it has none.
   */
  as?: string | null;
  /**
   * The most items; a run with a longer list fails.
   */
  bound: string;
  /**
   * The most items in work at once.
   */
  width?: string;
  /**
   * Judged once, before the map; `@loop.index` belongs to the loop around it.
   */
  when?: string | null;
  /**
   * @minItems 1
   */
  body: Item[];
}
export interface Edge {
  from: string;
  to: string;
  /**
   * Entering a loop or a map: slice i goes to iteration i. Leaving one: every iteration's value leaves as it comes, of a map in the order of the items (to `@out` only). From a called task to `@out`: every value leaves as the task sends it.
   */
  each?: boolean;
  /**
   * Leaving a loop or a map: the values of all iterations, but for those that `drop_last` drops. `true` stacks tensors and joins texts; `join` puts tensors end to end; `list` keeps them apart.
   */
  collect?: false | true | "join" | "list";
}
/**
 * A Walk's named value for later steps. From a use in a loop it is the last value, or all of them (`collect`).
 */
export interface Result {
  from: string;
  collect?: false | true | "join" | "list";
}
/**
 * Joins two partitions. The consumer reads it as `@stream.NAME` in an edge of its Walk: one whole chunk per Walk
 * where the step says `per: chunk`, one chunk per iteration where the edge enters a loop with `each`.
 */
export interface Stream {
  name: string;
  /**
   * `use.port` or `@merge.x`; inside a loop, every iteration's value is an item.
   */
  from: string;
  /**
   * The producer's Walks whose values are items of this stream; the stream is done when the last of them is.
   *
   * @minItems 1
   */
  walks: string[];
  chunks: Fixed | Sliding | LeftContext | Whole;
  /**
   * The most chunks in flight; the producer waits beyond that.
   */
  credits?: number;
}
export interface Fixed {
  policy: "fixed";
  size: number;
  /**
   * After the end, deliver an explicit absent value for as long as the consumer goes on.
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
   * Names of `@out.x`; the modality is that of the port where the edge starts.
   */
  outputs: string[];
  /**
   * `seed` (integer, drawn if absent) is always available.
   */
  params?: {
    [k: string]: TaskParam;
  };
  /**
   * One list, or where the graph has streams one list per partition, under names of the author's choice.
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
  /**
   * Taken if a request doesn't give it: a text, a number, a flag, or numbers of a tensor with one axis.
   */
  default?: boolean | number | string | number[] | null;
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
 * Goes through the interleaved input parts in order; inside `for: turns`, through the parts of the turn.
 */
export interface PartsStep {
  for: "parts";
  text?: Step[] | null;
  image?: Step[] | null;
  audio?: Step[] | null;
  video?: Step[] | null;
  state?: Step[] | null;
  actions?: Step[] | null;
}
/**
 * Goes through the turns of the task's `messages` input in order, with the steps for each turn's role.
 */
export interface TurnsStep {
  for: "turns";
  system?: Step[] | null;
  user?: Step[] | null;
  assistant?: Step[] | null;
  tool?: Step[] | null;
}
/**
 * Takes the first step whose `when` holds; a step without `when` always does.
 */
export interface FirstStep {
  /**
   * @minItems 1
   */
  first: WalkStep[];
}
/**
 * Takes at most one branch by a value, as an item of a body does. Steps in different branches may share an `as`
 * name: the one that was taken is meant.
 */
export interface ChooseStep {
  /**
   * `@task.x` (a parameter) or an earlier step's result, `walk.result`.
   */
  choose: string;
  /**
   * Value, as text -> the steps to run.
   */
  cases: {
    [k: string]: Step[];
  };
  /**
   * Runs for any other value.
   */
  otherwise?: Step[];
}
/**
 * Runs its steps pass after pass: `times` passes, or up to the one whose result `until` is true.
 */
export interface LoopStep {
  /**
   * @minItems 1
   */
  loop: Step[];
  /**
   * The most passes, from the task's parameters; at least 1.
   */
  times: string;
  /**
   * A flag that a step inside gives in every pass; the pass in which it is true is the last one.
   */
  until?: string | null;
  /**
   * A result of a step inside, `walk.result` -> the binding that it stands for until that step has run in this loop.
   */
  start?: {
    [k: string]: boolean | number | string;
  };
  /**
   * Its name where a run tells why it ended; without it, the step that `until` names.
   */
  as?: string | null;
}
/**
 * Waits until a person approves or refuses what it shows. Only the shown results and those that later steps take
 * are kept meanwhile, so that the run holds no memory and outlives a restart of the service.
 */
export interface ApproveStep {
  /**
   * Results of earlier steps, `walk.result`: what the person is shown.
   *
   * @minItems 1
   * @maxItems 8
   */
  approve: string[];
  /**
   * The question to the person.
   */
  label?: string;
  /**
   * Seconds in which the person may answer; after them the run ends as not approved.
   */
  within?: number;
  /**
   * Gives the answer to later steps, as `name.approved` (a flag) and `name.note` (the person's text), so that a refused run goes on. Without it, a refused run ends.
   */
  as?: string | null;
}
export interface SessionPolicy {
  queue?: "fifo" | "latest";
  ttl_seconds?: number;
  /**
   * Bytes that the session's states may fill in cache pages; a request that could exceed them is refused.
   */
  max_bytes?: number | null;
}
/**
 * A Walk as a component, with nodes of its own: each node with the component `blueprint.NAME` stands for a copy.
 */
export interface Blueprint {
  description?: string;
  origin?: Origin | null;
  /**
   * Name -> port type.
   */
  inputs?: {
    [k: string]: string;
  };
  outputs?: {
    [k: string]: ResultFrom;
  };
  /**
   * The parameters that its expressions read; a node sets them as a component's.
   */
  params?: {
    [k: string]: TaskParam;
  };
  weights?: {
    [k: string]: Weights;
  };
  /**
   * Each node that stands for the blueprint has its own, unless it binds them.
   */
  states?: {
    [k: string]: State;
  };
  nodes?: {
    [k: string]: Node;
  };
  body: Item[];
  merges?: {
    /**
     * @minItems 1
     * @maxItems 64
     */
    [k: string]: string[];
  };
  edges?: Link[];
  /**
   * Belongs to the editor, as the graph's.
   */
  layout?: {
    [k: string]: unknown;
  };
}
/**
 * The entry of the library that a blueprint is a copy of.
 */
export interface Origin {
  name: string;
  /**
   * The etag of the entry when it was copied.
   */
  version: string;
}

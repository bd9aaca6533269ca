// The shown activity of a node and of a use. Pure.
/** `kept`: its outputs are those of earlier calls with the same inputs, and it has not run. */
export type NodeState = "idle" | "queued" | "running" | "done" | "kept" | "error";

export interface NodeError {
  code: string;
  message: string;
  run: string;
  /** Where it called the node; null: not told. */
  walk: string | null;
  use: string | null;
}

/** The outputs of a node in the followed run. */
export interface Preview {
  /** URL of the newest picture; revoked when a newer one replaces it. */
  url: string;
  /** Kept until unpinned. */
  pinned: boolean;
}

/** A figure that the operator of a node publishes, of the last gauges of its ranks. */
export interface Figure {
  name: string;
  mean: number;
  most: number;
}

export interface Activity {
  state: NodeState;
  /** Loop indices of the latest call, outermost first; empty outside of loops. */
  iteration: readonly number[] | null;
  /** Since the run (or, with several, the busy time) began. */
  calls: number;
  /** How many of them were not made, as their outputs were kept from earlier ones. */
  kept: number;
  /** Calls a second, now. */
  rate: number;
  /** Current time of one call's forward; 0: not known. */
  ms: number;
  /** That a call waited from having all its inputs to its forward, now. */
  queuedMs: number;
  /** Largest batch of late. */
  batch: number;
  /** Ranks it was seen on. */
  ranks: readonly number[];
  /** Figures of its own. */
  figures: readonly Figure[];
  /** Its error, in a sentence. */
  error?: string;
  failure: NodeError | null;
  preview: Preview | null;
  /** The end of the text it wrote. */
  words: string | null;
  /** An object URL of the sound it made. */
  sound: string | null;
  /** The service can't be reached: this is how it was. */
  stale: boolean;
}

/**
 * A use on its Walk's canvas: its own figures, with what is known of its node alone: what went wrong, what it made,
 * figures of its own, that it is awaited. `use`: null where it was never heard of. `frozen`: figures are of nodes alone.
 */
export function ofUse(
  node: Activity | null,
  use: Activity | null,
  place: { walk: string; use: string },
  frozen: boolean,
): Activity | null {
  if (!node || (frozen && !use?.calls)) return node ?? use;
  const { failure, figures, preview, words, sound, stale } = node;
  const here = failure && (failure.walk ?? place.walk) === place.walk && (failure.use ?? place.use) === place.use;
  const mine = here ? failure : null;
  const own = use ?? { ...NOTHING, stale };
  const state = mine ? "error" : own.state === "idle" && node.state === "queued" ? "queued" : own.state;
  return { ...own, state, failure: mine, figures, preview, words, sound, ...(mine && { error: mine.message }) };
}

const NOTHING: Activity = {
  state: "idle",
  iteration: null,
  calls: 0,
  kept: 0,
  rate: 0,
  ms: 0,
  queuedMs: 0,
  batch: 0,
  ranks: [],
  figures: [],
  failure: null,
  preview: null,
  words: null,
  sound: null,
  stale: false,
};

/** `taken`: one of its uses was called; `passed`: only uses of other branches were. */
export type BranchState = "" | "taken" | "passed";

/** The latest runs' activity in a branch of a choice, from the activity of its uses and of those in other branches. */
export function branchState(own: readonly (Activity | null)[], others: readonly (Activity | null)[]): BranchState {
  const called = (activity: Activity | null) => (activity?.calls ?? 0) > 0;
  if (own.some(called)) return "taken";
  return others.some(called) ? "passed" : "";
}

/** Where the runs of a loop are. */
export interface LoopActivity {
  state: "running" | "done" | "error";
  /** Iterations done, of the run furthest behind and of the one ahead. */
  low: number;
  high: number;
  /** At most; null: not known, or not the same for all runs. */
  times: number | null;
  runs: number;
  /** Current time of one iteration of a device loop; 0: the loop is stepped. */
  ms: number;
}

/** The current work of a run. */
export interface Latest {
  run: string;
  node: string;
  iteration: readonly number[];
}

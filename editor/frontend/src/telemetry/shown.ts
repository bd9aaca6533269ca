// What is shown of a node's activity. Pure data.
export type NodeState = "idle" | "queued" | "running" | "done" | "error";

export interface NodeError {
  code: string;
  message: string;
  run: string;
}

/** What a node feeds out of the followed run. */
export interface Preview {
  /** Of the newest picture; revoked when a newer one replaces it. */
  url: string;
  /** Kept until unpinned. */
  pinned: boolean;
}

export interface Activity {
  state: NodeState;
  /** Loop indices of the latest call, outermost first; empty outside of loops. */
  iteration: readonly number[] | null;
  /** Since the run (or, with several, the busy time) began. */
  calls: number;
  /** Calls a second, now. */
  rate: number;
  /** Of the forward of one call, now; 0: not known. */
  ms: number;
  /** That a call waited from having all its inputs to its forward, now. */
  queuedMs: number;
  /** Largest batch of late. */
  batch: number;
  /** Ranks it was seen on. */
  ranks: readonly number[];
  /** What went wrong in it, in a sentence. */
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

/** Where the runs of a loop are. */
export interface LoopActivity {
  state: "running" | "done" | "error";
  /** Iterations done, of the run furthest behind and of the one ahead. */
  low: number;
  high: number;
  /** At most; null: not known, or not the same for all runs. */
  times: number | null;
  runs: number;
  /** Of one iteration that the device runs as a whole, now; 0: it is stepped. */
  ms: number;
}

/** What a run does now. */
export interface Latest {
  run: string;
  node: string;
  iteration: readonly number[];
}

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
  iteration: number[] | null;
  /** Since the run (or, with several, the busy time) began. */
  calls: number;
  /** Calls a second, now. */
  rate: number;
  /** Of one call, now. */
  ms: number;
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

/** What a run does now. */
export interface Latest {
  run: string;
  node: string;
  iteration: number[];
}

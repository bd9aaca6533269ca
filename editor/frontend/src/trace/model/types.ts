// A run's trace as the service gives it: by columns, in whole microseconds from its beginning. Field names are the
// service's. Pure data.
import type { PlayedShown } from "../../messages/answers";
import type { Level } from "../../messages/frames";

export const CALL = 0;
export const LAUNCH = 1;
export const FOLDED = 2;

export interface LaneShown {
  rank: number;
  /** A node, or a loop that the device runs whole. */
  name: string;
  nodes: string[];
  loop: boolean;
  /** The loop has parts on other ranks: what they wait for each other is in their times. */
  spans?: boolean;
}

/** Rows in the order of `started`. Names are indices into the trace's. */
export interface BlocksShown {
  kind: number[];
  lane: number[];
  walk: number[];
  /** Index of the node in its Walk; -1 for a loop. */
  use: number[];
  step: number[];
  iteration: number[][];
  count: number[];
  /** Number of the batch on its rank; -1 where batches are summed. */
  number: number[];
  batch: number[];
  /** Names of the other runs in the batch, the first few. */
  mates: number[][];
  ready: number[];
  taken: number[];
  launched: number[];
  started: number[];
  finished: number[];
  busy: number[];
  queued: number[];
  pages_free: number[];
  failed: boolean[];
}

/** Parts that other shards of a rank took in its batches. */
export interface ShardsShown {
  /** The shard's own. */
  rank: number[];
  /** The one that serves, whose blocks have these numbers: */
  of: number[];
  number: number[];
  started: number[];
  finished: number[];
}

export interface HopsShown {
  source: number[];
  target: number[];
  walk: number[];
  edge: number[];
  step: number[];
  key: number[][];
  transport: number[];
  count: number[];
  nbytes: number[];
  sent: number[];
  /** -1 where it was not told. */
  arrived: number[];
}

export interface CountersShown {
  rank: number[];
  at: number[];
  busy: number[];
  queue: number[];
  runs: number[];
  memory_used: number[];
  pages_used: number[];
  pages_total: number[];
}

export interface LoopEndShown {
  rank: number;
  walk: string;
  loop: string;
  iteration: number[];
  iterations: number;
  /** As in `LoopEndedEvent`. */
  reason: string;
  at: number;
}

/** Why a loop that a value can end was over in the run, on the device, call by call, or of steps. */
export interface LoopReasonShown {
  /** Empty for a loop of steps. */
  walk: string;
  loop: string;
  iterations: number;
  reason: string;
}

/** A task that a use called: a run of its own. */
export interface CalledShown {
  /** Empty: none began. */
  run: string;
  /** `graph/task`. */
  task: string;
  rank: number;
  walk: string;
  node: string;
  use: string;
  step: number;
  iteration: number[];
  asked: number;
  answered: number;
  failed: boolean;
}

/** A call that was not made, as its outputs were kept from an earlier one. */
export interface KeptShown {
  rank: number;
  walk: string;
  node: string;
  use: string;
  step: number;
  iteration: number[];
  at: number;
}

/** `waiting`: for a person. */
export type RunState = "running" | "waiting" | "done" | "cancelled" | "failed";

/** Steps that the run's ranks got at once, some of them in loops of steps. */
export interface PassesShown {
  at: number;
  /** Number of the first of these steps. */
  first: number;
  /** For each step the pass of each loop around it, outermost first. */
  passes: number[][];
}

/** Times of another host, changed into the service's. */
export interface ClockErrorShown {
  host: string;
  /** Seconds that were added. */
  offset: number;
  /** The most microseconds by which its times may be wrong. */
  error: number;
}

export interface TraceShown {
  run: string;
  deployment: string;
  task: string;
  state: RunState;
  level: Level;
  /** Seconds since 1970 at its beginning. */
  wall: number;
  seconds: number;
  phases: Record<string, number>;
  error: string | null;
  /** By rank: `cuda:0`; empty where they are not known. */
  devices: string[];
  /** Host of each rank; empty for the service's own. Traces of earlier versions have none. */
  hosts?: string[];
  /** Those of the other hosts that took part. */
  clocks?: ClockErrorShown[];
  names: string[];
  lanes: LaneShown[];
  blocks: BlocksShown;
  /** Traces of earlier versions have none. */
  shards?: ShardsShown;
  hops: HopsShown;
  counters: CountersShown;
  loops: LoopEndShown[];
  /** None while the run goes on; traces of earlier versions have none. */
  ends?: LoopReasonShown[];
  /** None where nothing is played, or the run goes on. */
  played?: PlayedShown | null;
  /** In the order in which they were asked for; traces of earlier versions have none. */
  called?: CalledShown[];
  /** In the order of their times; traces of earlier versions have none. */
  kept?: KeptShown[];
  /** In order; none without loops of steps. */
  passes?: PassesShown[];
  /** Events that were dropped while it ran. */
  lost: number;
  cut: boolean;
  /** Values that came before they were sent, by more than the clocks' bounds. */
  early?: number;
}

/** `GET /deployments/{id}/traces`, newest first. */
export interface TraceRow {
  run: string;
  task: string;
  state: RunState;
  level: Level;
  seconds: number;
  /** Seconds since 1970. */
  at: number;
  blocks: number;
  recorded: boolean;
}

/** `GET /deployments/{id}/statistics`. Times in ms. */
export interface NodeFigures {
  /** Or a loop that the device runs whole. */
  node: string;
  rank: number;
  loop: boolean;
  calls: number;
  p50: number;
  p95: number;
  p99: number;
  queued_p50: number;
  queued_p95: number;
  batch_mean: number;
  /** Share of the critical paths, 0 to 1. */
  share: number;
  /** Seconds. */
  busy: number;
}

export interface StatisticsShown {
  runs: number;
  nodes: NodeFigures[];
}

export type WhyKind = "admission" | "queue" | "launch" | "compute" | "transfer" | "wait";

export interface WhyPiece {
  kind: WhyKind;
  /** Index of the trace's lane; -1 for none. */
  lane: number;
  walk: string;
  /** Row of the trace's blocks. */
  block: number | null;
  /** Row of the trace's hops. */
  hop: number | null;
  rank: number;
  began: number;
  ended: number;
}

export type Share =
  "socket" | "decode" | "queue" | "host" | "launch" | "device" | "transfer" | "call" | "encode" | "other";

export interface ShareRow {
  share: Share;
  seconds: number;
  /** Part of the whole, 0 to 1. */
  part: number;
  means: string;
  /** What to do if it is the largest. */
  advice: string;
}

/** The whole request, from its first byte to the last one of its answer. */
export interface ProfileShown {
  seconds: number;
  /** False where telemetry was `summary`, which doesn't tell calls apart. */
  exact: boolean;
  /** In the order in which a request comes by them; together the whole. */
  shares: ShareRow[];
  largest: Share;
  /** The known borders on its way, by time, in seconds from its beginning. */
  moments: { what: string; at: number }[];
}

/** `GET /runs/{run}/why`. */
export interface WhyShown {
  run: string;
  seconds: number;
  /** Seconds of each; together the run's. */
  shares: Record<WhyKind, number>;
  /** Empty where telemetry was `summary`, which doesn't tell calls apart. */
  path: WhyPiece[];
  bottleneck: { lane: string; rank: number; seconds: number; share: number; kind: WhyKind; loop: boolean } | null;
  says: string;
  profile: ProfileShown;
}

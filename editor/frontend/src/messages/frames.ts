// Messages of the telemetry socket. Field names are the service's; times are seconds of its host's monotonic clock.
import type { DeploymentShown } from "./answers";

export type Level = "off" | "summary" | "full";

// ── runs ────────────────────────────────────────────────────────────────────────────────────────

export interface RunPhaseEvent {
  type: "run";
  run: string;
  task: string;
  phase: "queued" | "started" | "first_output" | "finished";
  at: number;
  /** Code of the error it ended with. */
  error: string | null;
}

/** A run's ranks get steps that are in passes of loops. */
export interface RunPassesEvent {
  type: "passes";
  run: string;
  /** Number of the first of these steps. */
  first: number;
  /** For each step the pass of each loop around it, outermost first. */
  passes: number[][];
  at: number;
}

/** A rank has nothing more to do for a run. */
export interface RunPartEvent {
  type: "part";
  run: string;
  rank: number;
  /** It read the message that starts the run. */
  received: number;
  at: number;
}

// ── work, level `full` ──────────────────────────────────────────────────────────────────────────

/** A batch on its way through a rank. */
interface BatchTimes {
  /** When each row had all that it needs. */
  ready: number[];
  /** The batch was formed. */
  taken: number;
  /** The host has handed all of it to the device. */
  launched: number;
  /** On the device. */
  started: number;
  finished: number;
  pages_free: number;
}

/** One forward of a rank, outside of the loops on its device: a batch of calls by columns, a row each. */
export interface ForwardEvent extends BatchTimes {
  type: "forward";
  rank: number;
  /** Counts the forwards and launches of a rank. */
  number: number;
  runs: string[];
  walks: string[];
  nodes: string[];
  /** The uses of these nodes in their Walks, by name. */
  uses: string[];
  steps: number[];
  iterations: number[][];
  /** Rows. */
  failed: number[];
}

/** `count` iterations of loops on the device, one loop a row. */
export interface LaunchEvent extends BatchTimes {
  type: "launch";
  rank: number;
  number: number;
  loop: string;
  /** Those that these iterations call. */
  nodes: string[];
  /** The uses of these nodes, in the order of their calls. */
  uses: string[];
  count: number;
  runs: string[];
  walks: string[];
  steps: number[];
  /** Indices of the loops around. */
  outer: number[][];
  /** Its first iteration here. */
  first: number[];
  /** Parts of the loops run on other ranks, for which the launch waits: its time is theirs, too. */
  spans: boolean;
}

// ── work, level `summary` ───────────────────────────────────────────────────────────────────────

/** The work of a use for a run on one rank since the last packet. */
export interface ActivityEvent {
  type: "activity";
  run: string;
  rank: number;
  node: string;
  use: string;
  walk: string;
  /** Iteration of the latest call. */
  iteration: number[];
  calls: number;
  busy: number;
  queued: number;
  launched: number;
  finished: number;
  batch: number;
}

/** Where the loops of one name in one Walk are now on a rank's device. */
export interface LoopingEvent {
  type: "looping";
  rank: number;
  loop: string;
  nodes: string[];
  /** As those of `LaunchEvent`. */
  uses: string[];
  runs: string[];
  walks: string[];
  /** For each run's loop, the finished iterations; indices of the outer loops come first. */
  iterations: number[][];
  /** Since the last event of this loop. */
  launches: number;
  /** Iterations in these launches, over all runs. */
  calls: number;
  busy: number;
  batch: number;
  at: number;
  /** As that of `LaunchEvent`. */
  spans: boolean;
}

/** The totals of a device loop. The times of its nodes can't be separated. */
export interface LoopWork {
  nodes: string[];
  /** One for each of these nodes. */
  uses: string[];
  /** One for each use. */
  calls: number[];
  spans: boolean;
  /** Seconds of its launches. */
  busy: number;
  /** Seconds that it waited for rows. */
  queued: number;
  began: number;
  batch: number;
}

/** A loop on the device is over for a run; at every level but `off`. */
export interface LoopEndedEvent {
  type: "loop_ended";
  run: string;
  rank: number;
  walk: string;
  loop: string;
  step: number;
  /** Indices of the loops around. */
  iteration: number[];
  iterations: number;
  /** `stop`: its `until`. `bound`: its count. `error`. Otherwise the flag that named the end. */
  reason: string;
  at: number;
  /** On `summary`; on `full` its launches have told. */
  work: LoopWork | null;
}

/** A call that was not made: its outputs are those of an earlier call with the same inputs. At every level but `off`. */
export interface KeptEvent {
  type: "kept";
  run: string;
  rank: number;
  walk: string;
  node: string;
  use: string;
  step: number;
  iteration: number[];
  at: number;
}

/** A task that a use called has ended; at every level but `off`. */
export interface TaskCalledEvent {
  type: "task_called";
  run: string;
  rank: number;
  walk: string;
  node: string;
  use: string;
  step: number;
  iteration: number[];
  /** `graph/task`. */
  task: string;
  /** The run that it was; empty if none began. */
  called: string;
  asked: number;
  /** When it was answered. */
  at: number;
  failed: boolean;
}

// ── values between ranks ────────────────────────────────────────────────────────────────────────

export interface TransferEvent {
  type: "transfer";
  run: string;
  source: number;
  target: number;
  walk: string;
  /** The Walk's edge, or the stream, by its index in the plan. */
  edge: number;
  stream: boolean;
  /** -1 for a stream. */
  step: number;
  /** Loop indices of the value; of a stream, the number of the first item. */
  key: number[];
  transport: string;
  count: number;
  nbytes: number;
  at: number;
}

/** Its counterpart where it went to, level `full`. */
export interface ArrivalEvent {
  type: "arrival";
  run: string;
  rank: number;
  edge: number;
  stream: boolean;
  step: number;
  key: number[];
  at: number;
}

/** The part that another shard of a rank took in a batch, which the first one tells, level `full`. */
export interface ShardWorkEvent {
  type: "shard";
  /** Its own. */
  rank: number;
  /** The one that serves, whose batch has this number: */
  of: number;
  number: number;
  started: number;
  finished: number;
}

// ── gauges ──────────────────────────────────────────────────────────────────────────────────────

/** The tally of the operator of these nodes on its device since the last gauge. */
export interface NodeFigure {
  nodes: string[];
  name: string;
  count: number;
  total: number;
  /** The largest. */
  most: number;
}

export interface RankGauge {
  type: "rank";
  rank: number;
  at: number;
  runs: number;
  /** Calls and loops that wait. */
  queue: number;
  /** Share of the time since the last gauge in which the device had work. */
  busy: number;
  memory_used: number;
  memory_total: number;
  pages_free: number;
  pages_total: number;
  prefix_tokens: number;
  prefix_hits: number;
  out_tickets: number;
  rejected: number;
  /** Events that were never sent, since the start. */
  dropped: number;
  figures?: NodeFigure[];
}

export interface QueueGauge {
  type: "queue";
  at: number;
  running: number;
  waiting: number;
  reserved: Record<string, number>;
  budget: Record<string, number>;
}

// ── looked at ───────────────────────────────────────────────────────────────────────────────────

export interface Statistics {
  /** Numbers, finite or not. */
  count: number;
  nan: number;
  infinite: number;
  low: number;
  high: number;
  mean: number;
  std: number;
  /** Equal bins from `low` to `high`; empty where none was made. */
  histogram: number[];
  /** All but `count` are of one number in so many. */
  every: number;
}

/** Bytes are base64; numbers that are not finite are null. */
export type SamplePreview =
  | { kind: "text"; text: string }
  | { kind: "numbers"; values: (number | null)[]; columns: number }
  | { kind: "picture"; width: number; height: number; rgb: string }
  | { kind: "sound"; rate: number; pcm: string }
  | { kind: "heat"; rows: number; columns: number; cells: string; low: number; high: number }
  | { kind: "media"; data: string; nbytes: number };

/** One value that was looked at. */
export interface SampleEvent {
  type: "sample";
  /** `held`: an input of a call before which its run is paused. */
  why: "tap" | "held" | "record";
  /** Id of the tap; otherwise empty. */
  tap: string;
  run: string;
  rank: number;
  walk: string;
  step: number;
  /** As edges of the graph name it, `use.port` or `@in.name`; of a held call, its own `use.port`. */
  source: string;
  iteration: number[];
  at: number;
  modality: string;
  /** Dtype of a tensor; otherwise `text`, `bytes`, `number`, `list`, `cache`, `absent`. */
  dtype: string;
  /** For a cache: its sequences, tokens of the longest, pages. */
  shape: number[];
  statistics: Statistics | null;
  preview: SamplePreview | null;
  digest: string;
  picked: (number | null)[];
}

export type TelemetryEvent =
  | RunPhaseEvent
  | RunPassesEvent
  | RunPartEvent
  | ForwardEvent
  | LaunchEvent
  | ShardWorkEvent
  | ActivityEvent
  | LoopingEvent
  | LoopEndedEvent
  | KeptEvent
  | TaskCalledEvent
  | TransferEvent
  | ArrivalEvent
  | RankGauge
  | QueueGauge
  | SampleEvent;

// ── frames ──────────────────────────────────────────────────────────────────────────────────────

export interface EventsFrame {
  type: "events";
  deployment: string;
  seq: number;
  /** `conductor`, or `rank 0.3` with the number of its start. */
  source: string;
  first: number;
  dropped: number;
  /** Added to the events' times, this gives seconds since 1970. */
  wall: number;
  events: TelemetryEvent[];
  /** How times of another host were changed into the service's; null for ranks beside the service. */
  clock?: { host: string; offset: number; error: number } | null;
}

export type DeploymentFrame = { type: "deployment"; deployment: string; seq?: number } & DeploymentShown;

/** A run is over. */
export interface RunFrame {
  type: "run";
  deployment: string;
  seq: number;
  run: string;
  task: string;
  state: "done" | "cancelled" | "failed";
  seconds: number;
}

/** A call that a run is paused before. */
export interface HeldCall {
  rank: number;
  walk: string;
  use: string;
  /** Empty for a move of a state between ranks. */
  node: string;
  step: number;
  iteration: number[];
  /** Name of the device loop, if it is one. */
  loop: string;
}

/** Told anew whenever what is held changes. */
export interface PausedFrame {
  type: "paused";
  deployment: string;
  seq: number;
  run: string;
  held: HeldCall[];
  /** Id of the one that it came to; empty where it was asked for, or stepped. */
  breakpoint: string;
}

export interface ResumedFrame {
  type: "resumed";
  deployment: string;
  seq: number;
  run: string;
}

export interface TapShown {
  id: string;
  walk: string;
  /** `use.port`, `@in.name`. */
  source: string;
  /** Where the edge ends that alone is looked at; empty: all values that leave the source are. */
  to: string;
  /** Seconds between two samples of a rank, at least. */
  interval: number;
  preview: boolean;
  /** Null: of all runs. */
  run: string | null;
  /** Seconds since 1970. */
  expires_at: number;
  /** In a loop that a device runs whole: runs that start from now are stepped. */
  inside: boolean;
}

export interface BreakShown {
  id: string;
  walk: string;
  use: string;
  /** Iteration of its innermost loop; null: at every call. */
  iteration: number | null;
  run: string | null;
  expires_at: number;
  inside: boolean;
}

/** Level, taps and breakpoints of a deployment. */
export interface WatchShown {
  level: Level;
  taps: TapShown[];
  breakpoints: BreakShown[];
}

/** At every change. */
export type WatchFrame = { type: "watch"; deployment: string; seq: number } & WatchShown;

/** The first frame of a connection after the deployments' present states. */
export interface WelcomeFrame {
  type: "welcome";
  boot: string;
  seq: number;
}

/**
 * Made here, never sent: frames are missing before the next one. `count`: how many, null where nobody knows (the
 * service has started anew). Whoever keeps a state made of frames asks the service for it again.
 */
export interface GapFrame {
  type: "gap";
  count: number | null;
}

type Told = EventsFrame | DeploymentFrame | RunFrame | PausedFrame | ResumedFrame | WatchFrame | WelcomeFrame;

export type Frame = Told | GapFrame;
export type Sent = Told | { type: "dropped"; count: number };

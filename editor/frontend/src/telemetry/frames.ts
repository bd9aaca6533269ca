// What the telemetry socket sends. Field names are the service's; times are seconds of its host's monotonic clock.
import type { DeploymentShown } from "../api/types";

export interface ActivityEvent {
  type: "activity";
  run: string;
  rank: number;
  node: string;
  walk: string;
  iteration: number[];
  calls: number;
  busy: number;
  queued: number;
  launched: number;
  finished: number;
  batch: number;
}

/** One call; only sent where telemetry is set to `full`. */
export interface CallEvent {
  type: "call";
  run: string;
  rank: number;
  walk: string;
  node: string;
  step: number;
  iteration: number[];
  ready: number;
  launched: number;
  finished: number;
  batch: number;
  failed: boolean;
}

export interface RunPhaseEvent {
  type: "run";
  run: string;
  task: string;
  phase: "queued" | "started" | "first_output" | "finished";
  at: number;
  /** Code of the error it ended with. */
  error: string | null;
}

export interface TransferEvent {
  type: "transfer";
  run: string;
  source: number;
  target: number;
  /** Of the Walk, or stream, by its index in the plan; -1 for neither. */
  edge: number;
  stream: boolean;
  step: number;
  nbytes: number;
  at: number;
}

export interface RankGauge {
  type: "rank";
  rank: number;
  at: number;
  runs: number;
  pages_free: number;
  pages_total: number;
  out_tickets: number;
  rejected: number;
}

export interface QueueGauge {
  type: "queue";
  at: number;
  running: number;
  waiting: number;
  reserved: Record<string, number>;
  budget: Record<string, number>;
}

export type TelemetryEvent = ActivityEvent | CallEvent | RunPhaseEvent | TransferEvent | RankGauge | QueueGauge;

export interface EventsFrame {
  type: "events";
  deployment: string;
  seq: number;
  /** `conductor`, or `rank 0.3` with the number of its start. */
  source: string;
  first: number;
  dropped: number;
  /** What to add to the events' times for seconds since 1970. */
  wall: number;
  events: TelemetryEvent[];
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

export type Frame = EventsFrame | DeploymentFrame | RunFrame | WelcomeFrame | GapFrame;
export type Sent = EventsFrame | DeploymentFrame | RunFrame | WelcomeFrame | { type: "dropped"; count: number };

// What a run of this page has sent of late, edge by edge, so that an error can tell what went into the node that
// failed. Of recorded runs alone: of others the service tells no values.
import type { GraphDocument } from "../document/types";
import { factsOf } from "../document/routes";
import type { Frame, SampleEvent } from "../telemetry/frames";
import { subscribe } from "../telemetry/socket";

/** Samples come a moment after the run has told its end. */
const LATE_MS = 2_000;
const RUNS = 8;

/** Walk and source -> the newest sample of it. */
export type Latest = Map<string, SampleEvent>;

const runs = new Map<string, Latest>();

/** Keep what this run tells until the returned function is called. */
export function keep(run: string): () => void {
  const latest: Latest = new Map();
  runs.set(run, latest);
  for (const oldest of runs.keys()) if (runs.size > RUNS) runs.delete(oldest);
  const leave = subscribe((frame) => take(latest, run, frame));
  return () => void setTimeout(leave, LATE_MS);
}

export function take(latest: Latest, run: string, frame: Frame): void {
  if (frame.type !== "events") return;
  for (const event of frame.events)
    if (event.type === "sample" && event.why === "record" && event.run === run)
      latest.set(`${event.walk} ${event.source}`, event);
}

/** null: nothing was kept of this run. */
export function latestOf(run: string): Latest | null {
  return runs.get(run) ?? null;
}

export interface Fed {
  /** `use.port` that it went into. */
  to: string;
  from: string;
  /** null: nothing was told. */
  sample: SampleEvent | null;
}

/** What was sent last to the uses of a node in a Walk. */
export function fedTo(graph: GraphDocument, walk: string, node: string, latest: Latest): Fed[] {
  const body = graph.walks?.[walk];
  if (!body) return [];
  const { routes } = factsOf(body);
  return routes
    .filter((route) => route.target.entry?.node === node)
    .map(({ from, to }) => ({ to, from, sample: latest.get(`${walk} ${from}`) ?? null }));
}

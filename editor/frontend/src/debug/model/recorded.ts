// Recent values of recorded runs, by edge, so that an error can show the inputs of the node that failed.
// Kept while a run that this page has started recorded is under way; of others the service tells no values.
import type { GraphDocument } from "../../document/types";
import { factsOf } from "../../document/routes";
import type { Frame, SampleEvent } from "../../messages/frames";
import { subscribe } from "../../api/socket";

/** Samples may come a moment after the run has told its end. */
const LATE_MS = 2_000;
const TELL_MS = 100;
const RUNS = 8;

/** Walk and source -> the newest sample of it. */
export type Latest = ReadonlyMap<string, SampleEvent>;

export class Recorded {
  private readonly runs = new Map<string, Map<string, SampleEvent>>();
  private readonly listeners = new Set<() => void>();
  private telling = false;
  /** Counts what came, for those who show it. */
  private version = 0;

  readonly take = (frame: Frame): void => {
    if (frame.type !== "events") return;
    for (const event of frame.events) if (event.type === "sample" && event.why === "record") this.put(event);
  };

  /** null: nothing was told of this run. */
  readonly of = (run: string): Latest | null => this.runs.get(run) ?? null;

  readonly now = (): number => this.version;

  /** Called a little after something came. */
  readonly watch = (changed: () => void): (() => void) => {
    this.listeners.add(changed);
    return () => this.listeners.delete(changed);
  };

  private put(sample: SampleEvent): void {
    const latest = this.runs.get(sample.run) ?? new Map<string, SampleEvent>();
    this.runs.set(sample.run, latest);
    for (const oldest of this.runs.keys()) if (this.runs.size > RUNS) this.runs.delete(oldest);
    latest.set(`${sample.walk} ${sample.source}`, sample);
    if (this.telling) return;
    this.telling = true;
    setTimeout(() => {
      this.telling = false;
      this.version += 1;
      for (const changed of this.listeners) changed();
    }, TELL_MS);
  }
}

/** The page's. */
export const recorded = new Recorded();

let keepers = 0;
let leave: (() => void) | null = null;

/** Keep what recorded runs tell until the returned function is called. */
export function keep(): () => void {
  keepers += 1;
  leave ??= subscribe(recorded.take);
  return () =>
    void setTimeout(() => {
      keepers -= 1;
      if (keepers > 0) return;
      leave?.();
      leave = null;
    }, LATE_MS);
}

export interface Fed {
  /** `use.port` that it went into. */
  to: string;
  from: string;
  /** null: nothing was told. */
  sample: SampleEvent | null;
}

/** The last values sent to the uses of a node in a Walk. */
export function fedTo(graph: GraphDocument, walk: string, node: string, latest: Latest): Fed[] {
  const body = graph.walks?.[walk];
  if (!body) return [];
  const { routes } = factsOf(body);
  return routes
    .filter((route) => route.target.entry?.node === node)
    .map(({ from, to }) => ({ to, from, sample: latest.get(`${walk} ${from}`) ?? null }));
}

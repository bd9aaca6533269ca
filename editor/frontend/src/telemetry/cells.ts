// Figures that are gathered in place and shown as new objects at a flush, a few times a second. Pure.
import type { NodeFigure } from "../messages/frames";
import type { Told } from "./calls";
import type { Activity, Figure, LoopActivity, NodeError, NodeState, Preview } from "./shown";

/** Something that changes in place, and what is shown of it. */
export abstract class Cell<T> {
  dirty = false;
  shown: T | null = null;
  readonly listeners = new Set<() => void>();

  abstract picture(stale: boolean): T;

  show(stale: boolean): void {
    this.dirty = false;
    this.shown = this.picture(stale);
  }
}

const RATE_WINDOW_MS = 1_000;

/** A node. */
export class Live extends Cell<Activity> {
  state: NodeState = "idle";
  iteration: readonly number[] | null = null;
  calls = 0;
  kept = 0;
  rate = 0;
  ms = 0;
  queuedMs = 0;
  batch = 0;
  ranks: readonly number[] = [];
  error: NodeError | null = null;
  preview: Preview | null = null;
  words: string | null = null;
  sound: string | null = null;
  /** When it was last heard of, by the page's clock. */
  heard = 0;
  /** Runs in a loop on the device, whose calls are told once it has ended -> iterations until now. */
  readonly inside = new Map<string, number>();
  /** Figures of its own, by name and rank. */
  private readonly figures = new Map<string, Map<number, NodeFigure>>();
  private windowAt = 0;
  private windowCalls = 0;

  /** Its state while it isn't called. */
  get rest(): NodeState {
    if (this.calls === 0) return "idle";
    return this.kept === this.calls ? "kept" : "done";
  }

  /** Calls a second, of what was told while it ran. */
  measure(calls: number, now: number): void {
    if (this.state !== "running") {
      // The calls of the first packet came before it began.
      this.windowAt = now;
      this.windowCalls = 0;
      return;
    }
    this.windowCalls += calls;
    const seconds = (now - this.windowAt) / 1000;
    if (seconds > 0) this.rate = this.windowCalls / seconds;
    if (now - this.windowAt > RATE_WINDOW_MS) {
      // Half of the window stays, so that the rate doesn't jump.
      this.windowAt += (now - this.windowAt) / 2;
      this.windowCalls /= 2;
    }
  }

  /** Counts calls, with their seconds where these are told. */
  spend({ calls, busy, queued, kept }: Told): void {
    if (busy !== null) {
      const blend = (before: number, now: number) => (this.calls > 0 && before > 0 ? (before + now) / 2 : now);
      this.ms = blend(this.ms, (busy / calls) * 1000);
      this.queuedMs = blend(this.queuedMs, (queued / calls) * 1000);
    }
    this.calls += calls;
    if (kept) this.kept += calls;
  }

  figure(rank: number, figure: NodeFigure): this {
    const ranks = this.figures.get(figure.name) ?? new Map<number, NodeFigure>();
    this.figures.set(figure.name, ranks.set(rank, figure));
    return this;
  }

  on(rank: number): void {
    if (!this.ranks.includes(rank)) this.ranks = [...this.ranks, rank];
  }

  clear(): void {
    this.iteration = this.error = null;
    this.calls = this.kept = this.rate = this.ms = this.queuedMs = this.batch = this.heard = 0;
    this.windowAt = this.windowCalls = 0;
    this.ranks = [];
    this.words = this.sound = null;
    this.inside.clear();
    this.figures.clear();
  }

  override picture(stale: boolean): Activity {
    const { state, iteration, kept, rate, ms, queuedMs, batch, ranks, error: failure, preview, words, sound } = this;
    let { calls } = this;
    for (const iterations of this.inside.values()) calls += iterations;
    const shown = {
      state,
      iteration,
      calls,
      kept,
      rate,
      ms,
      queuedMs,
      batch,
      ranks,
      figures: [...this.figures].map(([name, of]) => together(name, [...of.values()])),
      failure,
      preview,
      words,
      sound,
      stale,
    };
    return failure ? { ...shown, error: failure.message } : shown;
  }
}

/** The figure of all ranks. */
function together(name: string, figures: readonly NodeFigure[]): Figure {
  const sum = (of: (figure: NodeFigure) => number) => figures.reduce((all, one) => all + of(one), 0);
  return {
    name,
    mean:
      sum((one) => one.total) /
      Math.max(
        1,
        sum((one) => one.count),
      ),
    most: Math.max(...figures.map((one) => one.most)),
  };
}

/** With more runs side by side, a loop shows where they are and no single run's end. */
const FEW = 4;

/** A loop of a Walk. */
export class LiveLoop extends Cell<LoopActivity | null> {
  state: LoopActivity["state"] = "running";
  ms = 0;
  /** Under way in it -> iterations done. */
  readonly runs = new Map<string, number>();
  /** The newest indices that a run's calls told of, of all uses and of each. */
  private readonly heard = new Map<string, { at: readonly number[]; by: Map<string, readonly number[]> }>();
  /** Runs that iterate it on the device. */
  private readonly whole = new Set<string>();
  /** Iterations of the run that left it last. */
  private left: number | null = null;
  private lastRun: string | null = null;
  /** And how many these were at most. */
  private last: number | null = null;

  constructor(
    readonly walk: string,
    readonly loop: string,
    private readonly times: (walk: string, loop: string, run: string | null) => number | null,
    /** It is a map, whose items run side by side. */
    private readonly isMap: () => boolean = () => false,
  ) {
    super();
  }

  /** The device tells of it as a whole; what its nodes tell of a run's calls there comes late. */
  iterated(run: string, done: number): void {
    this.whole.add(run);
    this.reach(run, done);
  }

  /** A use was called there; `at`: the indices of the loops around it, this one's last. */
  called(run: string, use: string, at: readonly number[]): void {
    if (this.whole.has(run)) return;
    if (this.isMap()) this.began(run, at);
    else if (this.isNews(run, use, at)) this.reach(run, at.at(-1)! + 1);
  }

  /** An item of a map is at work, maybe behind others; they count anew where the indices around it change. */
  private began(run: string, at: readonly number[]): void {
    const before = this.heard.get(run)?.at;
    const same = before !== undefined && at.slice(0, -1).every((index, depth) => index === before[depth]);
    this.heard.set(run, { at, by: new Map() });
    this.reach(run, Math.max(at.at(-1)! + 1, same ? (this.runs.get(run) ?? 0) : 0));
  }

  private reach(run: string, done: number): void {
    this.runs.set(run, done);
    this.state = "running";
  }

  /** Ranks, and uses that are left out now and then, tell of what is past; a use that goes back goes around anew. */
  private isNews(run: string, use: string, at: readonly number[]): boolean {
    let known = this.heard.get(run);
    if (!known) this.heard.set(run, (known = { at, by: new Map() }));
    const before = known.by.get(use);
    known.by.set(use, at);
    const anew = before !== undefined && isBefore(at, before);
    if (!anew && isBefore(at, known.at)) return false;
    known.at = at;
    return true;
  }

  /** It comes no more. */
  end(run: string, failed: boolean): boolean {
    const was = this.runs.has(run);
    if (was) this.leave(run, failed);
    this.whole.delete(run);
    return was;
  }

  /** `iterations` where it is told how many there were. */
  leave(run: string, failed: boolean, iterations: number | null = null): void {
    if (iterations !== null) this.whole.add(run);
    const reached = this.runs.get(run);
    if (reached === undefined && iterations === null) return;
    this.left = iterations ?? reached ?? null;
    this.lastRun = run;
    this.last = this.most(run);
    this.runs.delete(run);
    this.heard.delete(run);
    if (this.runs.size === 0) this.state = failed ? "error" : "done";
  }

  /** A rank's report of the last iterations may arrive after the run's end, which another process reports. */
  late(run: string, done: number): void {
    if (run === this.lastRun && this.left !== null) this.left = Math.max(this.left, done);
  }

  clear(): void {
    this.runs.clear();
    this.heard.clear();
    this.whole.clear();
    this.left = this.last = this.lastRun = null;
    this.ms = 0;
    this.state = "running";
  }

  private most(run: string): number | null {
    return this.times(this.walk, this.loop, this.runs.size <= FEW ? run : null);
  }

  override picture(): LoopActivity | null {
    const { state, ms, left } = this;
    if (this.runs.size === 0) {
      return left === null ? null : { state, low: left, high: left, times: this.last, runs: 0, ms };
    }
    let [low, high] = [Infinity, 0];
    let times: number | null | undefined;
    for (const [run, done] of this.runs) {
      low = Math.min(low, done);
      high = Math.max(high, done);
      const most = this.most(run);
      times = times === undefined || times === most ? most : null;
    }
    return { state, low, high, times: times ?? null, runs: this.runs.size, ms };
  }
}

function isBefore(a: readonly number[], b: readonly number[]): boolean {
  const depth = a.findIndex((index, place) => index !== b[place]);
  return depth >= 0 && a[depth]! < (b[depth] ?? -1);
}

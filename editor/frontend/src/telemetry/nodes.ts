// What every node does, from telemetry: figures gathered in place as messages come, shown as new objects a few times
// a second; a change of state is shown with the next frame of the screen. No React, no browser.
import type { RunShown } from "../api/types";
import type { Activity, Latest, NodeError, NodeState, Preview } from "./shown";
import type { ActivityEvent, Frame, QueueGauge, RunPhaseEvent } from "./frames";

/** Time, and when to show; tests give their own. */
export interface Clock {
  /** In ms, never going back. */
  now: () => number;
  /** Calls back with the next frame of the screen. */
  frame: (run: () => void) => void;
  /** Calls back after so many ms; the returned function takes it back. */
  after: (ms: number, run: () => void) => () => void;
}

export const FLUSH_MS = 125;
/** A node without news for so long is no longer running: packets of a busy one come twenty times a second. */
const HOLD_MS = 500;
const LONGEST_HOLD_MS = 5_000;
const RATE_WINDOW_MS = 1_000;
const WORDS = 160;
const REMEMBERED = 64;

class Live {
  state: NodeState = "idle";
  iteration: number[] | null = null;
  calls = 0;
  rate = 0;
  ms = 0;
  batch = 0;
  ranks: number[] = [];
  error: NodeError | null = null;
  preview: Preview | null = null;
  words: string | null = null;
  sound: string | null = null;
  /** When it was last heard of, by the clock. */
  heard = 0;
  /** Runs that are in a loop on the device, which tells of its calls once it has ended. */
  readonly inside = new Set<string>();
  /** Of the rate's window. */
  windowAt = 0;
  windowCalls = 0;
  dirty = false;
  shown: Activity | null = null;
  readonly listeners = new Set<() => void>();
}

export class NodeStore {
  private readonly nodes = new Map<string, Live>();
  private readonly dirty: Live[] = [];
  private readonly running = new Set<Live>();
  /** Under way. */
  private readonly runs = new Set<string>();
  /** Ended of late: packets of the ranks may still come after the news of the end. */
  private readonly over = new Set<string>();
  private readonly gaugeListeners = new Set<() => void>();
  private queue: QueueGauge | null = null;
  private newest: ActivityEvent | null = null;
  private latest: Latest | null = null;
  private gaugesChanged = false;
  private deployment: string | null = null;
  private focus: string | null = null;
  private frozen = false;
  private paused = false;
  private stale = false;
  private soon = false;
  private flushing = false;
  private cancelTick: (() => void) | null = null;
  private lastFlush = -Infinity;

  /**
   * `expected`: nodes that a task may call. `failed`: a run ended with an error whose node isn't known yet.
   * `revoke`: an object URL isn't needed any more.
   */
  constructor(
    private readonly clock: Clock,
    private readonly hooks: {
      expected: (task: string) => Iterable<string>;
      failed: (run: string) => void;
      revoke: (url: string) => void;
    },
  ) {}

  // ── reading ───────────────────────────────────────────────────────────────────────────────────

  readonly get = (node: string): Activity | null => {
    const live = this.nodes.get(node);
    if (!live) return null;
    // Nobody watched it, so no flush made its picture.
    if (live.dirty && live.listeners.size === 0) live.shown = this.shown(live);
    return live.shown;
  };

  readonly isRunning = (node: string): boolean => this.nodes.get(node)?.shown?.state === "running";

  /** Called when what is shown of the node changes. */
  readonly watch = (node: string, changed: () => void): (() => void) => {
    const live = this.live(node);
    live.listeners.add(changed);
    return () => live.listeners.delete(changed);
  };

  /** The last call that was told of. */
  readonly now = (): Latest | null => this.latest;
  readonly queued = (): QueueGauge | null => this.queue;

  /** Called when gauges, the focus, or whether anything runs may have changed. */
  readonly watchGauges = (changed: () => void): (() => void) => {
    this.gaugeListeners.add(changed);
    return () => this.gaugeListeners.delete(changed);
  };

  // ── what is followed ──────────────────────────────────────────────────────────────────────────

  follow(deployment: string | null): void {
    if (deployment === this.deployment) return;
    this.deployment = deployment;
    this.queue = null;
    this.gaugesChanged = true;
    this.focusOn(null);
  }

  /** Only this run's figures from now on; null: all runs'. */
  focusOn(run: string | null): void {
    this.focus = run;
    this.frozen = false;
    this.gaugesChanged = true;
    this.runs.clear();
    for (const live of this.nodes.values()) this.clear(live);
    this.schedule(true);
  }

  readonly focused = (): string | null => this.focus;
  readonly anyRunning = (): boolean => this.running.size > 0;

  /** A finished run's figures, until another run is focused. */
  showRun(run: RunShown): void {
    this.focusOn(run.id);
    this.frozen = true;
    for (const row of run.times as { node: string; rank: number; calls: number; busy: number }[]) {
      const live = this.live(row.node);
      const busy = (live.ms * live.calls) / 1000 + row.busy;
      live.calls += row.calls;
      live.ms = live.calls ? (busy / live.calls) * 1000 : 0;
      if (!live.ranks.includes(row.rank)) live.ranks = [...live.ranks, row.rank];
      live.state = "done";
      this.touch(live);
    }
    if (run.error) this.fail(run.id, run.error);
    this.schedule(true);
  }

  /** Hold what is shown. What happened meanwhile is not counted. */
  setPaused(paused: boolean): void {
    this.paused = paused;
    if (!paused) this.lose();
  }

  setStale(stale: boolean): void {
    if (stale === this.stale) return;
    this.stale = stale;
    if (stale) this.lose();
    for (const live of this.nodes.values()) if (live.shown) this.touch(live);
    this.schedule(true);
  }

  // ── what comes ────────────────────────────────────────────────────────────────────────────────

  readonly take = (frame: Frame): void => {
    if (frame.type === "gap") {
      this.lose();
      return;
    }
    if (this.paused || frame.type === "welcome" || frame.deployment !== this.deployment) return;
    if (frame.type === "run") {
      this.ended(frame.run, frame.state === "failed");
      return;
    }
    if (frame.type !== "events") return;
    const now = this.clock.now();
    for (const event of frame.events) {
      switch (event.type) {
        case "activity":
          this.called(event, now);
          break;
        case "run":
          this.phase(event);
          break;
        case "queue":
          this.queue = event;
          this.gaugesChanged = true;
          break;
        default:
          break;
      }
    }
    this.schedule(false);
  };

  /** A run is under way. The first one after a quiet time starts all figures anew. */
  begin(run: string): void {
    if (this.runs.has(run) || this.over.has(run) || !this.follows(run)) return;
    if (this.runs.size === 0 && !this.frozen) for (const live of this.nodes.values()) this.clear(live);
    this.runs.add(run);
    for (const live of this.nodes.values()) {
      if (!live.error || live.error.run === run) continue;
      live.error = null;
      this.turn(live, "idle");
      this.touch(live);
    }
  }

  /** A run's error, at the node it happened at. */
  fail(run: string, error: { code: string; message: string; [other: string]: unknown }): void {
    if (!this.follows(run) || typeof error["node"] !== "string") return;
    const live = this.live(error["node"]);
    live.error = { code: error.code, message: error.message, run };
    this.turn(live, "error");
    this.touch(live);
  }

  /** The followed run made a picture. The store owns the URL from now on. */
  picture(node: string, url: string): void {
    const live = this.live(node);
    if (live.preview?.pinned) {
      this.hooks.revoke(url);
      return;
    }
    if (live.preview) this.hooks.revoke(live.preview.url);
    live.preview = { url, pinned: false };
    this.touch(live);
    this.schedule(true);
  }

  text(node: string, piece: string): void {
    const live = this.live(node);
    live.words = ((live.words ?? "") + piece).slice(-WORDS);
    this.touch(live);
    this.schedule(false);
  }

  sound(node: string, url: string): void {
    const live = this.live(node);
    if (live.sound) this.hooks.revoke(live.sound);
    live.sound = url;
    this.touch(live);
    this.schedule(false);
  }

  pin(node: string, pinned: boolean): void {
    const live = this.live(node);
    if (!live.preview || live.preview.pinned === pinned) return;
    live.preview = { ...live.preview, pinned };
    this.touch(live);
    this.schedule(true);
  }

  // ── inside ────────────────────────────────────────────────────────────────────────────────────

  private follows(run: string): boolean {
    return this.focus === null || this.focus === run;
  }

  private called(event: ActivityEvent, now: number): void {
    if (this.frozen || !this.follows(event.run)) return;
    const late = this.over.has(event.run);
    if (!late) this.begin(event.run);
    const live = this.live(event.node);
    const { calls } = event;
    if (calls === 0) {
      if (!late) this.enter(live, event, now);
      return;
    }
    live.inside.delete(event.run);
    const ms = (event.busy / Math.max(calls, 1)) * 1000;
    live.ms = live.calls ? live.ms + (ms - live.ms) * 0.5 : ms;
    live.calls += calls;
    live.iteration = event.iteration;
    if (!late) this.newest = event;
    live.batch = event.batch;
    live.heard = now;
    if (!live.ranks.includes(event.rank)) live.ranks = [...live.ranks, event.rank];
    this.touch(live);
    if (late) {
      if (live.state === "idle" || live.state === "queued") this.turn(live, "done");
      return;
    }
    this.measure(live, calls, now);
    if (!live.error) this.turn(live, "running");
  }

  private enter(live: Live, event: ActivityEvent, now: number): void {
    live.inside.add(event.run);
    live.heard = now;
    if (!live.ranks.includes(event.rank)) live.ranks = [...live.ranks, event.rank];
    if (!live.error) this.turn(live, "running");
    this.touch(live);
    this.schedule(false);
  }

  private measure(live: Live, calls: number, now: number): void {
    if (live.state !== "running") {
      // The first packet's calls were before the window.
      live.windowAt = now;
      live.windowCalls = 0;
      return;
    }
    live.windowCalls += calls;
    const seconds = (now - live.windowAt) / 1000;
    if (seconds > 0) live.rate = live.windowCalls / seconds;
    if (now - live.windowAt > RATE_WINDOW_MS) {
      // Half of the window stays, so that the rate doesn't jump.
      live.windowAt += (now - live.windowAt) / 2;
      live.windowCalls /= 2;
    }
  }

  private phase(event: RunPhaseEvent): void {
    if (this.frozen || !this.follows(event.run)) return;
    if (event.phase === "finished") {
      this.ended(event.run, event.error !== null && event.error !== "cancelled");
      return;
    }
    if (this.over.has(event.run)) return;
    this.begin(event.run);
    if (event.phase === "first_output") return;
    for (const node of this.hooks.expected(event.task)) {
      const live = this.live(node);
      if (live.state === "running") continue;
      this.turn(live, "queued");
      this.touch(live);
    }
  }

  private ended(run: string, failed: boolean): void {
    if (this.frozen || !this.follows(run) || this.over.has(run)) return;
    this.over.add(run);
    if (this.over.size > REMEMBERED) for (const oldest of this.over) if (this.over.delete(oldest)) break;
    for (const live of this.nodes.values()) live.inside.delete(run);
    if (failed) this.hooks.failed(run);
    if (!this.runs.delete(run) || this.runs.size > 0) return;
    for (const live of this.nodes.values()) this.settle(live);
    this.schedule(true);
  }

  /** Something may have been missed: nothing counts as under way until it is heard of again. */
  private lose(): void {
    this.runs.clear();
    for (const live of this.nodes.values()) this.settle(live);
    this.schedule(true);
  }

  private settle(live: Live): void {
    live.inside.clear();
    if (live.state === "running") this.turn(live, "done");
    else if (live.state === "queued") this.turn(live, live.calls > 0 ? "done" : "idle");
    else return;
    live.rate = 0;
    this.touch(live);
  }

  private clear(live: Live): void {
    this.turn(live, "idle");
    live.iteration = live.error = null;
    live.calls = live.rate = live.ms = live.batch = live.heard = live.windowAt = live.windowCalls = 0;
    live.ranks = [];
    if (live.sound) this.hooks.revoke(live.sound);
    live.words = live.sound = null;
    if (live.preview && !live.preview.pinned) {
      this.hooks.revoke(live.preview.url);
      live.preview = null;
    }
    this.touch(live);
  }

  private turn(live: Live, state: NodeState): void {
    if (live.state === state) return;
    live.state = state;
    this.gaugesChanged = true;
    if (state === "running") this.running.add(live);
    else this.running.delete(live);
    this.schedule(true);
  }

  private touch(live: Live): void {
    if (live.dirty) return;
    live.dirty = true;
    this.dirty.push(live);
  }

  private live(node: string): Live {
    let live = this.nodes.get(node);
    if (!live) this.nodes.set(node, (live = new Live()));
    return live;
  }

  // ── showing ───────────────────────────────────────────────────────────────────────────────────

  private schedule(atOnce: boolean): void {
    if (this.flushing) return;
    if (atOnce && !this.soon) {
      this.soon = true;
      this.clock.frame(this.onFrame);
    }
    if (!this.cancelTick) {
      const wait = Math.max(0, this.lastFlush + FLUSH_MS - this.clock.now());
      this.cancelTick = this.clock.after(wait, this.flush);
    }
  }

  private readonly onFrame = (): void => {
    if (this.soon) this.flush();
  };

  private readonly flush = (): void => {
    this.flushing = true;
    this.soon = false;
    this.cancelTick?.();
    this.cancelTick = null;
    const now = (this.lastFlush = this.clock.now());
    this.expire(now);
    const changed = this.dirty.splice(0);
    for (const live of changed) live.shown = this.shown(live);
    for (const live of changed) for (const listener of live.listeners) listener();
    if (this.newest !== null) {
      const { run, node, iteration } = this.newest;
      this.latest = { run, node, iteration };
      this.newest = null;
      this.gaugesChanged = true;
    }
    if (this.gaugesChanged) {
      this.gaugesChanged = false;
      for (const listener of this.gaugeListeners) listener();
    }
    this.flushing = false;
    if (this.running.size > 0) this.schedule(false);
  };

  private expire(now: number): void {
    for (const live of this.running) {
      if (live.inside.size > 0) continue;
      const hold = Math.min(LONGEST_HOLD_MS, Math.max(HOLD_MS, live.ms * 1.5));
      if (now - live.heard < hold) continue;
      this.turn(live, "done");
      live.rate = 0;
      this.touch(live);
    }
  }

  private shown(live: Live): Activity {
    live.dirty = false;
    const { state, iteration, calls, rate, ms, batch, ranks, error: failure, preview, words, sound } = live;
    const { stale } = this;
    const shown = { state, iteration, calls, rate, ms, batch, ranks, failure, preview, words, sound, stale };
    return failure ? { ...shown, error: failure.message } : shown;
  }
}

// The activity of every node and loop: figures updated in place as messages arrive, shown as new objects a few
// times a second; a change of state is shown with the next frame of the screen. No React, no browser.
import type { RunShown } from "../messages/answers";
import { endedBy, toldBy, useKey, type Told } from "./calls";
import { Live, LiveLoop } from "./cells";
import { Flusher, type Clock } from "./flush";
import { Gauges } from "./gauges";
import type { Frame, LoopEndedEvent, RunPhaseEvent } from "../messages/frames";
import type { Activity, LoopActivity, NodeState } from "./shown";
import { Runs } from "./runs";
import type { Steps } from "./steps";
import { strings } from "../strings";

export interface Hooks {
  /** The nodes that a run of a task may call; null if unknown. */
  steps: (task: string) => Steps | null;
  /** Names of the loops whose indices a call of the use has. */
  loops: (walk: string, use: string) => readonly string[] | null;
  /** How often a loop goes around at most in a run; of null: in every run. */
  times: (walk: string, loop: string, run: string | null) => number | null;
  /** True if it is a map, whose items run side by side. */
  isMap: (walk: string, loop: string) => boolean;
  /** The node or use that stands for the blueprint that this one is in; the same where none does. */
  shownAs: (name: string, walk?: string) => string;
  /** A run ended with an error whose node isn't known yet. */
  failed: (run: string) => void;
  /** An object URL isn't needed any more. */
  revoke: (url: string) => void;
}

/** As a run's row has it; `walk`: of a loop, `inside`: calls of its nodes. */
interface RunTime {
  node: string;
  rank: number;
  calls: number;
  busy: number;
  kept?: number;
  walk?: string;
  inside?: Record<string, number>;
}

/** A node without news for so long is no longer running: packets of a busy one come twenty times a second. */
const HOLD_MS = 500;
const LONGEST_HOLD_MS = 5_000;
const WORDS = 160;

export class NodeStore {
  /** Told too when the focus changes, or whether anything runs. */
  readonly gauges = new Gauges();
  /** Nodes by their names, and uses by `walk/use`. */
  private readonly nodes = new Map<string, Live>();
  /** By `walk/loop`. */
  private readonly loops = new Map<string, LiveLoop>();
  private readonly running = new Set<Live>();
  private readonly runs = new Runs();
  private deployment: string | null = null;
  private focus: string | null = null;
  private frozen = false;
  private paused = false;
  private stale = false;
  /** The failed run whose error was asked for, until another run begins. */
  private unexplained: string | null = null;
  private readonly flusher: Flusher;

  constructor(
    private readonly clock: Clock,
    private readonly hooks: Hooks,
  ) {
    this.flusher = new Flusher(clock, {
      before: (now) => this.expire(now),
      stale: () => this.stale,
      after: () => this.told(),
    });
  }

  // ── reading ───────────────────────────────────────────────────────────────────────────────────

  readonly get = (node: string): Activity | null => {
    const live = this.nodes.get(node);
    if (!live) return null;
    // Nobody watched it, so no flush made its picture.
    if (live.dirty && live.listeners.size === 0) live.show(this.stale);
    return live.shown;
  };

  /** Where a loop's runs are; null: nothing was heard of it. */
  readonly loop = (walk: string, loop: string): LoopActivity | null =>
    this.loops.get(`${walk}/${loop}`)?.shown ?? null;

  readonly watchLoop = (walk: string, loop: string, changed: () => void): (() => void) => {
    const live = this.liveLoop(walk, loop);
    live.listeners.add(changed);
    return () => live.listeners.delete(changed);
  };

  readonly isRunning = (node: string): boolean => this.nodes.get(node)?.shown?.state === "running";

  /** Called when what is shown of the node changes. */
  readonly watch = (node: string, changed: () => void): (() => void) => {
    const live = this.live(node);
    live.listeners.add(changed);
    return () => live.listeners.delete(changed);
  };

  // ── what is followed ──────────────────────────────────────────────────────────────────────────

  follow(deployment: string | null): void {
    if (deployment === this.deployment) return;
    this.deployment = deployment;
    this.gauges.clear();
    this.focusOn(null);
  }

  /** Only this run's figures from now on; null: all runs'. */
  focusOn(run: string | null): void {
    this.focus = run;
    this.frozen = false;
    this.gauges.touch();
    this.runs.clear();
    this.clearAll();
    this.schedule(true);
  }

  readonly focused = (): string | null => this.focus;
  /** The shown figures belong to a finished run, which has figures of nodes only. */
  readonly isFrozen = (): boolean => this.frozen;
  readonly anyRunning = (): boolean => this.running.size > 0;

  /** A finished run's figures, until another run is focused. */
  showRun(run: RunShown): void {
    this.focusOn(run.id);
    this.frozen = true;
    const timed = new Map<Live, { calls: number; busy: number }>();
    for (const row of run.times as RunTime[]) {
      // A device loop: the calls of its nodes have no times of their own.
      if (row.walk) this.showLoop(run.id, row);
      for (const [node, calls] of row.walk ? Object.entries(row.inside ?? {}) : [[row.node, row.calls] as const]) {
        const live = this.live(node);
        live.calls += calls;
        live.kept += row.kept ?? 0;
        live.on(row.rank);
        live.state = live.rest;
        this.touch(live);
        if (row.walk) continue;
        const sum = timed.get(live) ?? { calls: 0, busy: 0 };
        timed.set(live, { calls: sum.calls + row.calls, busy: sum.busy + row.busy });
      }
    }
    for (const [live, { calls, busy }] of timed) live.ms = calls ? (busy / calls) * 1000 : 0;
    if (run.error) this.fail(run.id, run.error);
    this.schedule(true);
  }

  private showLoop(run: string, { walk = "", node, calls, busy }: RunTime): void {
    const live = this.liveLoop(walk, node);
    live.leave(run, false, calls);
    live.ms = calls ? Math.max(live.ms, (busy / calls) * 1000) : 0;
    this.touch(live);
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
      // The news of the ranks may come before the service knows of the error: asking is in vain until now.
      if (frame.state === "failed" && !this.frozen && this.follows(frame.run)) {
        this.unexplained = frame.run;
        this.hooks.failed(frame.run);
      }
      return;
    }
    if (frame.type !== "events") return;
    const now = this.clock.now();
    for (const event of frame.events) {
      switch (event.type) {
        case "activity":
        case "forward":
        case "kept":
        case "launch":
        case "looping":
          for (const told of toldBy(event)) this.called(told, now);
          break;
        case "loop_ended":
          if (event.work)
            for (const told of endedBy({ ...event, work: event.work })) if (told.calls > 0) this.called(told, now);
          this.left(event);
          break;
        case "run":
          this.phase(event);
          break;
        case "rank":
          this.gauges.take(event);
          if (!this.frozen)
            for (const one of event.figures ?? [])
              for (const node of one.nodes) this.touch(this.live(node).figure(event.rank, one));
          break;
        default:
          break;
      }
    }
    this.schedule(false);
  };

  /** A run is under way. The first one after a quiet time starts all figures anew. */
  begin(run: string): void {
    if (this.runs.has(run) || this.runs.isOver(run) || !this.follows(run)) return;
    if (this.runs.size === 0 && !this.frozen) this.clearAll();
    this.runs.begin(run);
    this.forgetErrors(run);
  }

  /** The error that `hooks.failed` asked for, as the run's row has it. Nothing where another run has begun meanwhile. */
  explain(run: string, error: { code: string; message: string; [other: string]: unknown }): void {
    if (this.unexplained !== run) return;
    this.unexplained = null;
    this.fail(run, error);
  }

  /** A run's error, at the node it happened at. */
  fail(run: string, error: { code: string; message: string; [other: string]: unknown }): void {
    if (!this.follows(run) || typeof error["node"] !== "string") return;
    const live = this.live(error["node"]);
    const told = (field: string) => (typeof error[field] === "string" ? error[field] : null);
    live.error = { code: error.code, message: error.message, run, walk: told("walk"), use: told("use") };
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

  /** An error is shown until the next run. */
  private forgetErrors(next: string): void {
    if (this.unexplained !== next) this.unexplained = null;
    for (const live of this.nodes.values()) {
      if (!live.error || live.error.run === next) continue;
      live.error = null;
      this.turn(live, "idle");
      this.touch(live);
    }
  }

  private follows(run: string): boolean {
    return this.focus === null || this.focus === run;
  }

  /** True if events of a run's work count; the run is active from now on, unless it has ended. */
  private hears(run: string, walk: string): boolean {
    if (this.frozen || !this.follows(run)) return false;
    if (!this.runs.isOver(run)) {
      this.begin(run);
      this.release(this.runs.reach(run, walk));
    }
    return true;
  }

  private called(told: Told, now: number): void {
    const { run, walk, node, use, iteration, loop } = told;
    const over = this.runs.isOver(run);
    // News of a loop's way that come after its run's end say nothing.
    if ((over && loop?.again) || !this.hears(run, walk)) return;
    if (node !== null) this.work(this.live(node), told, over, now);
    if (use !== null) this.work(this.live(useKey(walk, this.hooks.shownAs(use, walk))), told, over, now);
    this.count(told, over);
    if (over) return;
    if (node !== null) this.gauges.reached({ run, node, iteration });
    if (told.failed) this.fail(run, { code: "node_error", message: strings.shell.failed, node, walk, use });
  }

  private work(live: Live, told: Told, over: boolean, now: number): void {
    const { run, calls, loop } = told;
    if (loop?.again) {
      live.inside.set(run, loop.done);
      if (loop.ms > 0 || !loop.alone) live.ms = loop.alone ? loop.ms : 0;
    } else {
      live.inside.delete(run);
      live.spend(told);
    }
    live.iteration = told.iteration;
    live.batch = told.batch;
    live.heard = now;
    live.on(told.rank);
    this.touch(live);
    if (over) {
      if (live.state === "idle" || live.state === "queued") this.turn(live, live.rest);
      return;
    }
    live.measure(calls, now);
    if (!told.failed && !live.error) this.turn(live, told.kept && live.state !== "running" ? live.rest : "running");
  }

  /** A call's indices count the loops around it. */
  private count({ run, walk, use, iteration, loop }: Told, over: boolean): void {
    if (loop) {
      const live = this.liveLoop(walk, loop.name);
      if (over) live.late(run, loop.done);
      else live.iterated(run, loop.done);
      if (loop.ms > 0) live.ms = loop.ms;
      this.touch(live);
    } else if (iteration.length > 0 && use !== null)
      this.hooks.loops(walk, use)?.forEach((name, depth) => {
        const live = this.liveLoop(walk, name);
        if (over) live.late(run, (iteration[depth] ?? 0) + 1);
        else live.called(run, use, iteration.slice(0, depth + 1));
        this.touch(live);
      });
  }

  private left({ run, walk, loop, iterations, reason }: LoopEndedEvent): void {
    if (this.frozen || !this.follows(run)) return;
    const live = this.liveLoop(walk, loop);
    live.leave(run, reason === "error", iterations);
    this.touch(live);
  }

  private phase(event: RunPhaseEvent): void {
    if (this.frozen || !this.follows(event.run)) return;
    if (event.phase === "finished") {
      this.ended(event.run, event.error !== null && event.error !== "cancelled");
      return;
    }
    if (this.runs.isOver(event.run)) return;
    this.begin(event.run);
    if (event.phase === "first_output") return;
    for (const node of this.runs.expect(event.run, this.hooks.steps(event.task))) {
      const live = this.live(node);
      if (live.state === "running" || live.error) continue;
      this.turn(live, "queued");
      this.touch(live);
    }
  }

  /** Nobody waits for these nodes any more. */
  private release(nodes: readonly string[]): void {
    for (const node of nodes) {
      const live = this.live(node);
      if (live.state === "queued") this.settle(live);
    }
  }

  private ended(run: string, failed: boolean): void {
    if (this.frozen || !this.follows(run)) return;
    const end = this.runs.end(run);
    if (!end) return;
    for (const live of this.nodes.values()) if (live.inside.delete(run)) this.touch(live);
    for (const live of this.loops.values()) this.leave(live, run, failed);
    if (!end.known) {
      // A short run: the news of its end came before any of its work.
      this.forgetErrors(run);
      return;
    }
    this.release(end.released);
    if (this.runs.size === 0) for (const live of this.nodes.values()) this.settle(live);
    this.schedule(true);
  }

  private leave(live: LiveLoop, run: string, failed: boolean): void {
    if (live.end(run, failed)) this.touch(live);
  }

  /** Something may have been missed: nothing counts as under way until it is heard of again. */
  private lose(): void {
    this.runs.clear();
    for (const live of this.nodes.values()) this.settle(live);
    for (const live of this.loops.values()) for (const run of [...live.runs.keys()]) this.leave(live, run, false);
    this.schedule(true);
  }

  private settle(live: Live): void {
    live.inside.clear();
    if (live.state === "running") this.turn(live, "done");
    else if (live.state === "queued") this.turn(live, live.rest);
    else return;
    live.rate = 0;
    this.touch(live);
  }

  private clearAll(): void {
    for (const live of this.nodes.values()) this.clear(live);
    for (const live of this.loops.values()) (live.clear(), this.touch(live));
  }

  private clear(live: Live): void {
    this.turn(live, "idle");
    if (live.sound) this.hooks.revoke(live.sound);
    live.clear();
    if (live.preview && !live.preview.pinned) {
      this.hooks.revoke(live.preview.url);
      live.preview = null;
    }
    this.touch(live);
  }

  private turn(live: Live, state: NodeState): void {
    if (live.state === state) return;
    live.state = state;
    this.gauges.touch();
    if (state === "running") this.running.add(live);
    else this.running.delete(live);
    this.schedule(true);
  }

  private touch(cell: Live | LiveLoop): void {
    this.flusher.touch(cell);
  }

  private schedule(atOnce: boolean): void {
    this.flusher.schedule(atOnce);
  }

  private live(node: string): Live {
    const shown = this.hooks.shownAs(node);
    let live = this.nodes.get(shown);
    if (!live) this.nodes.set(shown, (live = new Live()));
    return live;
  }

  private liveLoop(walk: string, loop: string): LiveLoop {
    const key = `${walk}/${loop}`;
    let live = this.loops.get(key);
    if (!live)
      this.loops.set(key, (live = new LiveLoop(walk, loop, this.hooks.times, () => this.hooks.isMap(walk, loop))));
    return live;
  }

  // ── showing ───────────────────────────────────────────────────────────────────────────────────

  /** Cells were shown; whether something runs that may stop without news. */
  private told(): boolean {
    this.gauges.flush();
    return this.running.size > 0;
  }

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
}

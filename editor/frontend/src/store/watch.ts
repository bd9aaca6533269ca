// Taps of a deployment with their samples, breakpoints, paused runs
// with what they are paused before, the level of telemetry. One per deployment, listening while somebody watches.
import { useCallback, useSyncExternalStore } from "react";
import { createStore, type StoreApi } from "zustand/vanilla";
import { ApiError, call } from "../api/client";
import type {
  BreakShown,
  EventsFrame,
  Frame,
  HeldCall,
  Level,
  PausedFrame,
  SampleEvent,
  TapShown,
  WatchShown,
} from "../messages/frames";
import { subscribe } from "../api/socket";
import { shownOn } from "./deployments";
import { useEditorState } from "./react";

export type { BreakShown, HeldCall, Level, SampleEvent, TapShown } from "../messages/frames";

export interface PausedRun {
  run: string;
  held: readonly HeldCall[];
  /** Id of the breakpoint that it came to; empty where it was asked for, or stepped. */
  breakpoint: string;
}

/** A value that was looked at, with when: seconds since 1970. */
export interface Seen {
  sample: SampleEvent;
  at: number;
}

export interface WatchState {
  /** null: the service was not heard yet. */
  level: Level | null;
  taps: readonly TapShown[];
  breakpoints: readonly BreakShown[];
  /** By run. */
  paused: Readonly<Record<string, PausedRun>>;
  /** Why the service does not tell. */
  problem: string | null;
}

export interface TapAsked {
  walk: string;
  source: string;
  to?: string;
  /** Seconds. */
  interval?: number;
  preview?: boolean;
  run?: string | null;
  /** Until it goes by itself. */
  seconds?: number;
}

export interface BreakAsked {
  walk: string;
  use: string;
  iteration?: number | null;
  run?: string | null;
  seconds?: number;
}

export type SteerAction = "pause" | "step" | "iteration" | "resume";

/** The page functions that it needs; tests pass their own. */
export interface Around {
  call: typeof call;
  subscribe: (listener: (frame: Frame) => void) => () => void;
  /** Calls back with the next frame of the screen. */
  frame: (run: () => void) => void;
}

/** Recent samples of a tap. */
const KEPT = 24;
const KEPT_HELD = 400;

export const NOTHING: WatchState = { level: null, taps: [], breakpoints: [], paused: {}, problem: null };
const NONE: readonly Seen[] = [];

export class WatchStore {
  readonly store: StoreApi<WatchState> = createStore(() => NOTHING);
  /** By `tap ID` and `held RUN`; replaced by new lists, newest first. */
  private readonly seen = new Map<string, readonly Seen[]>();
  private readonly listeners = new Map<string, Set<() => void>>();
  private readonly changed = new Set<string>();
  private waiting = false;
  private watchers = 0;
  private leave: (() => void) | null = null;
  private asking = 0;

  constructor(
    readonly deployment: string,
    private readonly around: Around,
  ) {}

  // ── reading ───────────────────────────────────────────────────────────────────────────────────

  readonly get = (): WatchState => this.store.getState();

  /** Called when the state changes, until the returned function is called; while anybody is, the service is heard. */
  readonly watch = (changed: () => void): (() => void) => {
    const forget = this.store.subscribe(changed);
    const close = this.open();
    return () => (forget(), close());
  };

  /** Samples of a tap, newest first. */
  readonly samples = (tap: string): readonly Seen[] => this.seen.get(`tap ${tap}`) ?? NONE;

  /** Inputs and states of the calls before which a run is paused, newest first. */
  readonly held = (run: string): readonly Seen[] => this.seen.get(`held ${run}`) ?? NONE;

  /** Called with the next frame of the screen after a tap has seen something. */
  readonly watchSamples = (tap: string, changed: () => void): (() => void) => this.listen(`tap ${tap}`, changed);

  readonly watchHeld = (run: string, changed: () => void): (() => void) => this.listen(`held ${run}`, changed);

  // ── asking ────────────────────────────────────────────────────────────────────────────────────
  // All raise ApiError.

  async setLevel(level: Level): Promise<void> {
    await this.around.call(`${this.path}/watch/level`, { method: "PUT", body: { level } });
    this.set({ level });
  }

  async addTap(asked: TapAsked): Promise<TapShown> {
    const { value } = await this.around.call<TapShown>(`${this.path}/taps`, { method: "POST", body: asked });
    this.set({ taps: withOne(this.get().taps, value) });
    return value;
  }

  async lookEvery(tap: string, interval: number): Promise<void> {
    const path = `${this.path}/taps/${encodeURIComponent(tap)}`;
    const { value } = await this.around.call<TapShown>(path, { method: "PATCH", body: { interval } });
    this.set({ taps: this.get().taps.map((one) => (one.id === tap ? value : one)) });
  }

  async removeTap(tap: string): Promise<void> {
    await this.remove(`${this.path}/taps/${encodeURIComponent(tap)}`);
    this.set({ taps: this.get().taps.filter(({ id }) => id !== tap) });
    this.forget(`tap ${tap}`);
  }

  async removeTaps(): Promise<void> {
    await Promise.all(this.get().taps.map(({ id }) => this.removeTap(id)));
  }

  async addBreakpoint(asked: BreakAsked): Promise<BreakShown> {
    const { value } = await this.around.call<BreakShown>(`${this.path}/breakpoints`, { method: "POST", body: asked });
    this.set({ breakpoints: withOne(this.get().breakpoints, value) });
    return value;
  }

  async removeBreakpoint(breakpoint: string): Promise<void> {
    await this.remove(`${this.path}/breakpoints/${encodeURIComponent(breakpoint)}`);
    this.set({ breakpoints: this.get().breakpoints.filter(({ id }) => id !== breakpoint) });
  }

  async removeBreakpoints(): Promise<void> {
    await Promise.all(this.get().breakpoints.map(({ id }) => this.removeBreakpoint(id)));
  }

  /** Frames report the result. `of`: the held call; null for the first. */
  async steer(run: string, action: SteerAction, of: HeldCall | null = null): Promise<void> {
    const path = `/api/v1/runs/${encodeURIComponent(run)}/steer`;
    await this.around.call(path, { method: "POST", body: { action, call: of } });
  }

  // ── inside ────────────────────────────────────────────────────────────────────────────────────

  private get path(): string {
    return `/api/v1/deployments/${encodeURIComponent(this.deployment)}`;
  }

  /** A tap that is already gone need not be removed. */
  private async remove(path: string): Promise<void> {
    try {
      await this.around.call(path, { method: "DELETE" });
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
    }
  }

  private set(change: Partial<WatchState>): void {
    this.store.setState(change);
  }

  private open(): () => void {
    this.watchers += 1;
    if (!this.leave) {
      this.leave = this.around.subscribe(this.take);
      void this.refresh();
    }
    let open = true;
    return () => {
      if (!open) return;
      open = false;
      this.watchers -= 1;
      if (this.watchers > 0) return;
      this.leave?.();
      this.leave = null;
    };
  }

  private listen(key: string, changed: () => void): () => void {
    const all = this.listeners.get(key) ?? new Set();
    this.listeners.set(key, all);
    const own = () => changed();
    all.add(own);
    const close = this.open();
    return () => {
      all.delete(own);
      if (all.size === 0) this.listeners.delete(key);
      close();
    };
  }

  private readonly take = (frame: Frame): void => {
    if (frame.type === "welcome" || frame.type === "gap") {
      void this.refresh();
      return;
    }
    if (frame.deployment !== this.deployment) return;
    switch (frame.type) {
      case "watch":
        // An answer that is still on its way is older than this.
        this.asking += 1;
        this.show(frame);
        break;
      case "paused":
        this.pause(frame);
        break;
      case "resumed":
      case "run":
        this.resume(frame.run);
        break;
      case "events":
        this.look(frame);
        break;
      case "deployment":
        if (frame.state === "stopped") this.set({ ...NOTHING, problem: this.get().problem });
        break;
    }
  };

  /** Ask the service for all of it. */
  private async refresh(): Promise<void> {
    const asked = (this.asking += 1);
    try {
      const { value } = await this.around.call<WatchShown>(`${this.path}/watch`);
      if (asked === this.asking) this.show(value);
      const runs = `/api/v1/runs?deployment=${encodeURIComponent(this.deployment)}&state=running`;
      const { value: running } = await this.around.call<RunRow[]>(runs);
      if (asked === this.asking) this.showPaused(running);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (asked === this.asking) this.set({ problem: error.message });
    }
  }

  private show({ level, taps, breakpoints }: WatchShown): void {
    this.set({ level, taps, breakpoints, problem: null });
    const armed = new Set(taps.map(({ id }) => `tap ${id}`));
    for (const key of this.seen.keys()) if (key.startsWith("tap ") && !armed.has(key)) this.forget(key);
  }

  private showPaused(running: readonly RunRow[]): void {
    const paused = running.flatMap(({ id, paused }) => (paused ? [[id, { run: id, ...paused }] as const] : []));
    const now = Object.fromEntries(paused);
    for (const run of Object.keys(this.get().paused)) if (!now[run]) this.forget(`held ${run}`);
    this.set({ paused: now });
  }

  private pause({ run, held, breakpoint }: PausedFrame): void {
    const { paused } = this.get();
    const gone = (paused[run]?.held ?? []).filter((call) => !held.some((other) => sameCall(call, other)));
    this.set({ paused: { ...paused, [run]: { run, held, breakpoint } } });
    const key = `held ${run}`;
    const seen = this.seen.get(key);
    // A call that is not held yet may already have samples: only released calls are forgotten.
    if (gone.length && seen)
      this.put(
        key,
        seen.filter(({ sample }) => !gone.some((call) => isOf(sample, call))),
      );
  }

  private resume(run: string): void {
    const { [run]: was, ...paused } = this.get().paused;
    if (was) this.set({ paused });
    this.forget(`held ${run}`);
  }

  private look({ events, wall }: EventsFrame): void {
    for (const event of events) {
      if (event.type !== "sample" || event.why === "record") continue;
      const key = event.why === "tap" ? `tap ${event.tap}` : `held ${event.run}`;
      const one: Seen = { sample: event, at: event.at + wall };
      this.put(key, [one, ...(this.seen.get(key) ?? NONE)].slice(0, event.why === "tap" ? KEPT : KEPT_HELD));
    }
  }

  private put(key: string, seen: readonly Seen[]): void {
    this.seen.set(key, seen);
    this.tell(key);
  }

  private forget(key: string): void {
    if (this.seen.delete(key)) this.tell(key);
  }

  private tell(key: string): void {
    if (!this.listeners.has(key)) return;
    this.changed.add(key);
    if (this.waiting) return;
    this.waiting = true;
    this.around.frame(() => {
      this.waiting = false;
      const keys = [...this.changed];
      this.changed.clear();
      for (const one of keys) for (const changed of this.listeners.get(one) ?? []) changed();
    });
  }
}

interface RunRow {
  id: string;
  paused?: Omit<PausedRun, "run"> | null;
}

function withOne<T extends { id: string }>(all: readonly T[], one: T): readonly T[] {
  return all.some(({ id }) => id === one.id) ? all : [...all, one];
}

// ── pure questions ──────────────────────────────────────────────────────────────────────────────

export function sameCall(a: HeldCall, b: HeldCall): boolean {
  return (
    a.rank === b.rank &&
    a.walk === b.walk &&
    a.use === b.use &&
    a.step === b.step &&
    a.loop === b.loop &&
    a.iteration.length === b.iteration.length &&
    a.iteration.every((index, depth) => index === b.iteration[depth])
  );
}

/** True if a sample belongs to an input or state of this held call. */
export function isOf(sample: SampleEvent, call: HeldCall): boolean {
  return (
    sample.rank === call.rank &&
    sample.walk === call.walk &&
    sample.step === call.step &&
    sample.source.split(".", 1)[0] === call.use &&
    sample.iteration.length === call.iteration.length &&
    sample.iteration.every((index, depth) => index === call.iteration[depth])
  );
}

/** The taps of a place; `to`: of one edge alone. */
export function tapsAt({ taps }: WatchState, walk: string, source: string, to = ""): readonly TapShown[] {
  return taps.filter((tap) => tap.walk === walk && tap.source === source && tap.to === to);
}

/** The breakpoints of a use. */
export function breakpointsAt({ breakpoints }: WatchState, walk: string, use: string): readonly BreakShown[] {
  return breakpoints.filter((one) => one.walk === walk && one.use === use);
}

// ── the page's ──────────────────────────────────────────────────────────────────────────────────

const page: Around = {
  call,
  subscribe,
  frame: (run) => void requestAnimationFrame(run),
};
const stores = new Map<string, WatchStore>();

/** The page's watch of a deployment. */
export function watchOf(deployment: string): WatchStore {
  const store = stores.get(deployment) ?? new WatchStore(deployment, page);
  stores.set(deployment, store);
  return store;
}

const silent = () => () => undefined;

/** The watched state of a deployment; empty if there is none. */
export function useWatch(deployment: string | null): WatchState {
  const store = deployment === null ? null : watchOf(deployment);
  return useSyncExternalStore(store?.watch ?? silent, store?.get ?? nothing);
}

/** Recent samples of a tap, newest first. */
export function useSamples(deployment: string | null, tap: string): readonly Seen[] {
  const store = deployment === null ? null : watchOf(deployment);
  const watch = useCallback((changed: () => void) => store?.watchSamples(tap, changed) ?? (() => {}), [store, tap]);
  return useSyncExternalStore(watch, () => store?.samples(tap) ?? NONE);
}

/** Inputs and states of the calls before which a run is paused. */
export function useHeld(deployment: string | null, run: string): readonly Seen[] {
  const store = deployment === null ? null : watchOf(deployment);
  const watch = useCallback((changed: () => void) => store?.watchHeld(run, changed) ?? (() => {}), [store, run]);
  return useSyncExternalStore(watch, () => store?.held(run) ?? NONE);
}

/** Id of the deployment that the canvas shows; null: there is none. */
export function useDeployed(): string | null {
  return useEditorState((state) => shownOn(state)?.id ?? null);
}

function nothing(): WatchState {
  return NOTHING;
}

// The page's node activity, and its hooks. `follow` names the deployment (`session/following.ts` does, for an open
// graph); nothing is done while none is followed.
import { useCallback, useMemo, useSyncExternalStore } from "react";
import { toBytes } from "../api/base64";
import { ApiError, call, send } from "../api/client";
import type { RunEvent, RunShown, ValueShown } from "../messages/answers";
import type { GraphDocument } from "../document/types";
import type { RankGauge } from "../messages/frames";
import { FlowStore } from "./flows";
import { useKey } from "./calls";
import type { Clock } from "./flush";
import { NodeStore } from "./nodes";
import { Params } from "./params";
import { feeders } from "./previews";
import { branchState, ofUse, type Activity, type BranchState, type Latest, type LoopActivity } from "./shown";
import { telemetry } from "../api/socket";
import { eventsOf } from "../api/sse";
import { isMap, loopsAround, standingFor, loopTimes, paramsOf, stepsOf } from "./steps";

export type { Activity, BranchState, Latest, LoopActivity, NodeState, Preview } from "./shown";
export type { RankGauge } from "../messages/frames";

/** A picture that a newer one replaces has been loaded by then. */
const LOADED_MS = 10_000;

const clock: Clock = {
  now: () => performance.now(),
  // Frames stop while the page is hidden; the timer beside them goes on.
  frame: (run) => void requestAnimationFrame(run),
  after: (ms, run) => {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
  // React has drawn what it was told when its own turn, asked for before this one, is over.
  drawn: (run) => queueMicrotask(run),
};

let graph: GraphDocument | null = null;
let unsubscribe: (() => void) | null = null;
let asking: string | null = null;
let reading: AbortController | null = null;
/** Whose outputs are read from the service. */
let readRun: string | null = null;

const params = new Params(async (run, signal) => {
  const { value } = await call<RunShown>(`/api/v1/runs/${run}`, { signal });
  return graph ? paramsOf(graph, value.task, value.params) : value.params;
});

const store = new NodeStore(clock, {
  steps: (task) => graph && stepsOf(graph, task),
  loops: (walk, use) => graph && loopsAround(graph, walk, use),
  times: (walk, loop, run) => graph && loopTimes(graph, walk, loop, params.of(run)),
  isMap: (walk, loop) => graph !== null && isMap(graph, walk, loop),
  shownAs: (name, walk) => (graph ? standingFor(graph, name, walk) : name),
  failed: (run) => void findError(run),
  revoke: (url) => void setTimeout(() => URL.revokeObjectURL(url), LOADED_MS),
});

/** Traffic on the edges; read while it is drawn. */
export const flows = new FlowStore(clock.now);

/** Show this deployment's activity. `of`: the graph it was made from, so that outputs find their nodes. */
export function follow(deployment: string | null, of: GraphDocument | null = null): void {
  graph = of;
  store.follow(deployment);
  flows.follow(deployment);
  if (deployment !== null && !unsubscribe) {
    const leaves = [telemetry.subscribe(store.take), telemetry.subscribe(flows.take)];
    const forget = telemetry.watch(() => store.setStale(telemetry.status().state !== "open"));
    unsubscribe = () => [...leaves, forget].forEach((leave) => leave());
  } else if (deployment === null && unsubscribe) {
    unsubscribe();
    unsubscribe = null;
  }
}

/** Only this run's figures and outputs; null: of all runs, as they come. */
export function focusRun(run: string | null): void {
  stopReading();
  store.focusOn(run);
  flows.focusOn(run);
  if (run !== null) void readOutputs(run);
}

function stopReading(): void {
  reading?.abort();
  reading = readRun = null;
}

/** A finished run's figures on the canvas, until `focusRun`. */
export function showRun(run: RunShown): void {
  stopReading();
  store.showRun(run);
  void readOutputs(run.id);
}

/** Hold what the canvas shows. */
export function setPaused(paused: boolean): void {
  telemetry.setPaused(paused);
  store.setPaused(paused);
  flows.setPaused(paused);
}

/** Keep the node's preview through later runs. */
export function pin(node: string): void {
  store.pin(node, true);
}

export function unpin(node: string): void {
  store.pin(node, false);
}

/** An event of a run that this page has started, for the previews. */
export function tell(event: RunEvent, task: string): void {
  // Read from the service besides: once is enough.
  if (event.run !== readRun) show(event, task);
}

function show(event: RunEvent, task: string): void {
  if (store.focused() !== null && store.focused() !== event.run) return;
  if (event.event === "accepted") store.begin(event.run);
  else if (event.event === "error") store.fail(event.run, event.error);
  else if (event.event === "output" && graph) {
    const nodes = feeders(graph, task).get(event.name) ?? [];
    // Of several, behind a merge say, the ones that were called have made it.
    const called = nodes.filter((node) => (store.get(node)?.calls ?? 0) > 0);
    for (const node of called.length ? called : nodes) showValue(node, event.value);
  }
}

// ── hooks ───────────────────────────────────────────────────────────────────────────────────────

/** The activity of the node; null if nothing was ever reported. */
export function useActivity(node: string): Activity | null {
  const watch = useCallback((changed: () => void) => store.watch(node, changed), [node]);
  const get = useCallback(() => store.get(node), [node]);
  return useSyncExternalStore(watch, get);
}

/** The activity of a use; `walk`: that of its canvas, null on the components canvas, where it stands for the node. */
export function useUseActivity(walk: string | null, use: string, node: string): Activity | null {
  const own = useActivity(walk === null ? node : useKey(walk, use));
  const whole = useActivity(node);
  const frozen = store.isFrozen();
  return useMemo(
    () => (walk === null ? whole : ofUse(whole, own, { walk, use }, frozen)),
    [walk, use, whole, own, frozen],
  );
}

/** The activity of several nodes; a new list only when one of them changes. Pass the same list each time. */
export function useActivities(nodes: readonly string[]): readonly (Activity | null)[] {
  const watch = useCallback(
    (changed: () => void) => {
      const leave = nodes.map((node) => store.watch(node, changed));
      return () => leave.forEach((stop) => stop());
    },
    [nodes],
  );
  const get = useMemo(() => {
    let latest: readonly (Activity | null)[] = [];
    return () => {
      const now = nodes.map((node) => store.get(node));
      if (now.length !== latest.length || now.some((one, index) => one !== latest[index])) latest = now;
      return latest;
    };
  }, [nodes]);
  return useSyncExternalStore(watch, get);
}

/** The latest runs' activity in a branch of a choice. The keys are those of `useKey`; pass the same lists each time. */
export function useBranchState(own: readonly string[], others: readonly string[]): BranchState {
  const watch = useCallback(
    (changed: () => void) => {
      const leave = [...own, ...others].map((key) => store.watch(key, changed));
      return () => leave.forEach((stop) => stop());
    },
    [own, others],
  );
  const get = useCallback(() => {
    const all = (keys: readonly string[]) => keys.map((key) => store.get(key));
    return others.length ? branchState(all(own), all(others)) : "";
  }, [own, others]);
  return useSyncExternalStore(watch, get);
}

/** Where the runs of a loop are; null where nothing was heard of it. */
export function useLoop(walk: string, loop: string): LoopActivity | null {
  const watch = useCallback((changed: () => void) => store.watchLoop(walk, loop, changed), [walk, loop]);
  const get = useCallback(() => store.loop(walk, loop), [walk, loop]);
  return useSyncExternalStore(watch, get);
}

/** The newest gauge of each rank. */
export function useRankGauges(): ReadonlyMap<number, RankGauge> {
  return useSyncExternalStore(store.gauges.watch, store.gauges.ranks);
}

/** True while a node runs, or the use with a key of `useKey`; renders only when that changes. */
export function useIsRunning(key: string): boolean {
  const watch = useCallback((changed: () => void) => store.watch(key, changed), [key]);
  const get = useCallback(() => store.isRunning(key), [key]);
  return useSyncExternalStore(watch, get);
}

/** The last call that was told of, of whichever run; a few times a second. */
export function useLatest(): Latest | null {
  return useSyncExternalStore(store.gauges.watch, store.gauges.latest);
}

/** The run that alone is shown; null: all runs, live. */
export function useFocus(): string | null {
  return useSyncExternalStore(store.gauges.watch, store.focused);
}

export function useAnyRunning(): boolean {
  return useSyncExternalStore(store.gauges.watch, store.anyRunning);
}

// ── inside ──────────────────────────────────────────────────────────────────────────────────────

function showValue(node: string, value: ValueShown): void {
  if (value.type === "text" && value.text) store.text(node, value.text);
  else if (value.type === "image" && value.data) store.picture(node, urlOf(value));
  else if (value.type === "audio" && value.data) store.sound(node, urlOf(value));
}

function urlOf(value: ValueShown): string {
  return URL.createObjectURL(new Blob([toBytes(value.data ?? "")], { type: value.mime ?? "" }));
}

/** Who failed is in the run's row; one question at a time, the newest failure first. */
async function findError(run: string): Promise<void> {
  const busy = asking !== null;
  asking = run;
  if (busy) return;
  while (asking !== null) {
    const wanted: string = asking;
    try {
      const { value } = await call<RunShown>(`/api/v1/runs/${wanted}`);
      if (value.error) store.explain(wanted, value.error);
    } catch (error) {
      // The canvas does without; the playground and the list of runs tell the error too.
      if (!(error instanceof ApiError)) throw error;
    } finally {
      if (asking === wanted) asking = null;
    }
  }
}

/** The outputs of a run that somebody else may have started, while the service remembers them. */
async function readOutputs(run: string): Promise<void> {
  const reader = (reading = new AbortController());
  readRun = run;
  try {
    const { value } = await call<RunShown>(`/api/v1/runs/${run}`, { signal: reader.signal });
    const answer = await send(`/api/v1/runs/${run}/events`, { signal: reader.signal });
    for await (const event of eventsOf<RunEvent>(answer)) show(event, value.task);
  } catch {
    // Forgotten by the service, or no longer wanted.
  }
}

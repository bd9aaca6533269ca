// The combined activity of several nodes, as a closed container shows it. Pure.
import type { Activity, NodeState } from "../../telemetry/activity";

const LOUDEST: readonly NodeState[] = ["error", "running", "queued", "done", "kept", "idle"];

export interface Together {
  state: NodeState;
  /** Iteration of the deepest call in flight, or else the latest known. */
  iteration: readonly number[];
  /** Calls a second of all. */
  rate: number;
  error: string;
}

/** null: nothing was ever heard of any. */
export function together(activities: readonly (Activity | null)[]): Together | null {
  const known = activities.filter((one) => one !== null);
  if (!known.length) return null;
  const state = LOUDEST.find((kind) => known.some((one) => one.state === kind)) ?? "idle";
  const telling = known.filter((one) => one.state === state && one.iteration?.length);
  const deepest = telling.reduce<readonly number[]>(
    (best, { iteration }) => (iteration && iteration.length > best.length ? iteration : best),
    [],
  );
  const furthest = telling.reduce<readonly number[]>(
    (best, { iteration }) => (iteration?.length === deepest.length && later(iteration, best) ? iteration : best),
    deepest,
  );
  return {
    state,
    iteration: furthest,
    rate: known.reduce((sum, one) => sum + one.rate, 0),
    error: known.find((one) => one.error)?.error ?? "",
  };
}

function later(a: readonly number[], b: readonly number[]): boolean {
  const at = a.findIndex((value, index) => value !== b[index]);
  return at >= 0 && (a[at] ?? 0) > (b[at] ?? 0);
}

/** The node whose preview stands for all: the last one that has any. */
export function showing(nodes: readonly string[], activities: readonly (Activity | null)[]): string | null {
  return nodes.findLast((_, index) => activities[index]?.preview || activities[index]?.words) ?? null;
}

// Hooks for views: the watched parts of every deployment that the editor knows.
import { useCallback, useMemo, useSyncExternalStore } from "react";
import { useEditorState } from "../../store/react";
import { NOTHING, watchOf, type WatchState } from "../../store/watch";
import type { PausedShown } from "./actions";

export interface Watched {
  deployment: string;
  state: WatchState;
}

/** The watched parts of all deployments; a new list only when one of them changes. */
export function useWatches(): readonly Watched[] {
  const deployments = useEditorState((state) => state.deployments);
  const names = Object.keys(deployments).sort().join(" ");
  const ids = useMemo(() => names.split(" ").filter(Boolean), [names]);
  const watch = useCallback(
    (changed: () => void) => {
      const leave = ids.map((id) => watchOf(id).watch(changed));
      return () => leave.forEach((stop) => stop());
    },
    [ids],
  );
  const get = useMemo(() => {
    let latest: readonly Watched[] = [];
    return () => {
      const now = ids.map((deployment) => ({ deployment, state: watchOf(deployment).get() }));
      const same = now.length === latest.length && now.every((one, index) => one.state === latest[index]!.state);
      if (!same) latest = now;
      return latest;
    };
  }, [ids]);
  return useSyncExternalStore(watch, get);
}

/** A part of what is watched of one deployment; renders when that part is another object. */
export function useWatched<T>(deployment: string | null, select: (state: WatchState) => T): T {
  const watch = useCallback(
    (changed: () => void) => (deployment === null ? () => undefined : watchOf(deployment).watch(changed)),
    [deployment],
  );
  return useSyncExternalStore(watch, () => select(deployment === null ? NOTHING : watchOf(deployment).get()));
}

/** Every paused run. */
export function pausedIn(watches: readonly Watched[]): PausedShown[] {
  return watches.flatMap(({ deployment, state }) =>
    Object.values(state.paused).map((paused) => ({ ...paused, deployment })),
  );
}

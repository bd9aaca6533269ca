// What events tell of calls, one record for each node and run whatever the level they come from. Pure.
import type { ActivityEvent, ForwardEvent, LaunchEvent, LoopingEvent } from "./frames";

export type Work = ActivityEvent | ForwardEvent | LaunchEvent | LoopingEvent;

export interface Told {
  run: string;
  rank: number;
  walk: string;
  node: string;
  /** Loop indices of the latest call. */
  iteration: readonly number[];
  batch: number;
  calls: number;
  /** Seconds of these calls' forwards; null: their times are not told apart, or not yet. */
  busy: number | null;
  /** Seconds from ready to started. */
  queued: number;
  failed: boolean;
  /** In a loop that the device runs as a whole. */
  loop: LoopTold | null;
}

export interface LoopTold {
  name: string;
  /** Iterations. */
  done: number;
  /** Of one iteration, with those of the runs in the same batch; 0: not told. */
  ms: number;
  /** It calls one node alone, whose time that is. */
  alone: boolean;
  /** Its nodes' calls are told again once it has ended. */
  again: boolean;
}

export function toldBy(event: Work): Told[] {
  switch (event.type) {
    case "activity":
      return event.calls > 0 ? [worked(event)] : [];
    case "forward":
      return forwarded(event);
    case "launch":
      return launched(event);
    case "looping":
      return looping(event);
  }
}

/** Field by field: thousands of these come a second. */
function worked(event: ActivityEvent): Told {
  return {
    run: event.run,
    rank: event.rank,
    walk: event.walk,
    node: event.node,
    iteration: event.iteration,
    batch: event.batch,
    calls: event.calls,
    busy: event.busy,
    queued: event.queued,
    failed: false,
    loop: null,
  };
}

function forwarded(event: ForwardEvent): Told[] {
  const { rank, walks, nodes, iterations, ready, started } = event;
  const batches = new Map<string, number>();
  for (const node of nodes) batches.set(node, (batches.get(node) ?? 0) + 1);
  return event.runs.map((run, row) => ({
    run,
    rank,
    walk: walks[row] ?? "",
    node: nodes[row] ?? "",
    iteration: iterations[row] ?? [],
    batch: batches.get(nodes[row] ?? "") ?? 1,
    calls: 1,
    busy: event.finished - started,
    queued: Math.max(0, started - (ready[row] ?? started)),
    failed: event.failed.includes(row),
    loop: null,
  }));
}

function launched(event: LaunchEvent): Told[] {
  const { rank, nodes, count, loop, runs, walks, outer, first } = event;
  const busy = event.finished - event.started;
  const ms = (busy / count) * 1000;
  return runs.flatMap((run, row) => {
    const done = (first[row] ?? 0) + count;
    const iteration = [...(outer[row] ?? []), done - 1];
    return nodes.map((node) => ({
      run,
      rank,
      walk: walks[row] ?? "",
      node,
      iteration,
      batch: runs.length,
      calls: count,
      busy: nodes.length === 1 ? busy : null,
      queued: 0,
      failed: false,
      loop: { name: loop, done, ms, alone: nodes.length === 1, again: false },
    }));
  });
}

function looping(event: LoopingEvent): Told[] {
  const { rank, nodes, loop, runs, walks, iterations, calls, busy, batch } = event;
  const ms = calls > 0 ? (busy / calls) * batch * 1000 : 0;
  return runs.flatMap((run, row) => {
    const told = iterations[row] ?? [];
    const done = told.at(-1) ?? 0;
    const iteration = [...told.slice(0, -1), Math.max(0, done - 1)];
    return nodes.map((node) => ({
      run,
      rank,
      walk: walks[row] ?? "",
      node,
      iteration,
      batch,
      calls: calls / runs.length,
      busy: null,
      queued: 0,
      failed: false,
      loop: { name: loop, done, ms, alone: nodes.length === 1, again: true },
    }));
  });
}

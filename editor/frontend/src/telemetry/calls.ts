// Calls from events of any level: one record for each use of a node and run. Pure.
import type {
  ActivityEvent,
  ForwardEvent,
  KeptEvent,
  LaunchEvent,
  LoopEndedEvent,
  LoopingEvent,
  LoopWork,
} from "../messages/frames";

export type Work = ActivityEvent | ForwardEvent | KeptEvent | LaunchEvent | LoopingEvent;

export interface Told {
  run: string;
  rank: number;
  walk: string;
  /** null: of a use alone, whose node's are told by another record. */
  node: string | null;
  /** null: of a node alone: a loop on the device tells its nodes and its uses each by themselves. */
  use: string | null;
  /** Loop indices of the latest call. */
  iteration: readonly number[];
  batch: number;
  calls: number;
  /** Seconds of these calls' forwards; null: their times are not told apart, or not yet. */
  busy: number | null;
  /** Seconds from ready to started. */
  queued: number;
  failed: boolean;
  /** They were not made: their outputs are those of earlier calls. */
  kept?: true;
  /** In a loop that the device runs as a whole. */
  loop: LoopTold | null;
}

export interface LoopTold {
  name: string;
  /** Iterations. */
  done: number;
  /** Time of one iteration, together with the runs of its batch; 0: not reported. */
  ms: number;
  /** It calls one use alone and waits for no other rank: that is the use's time. */
  alone: boolean;
  /** Its calls are told again once it has ended. */
  again: boolean;
}

/** A loop's work is told by its end. */
export type Ended = LoopEndedEvent & { work: LoopWork };

export function toldBy(event: Work): Told[] {
  switch (event.type) {
    case "activity":
      return event.calls > 0 ? [worked(event)] : [];
    case "kept":
      return [found(event)];
    case "forward":
      return forwarded(event);
    case "launch":
      return launched(event);
    case "looping":
      return looping(event);
  }
}

/** The nodes and uses of a finished loop: their calls, and their time if there is only one. */
export function endedBy({ run, rank, walk, loop, iteration, iterations, work }: Ended): Told[] {
  const { nodes, uses, calls, batch } = work;
  const alone = uses.length === 1 && !work.spans;
  const ms = iterations > 0 ? (work.busy / iterations) * 1000 : 0;
  const told = (count: number) => ({
    run,
    rank,
    walk,
    iteration: [...iteration, Math.max(0, iterations - 1)],
    batch,
    calls: count,
    busy: alone ? work.busy : null,
    queued: alone ? work.queued : 0,
    failed: false,
    loop: { name: loop, done: iterations, ms, alone, again: false },
  });
  const byNode = new Map<string, number>();
  nodes.forEach((node, at) => byNode.set(node, (byNode.get(node) ?? 0) + (calls[at] ?? 0)));
  return [
    ...[...byNode].map(([node, count]): Told => ({ ...told(count), node, use: null })),
    ...uses.map((use, at): Told => ({ ...told(calls[at] ?? 0), node: null, use })),
  ];
}

/** Where a use's figures are kept, beside those of nodes. */
export function useKey(walk: string, use: string): string {
  return `${walk}/${use}`;
}

/** Field by field: thousands of these come a second. */
function worked(event: ActivityEvent): Told {
  return {
    run: event.run,
    rank: event.rank,
    walk: event.walk,
    node: event.node,
    use: event.use,
    iteration: event.iteration,
    batch: event.batch,
    calls: event.calls,
    busy: event.busy,
    queued: event.queued,
    failed: false,
    loop: null,
  };
}

function found({ run, rank, walk, node, use, iteration }: KeptEvent): Told {
  const took = { batch: 1, calls: 1, busy: null, queued: 0, failed: false, kept: true } as const;
  return { run, rank, walk, node, use, iteration, ...took, loop: null };
}

function forwarded(event: ForwardEvent): Told[] {
  const { rank, walks, nodes, uses, iterations, ready, started } = event;
  const batches = new Map<string, number>();
  for (const node of nodes) batches.set(node, (batches.get(node) ?? 0) + 1);
  return event.runs.map((run, row) => ({
    run,
    rank,
    walk: walks[row] ?? "",
    node: nodes[row] ?? "",
    use: uses[row] ?? "",
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
  const { rank, uses, count, loop, runs, walks, outer, first, ready, started, finished } = event;
  const busy = finished - started;
  const ms = (busy / count) * 1000;
  const alone = uses.length === 1 && !event.spans;
  return runs.flatMap((run, row) => {
    const done = (first[row] ?? 0) + count;
    return inLoop(event, {
      run,
      rank,
      walk: walks[row] ?? "",
      iteration: [...(outer[row] ?? []), done - 1],
      batch: runs.length,
      calls: count,
      busy: alone ? busy : null,
      queued: alone ? Math.max(0, started - (ready[row] ?? started)) : 0,
      failed: false,
      loop: { name: loop, done, ms, alone, again: false },
    });
  });
}

function looping(event: LoopingEvent): Told[] {
  const { rank, uses, loop, runs, walks, iterations, calls, busy, batch } = event;
  const ms = calls > 0 ? (busy / calls) * batch * 1000 : 0;
  return runs.flatMap((run, row) => {
    const told = iterations[row] ?? [];
    const done = told.at(-1) ?? 0;
    return inLoop(event, {
      run,
      rank,
      walk: walks[row] ?? "",
      iteration: [...told.slice(0, -1), Math.max(0, done - 1)],
      batch,
      calls: calls / runs.length,
      busy: null,
      queued: 0,
      failed: false,
      loop: { name: loop, done, ms, alone: uses.length === 1 && !event.spans, again: true },
    });
  });
}

/** An iteration calls each use once. */
function inLoop({ nodes, uses }: LaunchEvent | LoopingEvent, told: Omit<Told, "node" | "use">): Told[] {
  if (nodes.length === 1 && uses.length === 1) return [{ ...told, node: nodes[0]!, use: uses[0]! }];
  return [
    ...nodes.map((node): Told => ({ ...told, node, use: null })),
    ...uses.map((use): Told => ({ ...told, node: null, use })),
  ];
}

// A model that grows from live events: all runs of a deployment, the newest minutes. Pure.
import type {
  ActivityEvent,
  ArrivalEvent,
  ForwardEvent,
  LaunchEvent,
  LoopingEvent,
  RankGauge,
  ShardWorkEvent,
  TelemetryEvent,
  TransferEvent,
} from "../../messages/frames";
import { lower } from "./columns";
import { Model, type Block, type Hop, type Part } from "./model";
import { CALL, FOLDED, LAUNCH } from "./types";
import { PHASES } from "./words";

/** Blocks kept; half of them go when there are more. */
export const MOST_BLOCKS = 40_000;
const MOST_HOPS = 20_000;
const MOST_MARKS = 2_000;
/** Gauges kept of a rank. */
const MOST_GAUGES = 4_096;
/** How many hops are kept for arrivals that may still come, and batches for parts of shards. */
const WAITING = 4_096;

export class LiveTrace {
  model = new Model();
  /** One more whenever old blocks went: ids of blocks before are of no use. */
  epoch = 0;
  /** Seconds of the host's clock at 0; null: nothing was told yet. */
  private origin: number | null = null;
  private readonly coming = new Map<string, Hop>();
  private readonly looping = new Map<string, number>();
  /** `rank number` -> blocks of a batch; parts of shards that came before it. */
  private readonly batches = new Map<string, number[]>();
  private readonly parts = new Map<string, Part[]>();

  /** `hopName`: of an edge of a Walk, or a stream, by its number; null: not known. */
  constructor(private readonly hopName: (walk: string, edge: number, stream: boolean) => string | null) {}

  take(events: readonly TelemetryEvent[], wall: number): void {
    for (const event of events) this.takeOne(event, wall);
    if (this.model.size > MOST_BLOCKS || this.model.hops.length > MOST_HOPS || this.model.marks.length > MOST_MARKS)
      this.forgetHalf();
  }

  private takeOne(event: TelemetryEvent, wall: number): void {
    switch (event.type) {
      case "forward":
        return this.forward(event, this.start(event.taken, wall));
      case "launch":
        return this.launch(event, this.start(event.taken, wall));
      case "shard":
        return this.shard(event, this.start(event.started, wall));
      case "activity":
        return this.activity(event, this.start(event.launched, wall));
      case "looping":
        return this.loops(event, this.start(event.at, wall));
      case "loop_ended":
        return void this.looping.delete(`${event.rank} ${event.loop}`);
      case "transfer":
        return this.transfer(event, this.start(event.at, wall));
      case "arrival":
        return this.arrival(event, this.start(event.at, wall));
      case "rank":
        return this.gauge(event, this.start(event.at, wall));
      case "passes": {
        const at = (event.at - this.start(event.at, wall)) * 1e6;
        return this.model.addPasses(event.run, { ...event, at });
      }
      case "run": {
        const at = (event.at - this.start(event.at, wall)) * 1e6;
        return this.model.addMark({ at, name: PHASES[event.phase] ?? event.phase, run: event.run });
      }
      default:
        return;
    }
  }

  private start(seconds: number, wall: number): number {
    if (this.origin === null) {
      this.origin = seconds;
      this.model.wall = wall + seconds;
    }
    return this.origin;
  }

  /** A block per use in the batch: its rows are calls of several runs. */
  private forward(event: ForwardEvent, origin: number): void {
    const { model } = this;
    const { rank, nodes, uses, walks } = event;
    for (let first = 0; first < nodes.length; first += 1) {
      const [node, use, walk] = [nodes[first]!, uses[first]!, walks[first]!];
      if (foundBefore(uses, walks, first)) continue;
      const runs: number[] = [];
      let ready = Infinity;
      let failed = false;
      for (let row = first; row < nodes.length; row += 1) {
        if (uses[row] !== use || walks[row] !== walk) continue;
        runs.push(model.name(event.runs[row]!));
        ready = Math.min(ready, event.ready[row]!);
        failed ||= event.failed.includes(row);
      }
      const lane = model.laneOf(rank, node, [node], false);
      const block = timed(event, ready, origin, lane, runs);
      block.walk = model.name(walk);
      block.use = model.name(use);
      block.step = event.steps[first]!;
      block.iteration = event.iterations[first]!;
      block.count = runs.length;
      block.batch = nodes.length;
      block.failed = failed;
      this.inBatch(event, model.add(block));
    }
  }

  private launch(event: LaunchEvent, origin: number): void {
    const { model } = this;
    const lane = model.laneOf(event.rank, event.loop, event.nodes, true, event.spans);
    const runs = event.runs.map((run) => model.name(run));
    const block = timed(event, Math.min(...event.ready), origin, lane, runs);
    block.kind = LAUNCH;
    block.walk = model.name(event.walks[0] ?? "");
    block.step = event.steps[0] ?? -1;
    block.iteration = [...(event.outer[0] ?? []), event.first[0] ?? 0];
    block.count = event.count;
    block.batch = event.runs.length;
    this.inBatch(event, model.add(block));
  }

  private inBatch({ rank, number }: ForwardEvent | LaunchEvent, id: number): void {
    const key = `${rank} ${number}`;
    push(this.batches, key, id);
    for (const part of this.parts.get(key) ?? []) this.model.addPart(id, part);
  }

  /** The first shard's batch may come later, and in several events. */
  private shard({ rank, of, number, started, finished }: ShardWorkEvent, origin: number): void {
    const key = `${of} ${number}`;
    const part = { rank, started: (started - origin) * 1e6, finished: (finished - origin) * 1e6 };
    push(this.parts, key, part);
    for (const id of this.batches.get(key) ?? []) this.model.addPart(id, part);
  }

  private activity(event: ActivityEvent, origin: number): void {
    const { model } = this;
    if (event.calls === 0) return;
    const started = (event.launched - origin) * 1e6;
    model.add({
      ...FOLD,
      lane: model.laneOf(event.rank, event.node, [event.node], false),
      walk: model.name(event.walk),
      use: model.name(event.use),
      iteration: event.iteration,
      count: event.calls,
      batch: event.batch,
      runs: [model.name(event.run)],
      ready: started,
      taken: started,
      launched: started,
      started,
      finished: (event.finished - origin) * 1e6,
      busy: event.busy * 1e6,
      queued: event.queued * 1e6,
    });
  }

  /** From the last time that this loop was told of, at most as long as its launches took. */
  private loops(event: LoopingEvent, origin: number): void {
    const { model } = this;
    const finished = (event.at - origin) * 1e6;
    const key = `${event.rank} ${event.loop}`;
    const started = Math.max(finished - event.busy * 1e6, this.looping.get(key) ?? -Infinity);
    this.looping.set(key, finished);
    if (event.launches === 0) return;
    model.add({
      ...FOLD,
      lane: model.laneOf(event.rank, event.loop, event.nodes, true, event.spans),
      walk: model.name(event.walks[0] ?? ""),
      iteration: event.iterations[0] ?? [],
      count: event.calls,
      batch: event.batch,
      runs: event.runs.map((run) => model.name(run)),
      ready: started,
      taken: started,
      launched: started,
      started,
      finished,
      busy: event.busy * 1e6,
      queued: 0,
    });
  }

  private transfer(event: TransferEvent, origin: number): void {
    const { run, source, target, walk, step, key, transport, count, nbytes } = event;
    const edge = this.hopName(walk, event.edge, event.stream) ?? `${event.stream ? "stream" : "edge"} ${event.edge}`;
    const sent = (event.at - origin) * 1e6;
    const hop: Hop = { source, target, run, walk, edge, step, key, transport, count, nbytes, sent, arrived: -1 };
    this.model.addHop(hop);
    this.coming.set(keyOf(event, target), hop);
    if (this.coming.size > WAITING) for (const oldest of this.coming.keys()) if (this.coming.delete(oldest)) break;
  }

  private arrival(event: ArrivalEvent, origin: number): void {
    const key = keyOf(event, event.rank);
    const hop = this.coming.get(key);
    if (!hop) return;
    this.coming.delete(key);
    hop.arrived = (event.at - origin) * 1e6;
    this.model.reach(hop.sent, hop.arrived);
  }

  private gauge(event: RankGauge, origin: number): void {
    const counter = this.model.counter(event.rank);
    const at = (event.at - origin) * 1e6;
    counter.at.push(at);
    counter.busy.push(event.busy);
    counter.queue.push(event.queue);
    counter.pagesUsed.push(event.pages_total - event.pages_free);
    counter.pagesTotal = event.pages_total;
    if (counter.at.size > MOST_GAUGES) counter.forget(MOST_GAUGES / 2);
    this.model.reach(at, at);
  }

  /** The newer half goes into a new model, with all its lanes. */
  private forgetHalf(): void {
    const old = this.model;
    const times = Float64Array.from(old.started.data.subarray(0, old.size)).sort();
    const from = times.length ? times[times.length >> 1]! : (old.hops[old.hops.length >> 1]?.sent ?? 0);
    const model = (this.model = new Model());
    model.wall = old.wall;
    this.batches.clear();
    this.parts.clear();
    for (const lane of old.lanes) model.laneOf(lane.rank, lane.name, lane.nodes, lane.loop, lane.spans, lane.of);
    for (let id = 0; id < old.size; id += 1) if (old.started.at(id) >= from) model.add(blockOf(old, id, model));
    for (const hop of old.hops.slice(-MOST_HOPS / 2)) if (hop.sent >= from) model.addHop(hop);
    model.takePasses(old);
    for (const mark of old.marks.slice(-MOST_MARKS / 2)) if (mark.at >= from) model.addMark(mark);
    for (const [rank, was] of old.counters) {
      const counter = model.counter(rank);
      counter.pagesTotal = was.pagesTotal;
      for (let at = lower(was.at.size, from, (row) => was.at.at(row)); at < was.at.size; at += 1)
        for (const column of ["at", "busy", "queue", "pagesUsed"] as const) counter[column].push(was[column].at(at));
    }
    model.reach(old.to, old.to);
    this.epoch += 1;
  }
}

/** Fields that an aggregated block doesn't have. */
const FOLD = { kind: FOLDED, use: -1, step: -1, number: -1, pages: -1, failed: false };

/** All that a forward and a launch say alike. */
function timed(
  event: ForwardEvent | LaunchEvent,
  ready: number,
  origin: number,
  lane: number,
  runs: number[],
): Block {
  const started = (event.started - origin) * 1e6;
  const finished = (event.finished - origin) * 1e6;
  const since = (ready - origin) * 1e6;
  return {
    kind: CALL,
    lane,
    walk: 0,
    use: -1,
    step: -1,
    iteration: NONE,
    count: 1,
    number: event.number,
    batch: 1,
    runs,
    ready: since,
    taken: (event.taken - origin) * 1e6,
    launched: (event.launched - origin) * 1e6,
    started,
    finished,
    busy: finished - started,
    queued: Math.max(0, started - since),
    pages: event.pages_free,
    failed: false,
  };
}

const NONE: readonly number[] = [];

/** True if an earlier row belongs to the same use. */
function foundBefore(uses: readonly string[], walks: readonly string[], at: number): boolean {
  for (let row = at - 1; row >= 0; row -= 1) if (uses[row] === uses[at] && walks[row] === walks[at]) return true;
  return false;
}

function keyOf(event: TransferEvent | ArrivalEvent, rank: number): string {
  return `${event.run} ${rank} ${event.stream ? "s" : "e"}${event.edge} ${event.step} ${event.key.join(".")}`;
}

function blockOf(old: Model, id: number, model: Model): Block {
  const block = old.blockAt(id);
  const renamed = (name: number) => model.name(old.names[name] ?? "");
  return {
    ...block,
    walk: renamed(block.walk),
    use: block.use < 0 ? -1 : renamed(block.use),
    runs: block.runs.map(renamed),
  };
}

/** Adds to the list at a key; of too many keys the oldest goes. */
function push<T>(lists: Map<string, T[]>, key: string, value: T): void {
  const found = lists.get(key);
  if (found) found.push(value);
  else lists.set(key, [value]);
  if (lists.size > WAITING) for (const oldest of lists.keys()) if (lists.delete(oldest)) break;
}

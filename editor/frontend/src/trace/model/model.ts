// The drawn data: blocks in lanes of ranks, hops between ranks, counters, marks; by columns, in microseconds from one
// beginning. Made whole from a trace, or grown from live events. Pure.
import { lower, Numbers } from "./columns";
import { strings } from "../../strings";
import type { LaneShown, PassesShown } from "./types";

/** A block that starts before one of its lane has ended goes to the next track; the last one takes what is left. */
export const MOST_TRACKS = 4;

/** Block ids by their start. Up to the last track none overlap, so their ends rise as well. */
export class Track {
  readonly ids = new Numbers();
  /** Microseconds of all blocks before each. */
  readonly before = new Numbers();
  end = -Infinity;
  total = 0;
}

export interface Lane extends LaneShown {
  index: number;
  tracks: Track[];
  /** The lane of the shard that serves, if these blocks are another shard's parts in its batches. */
  of: number | null;
}

/** The part of another shard in a batch. */
export interface Part {
  rank: number;
  started: number;
  finished: number;
}

/** One block, as it is put in. */
export interface Block {
  kind: number;
  lane: number;
  walk: number;
  /** Name of the node's use there; -1 of a loop. */
  use: number;
  step: number;
  iteration: readonly number[];
  count: number;
  number: number;
  batch: number;
  /** Names: its own run first. */
  runs: readonly number[];
  ready: number;
  taken: number;
  launched: number;
  started: number;
  finished: number;
  busy: number;
  queued: number;
  pages: number;
  failed: boolean;
}

export interface Hop {
  source: number;
  target: number;
  run: string;
  walk: string;
  /** `use.port -> use.port`, or what is known of it. */
  edge: string;
  step: number;
  key: readonly number[];
  transport: string;
  count: number;
  nbytes: number;
  sent: number;
  /** -1: not told. */
  arrived: number;
}

export interface Mark {
  at: number;
  name: string;
  run: string;
}

/** A counter of one rank, in order of time. */
export class Counter {
  readonly at = new Numbers();
  readonly busy = new Numbers();
  readonly queue = new Numbers();
  readonly pagesUsed = new Numbers();
  pagesTotal = 0;

  /** The oldest `count` go. */
  forget(count: number): void {
    for (const column of [this.at, this.busy, this.queue, this.pagesUsed]) column.drop(count);
  }
}

const KEPT_PASSES = 1000;

export class Model {
  readonly names: string[] = [];
  readonly lanes: Lane[] = [];
  readonly kind = new Numbers();
  readonly lane = new Numbers();
  readonly walk = new Numbers();
  readonly use = new Numbers();
  readonly step = new Numbers();
  readonly count = new Numbers();
  readonly number = new Numbers();
  readonly batch = new Numbers();
  readonly ready = new Numbers();
  readonly taken = new Numbers();
  readonly launched = new Numbers();
  readonly started = new Numbers();
  readonly finished = new Numbers();
  readonly busy = new Numbers();
  readonly queued = new Numbers();
  readonly pages = new Numbers();
  readonly iteration: (readonly number[])[] = [];
  readonly runs: (readonly number[])[] = [];
  readonly failed = new Set<number>();
  readonly hops: Hop[] = [];
  readonly counters = new Map<number, Counter>();
  readonly marks: Mark[] = [];
  /** Microseconds; `from` below `to` once there is anything. */
  from = Infinity;
  to = -Infinity;
  /** Seconds since 1970 at 0. */
  wall = 0;
  /** One more for each change. */
  version = 0;
  /** `run step` -> its passes. */
  private readonly passes = new Map<string, readonly number[]>();
  private readonly nameIndex = new Map<string, number>();
  private readonly laneIndex = new Map<string, number>();

  get size(): number {
    return this.started.size;
  }

  name(text: string): number {
    let index = this.nameIndex.get(text);
    if (index === undefined) {
      index = this.names.push(text) - 1;
      this.nameIndex.set(text, index);
    }
    return index;
  }

  laneOf(
    rank: number,
    name: string,
    nodes: readonly string[],
    loop: boolean,
    spans = false,
    of: number | null = null,
  ): number {
    const key = `${rank} ${loop ? 1 : 0} ${name}`;
    let index = this.laneIndex.get(key);
    if (index === undefined) {
      index = this.lanes.length;
      this.lanes.push({ rank, name, nodes: [...nodes], loop, spans, index, tracks: [], of });
      this.laneIndex.set(key, index);
    } else if (loop) this.widen(this.lanes[index]!, nodes);
    return index;
  }

  /** A loop's iterations may call other nodes in another Walk, or under another condition. */
  private widen(lane: Lane, nodes: readonly string[]): void {
    for (const node of nodes) if (!lane.nodes.includes(node)) lane.nodes.push(node);
  }

  add(block: Block): number {
    const id = this.size;
    this.kind.push(block.kind);
    this.lane.push(block.lane);
    this.walk.push(block.walk);
    this.use.push(block.use);
    this.step.push(block.step);
    this.count.push(block.count);
    this.number.push(block.number);
    this.batch.push(block.batch);
    this.ready.push(block.ready);
    this.taken.push(block.taken);
    this.launched.push(block.launched);
    this.started.push(block.started);
    this.finished.push(block.finished);
    this.busy.push(block.busy);
    this.queued.push(block.queued);
    this.pages.push(block.pages);
    this.iteration.push(block.iteration);
    this.runs.push(block.runs);
    if (block.failed) this.failed.add(id);
    this.place(id, this.lanes[block.lane]!);
    this.reach(block.started, block.finished);
    return id;
  }

  /** Another shard's part in a block of the shard that serves: a block in a lane of its own, below that one's. */
  addPart(id: number, { rank, started, finished }: Part): void {
    const { name, nodes, loop, spans, index } = this.laneAt(id);
    const block = this.blockAt(id);
    const lane = this.laneOf(rank, name, nodes, loop, spans, index);
    const queued = Math.max(0, started - block.ready);
    this.add({ ...block, lane, started, finished, busy: finished - started, queued, pages: -1 });
  }

  /** A block as it was put in. */
  blockAt(id: number): Block {
    return {
      kind: this.kind.at(id),
      lane: this.lane.at(id),
      walk: this.walk.at(id),
      use: this.use.at(id),
      step: this.step.at(id),
      iteration: this.iteration[id]!,
      count: this.count.at(id),
      number: this.number.at(id),
      batch: this.batch.at(id),
      runs: this.runs[id]!,
      ready: this.ready.at(id),
      taken: this.taken.at(id),
      launched: this.launched.at(id),
      started: this.started.at(id),
      finished: this.finished.at(id),
      busy: this.busy.at(id),
      queued: this.queued.at(id),
      pages: this.pages.at(id),
      failed: this.failed.has(id),
    };
  }

  /** Steps in loops of steps: marks where a pass begins, and knows the passes of each step. */
  addPasses(run: string, { at, first, passes }: PassesShown): void {
    passes.forEach((each, index) => {
      if (each.length) this.passes.set(`${run} ${first + index}`, each);
    });
    if (passes[0]?.length)
      this.addMark({ at, name: strings.trace.pass(passes[0].map((each) => each + 1).join(".")), run });
  }

  /** The passes of loops of steps that a block is in; those of the first run of a batch. */
  passesAt(id: number): readonly number[] {
    return this.passes.get(`${this.names[this.runs[id]![0] ?? -1]} ${this.step.at(id)}`) ?? [];
  }

  /** The newest of another model. */
  takePasses(from: Model): void {
    for (const [key, passes] of [...from.passes].slice(-KEPT_PASSES)) this.passes.set(key, passes);
  }

  addHop(hop: Hop): void {
    this.hops.push(hop);
    this.reach(hop.sent, Math.max(hop.sent, hop.arrived));
  }

  addMark(mark: Mark): void {
    this.marks.push(mark);
    this.reach(mark.at, mark.at);
  }

  counter(rank: number): Counter {
    let counter = this.counters.get(rank);
    if (!counter) this.counters.set(rank, (counter = new Counter()));
    return counter;
  }

  reach(from: number, to: number): void {
    if (from < this.from) this.from = from;
    if (to > this.to) this.to = to;
    this.version += 1;
  }

  /** Blocks of the same batch, itself among them. */
  mates(id: number): number[] {
    const number = this.number.at(id);
    if (number < 0) return [id];
    const { rank } = this.laneAt(id);
    const found: number[] = [];
    for (let other = 0; other < this.size; other += 1)
      if (this.number.at(other) === number && this.laneAt(other).rank === rank) found.push(other);
    return found;
  }

  /** The parts of all shards in a block, itself among them; none of a node that isn't divided. */
  partsOf(id: number): number[] {
    const lane = this.laneAt(id);
    const first = lane.of ?? lane.index;
    const lanes = new Set(this.shardsOf(first).map((shard) => shard.index));
    if (lanes.size === 0) return [];
    lanes.add(first);
    const found: number[] = [];
    for (let other = 0; other < this.size; other += 1)
      if (this.number.at(other) === this.number.at(id) && lanes.has(this.lane.at(other)) && this.alike(id, other))
        found.push(other);
    return found.sort((a, b) => this.laneAt(a).rank - this.laneAt(b).rank);
  }

  /** True if two blocks of one batch are of the same use. */
  private alike(a: number, b: number): boolean {
    return [this.walk, this.use, this.step].every((column) => column.at(a) === column.at(b));
  }

  /** The lanes of the other shards of what is in a lane. */
  shardsOf(lane: number): Lane[] {
    return this.lanes.filter((other) => other.of === lane && other.tracks.length > 0);
  }

  /** The rank whose work a rank repeats, as another shard of it; null: it has its own. */
  servingOf(rank: number): number | null {
    const shard = this.lanes.find((lane) => lane.rank === rank && lane.of !== null);
    return shard ? this.lanes[shard.of!]!.rank : null;
  }

  get ranks(): number[] {
    return [...new Set([...this.lanes.map((lane) => lane.rank), ...this.counters.keys()])].sort((a, b) => a - b);
  }

  laneAt(id: number): Lane {
    return this.lanes[this.lane.at(id)]!;
  }

  /** All of a lane's blocks by their start. */
  inLane(lane: Lane): number[] {
    const all = lane.tracks.flatMap((track) => Array.from(track.ids.data.subarray(0, track.ids.size)));
    return all.sort((a, b) => this.started.at(a) - this.started.at(b) || a - b);
  }

  private place(id: number, lane: Lane): void {
    const [started, finished] = [this.started.at(id), this.finished.at(id)];
    for (const track of lane.tracks) if (track.end <= started) return this.append(track, id, started, finished);
    if (lane.tracks.length < MOST_TRACKS) {
      const track = new Track();
      lane.tracks.push(track);
      return this.append(track, id, started, finished);
    }
    const last = lane.tracks[MOST_TRACKS - 1]!;
    const index = lower(last.ids.size, started, (at) => this.started.at(last.ids.at(at)));
    if (index === last.ids.size) return this.append(last, id, started, finished);
    last.ids.insert(index, id);
    last.before.insert(index, last.before.at(index));
    for (let at = index + 1; at < last.before.size; at += 1) last.before.data[at]! += finished - started;
    last.total += finished - started;
    last.end = Math.max(last.end, finished);
  }

  private append(track: Track, id: number, started: number, finished: number): void {
    track.ids.push(id);
    track.before.push(track.total);
    track.total += finished - started;
    track.end = Math.max(track.end, finished);
  }
}

// Sums of a model's blocks: per node, and for two runs side by side. Pure.
import { plural } from "../../ui/words";
import { quantile } from "./columns";
import type { Lane, Model } from "./model";
import { FOLDED, LAUNCH } from "./types";
import { strings } from "../../strings";

/** The figures of one lane, in milliseconds. */
export interface LaneFigures {
  name: string;
  rank: number;
  loop: boolean;
  /** One, or those of the loop. */
  nodes: readonly string[];
  spans: boolean;
  /** Calls; of a loop, iterations. */
  calls: number;
  /** Times of one call or iteration; null where calls aren't reported one by one. */
  p50: number | null;
  p95: number | null;
  mean: number;
  busy: number;
  queued: number;
  batch: number;
}

/** Of what is divided, those of the shard that serves. */
export function figuresOf(model: Model): LaneFigures[] {
  return model.lanes
    .filter((lane) => lane.tracks.length > 0 && lane.of === null)
    .map((lane) => laneFigures(model, lane));
}

function laneFigures(model: Model, lane: Lane): LaneFigures {
  const each: number[] = [];
  let [calls, busy, queued, rows, blocks, folded] = [0, 0, 0, 0, 0, false];
  for (const id of model.inLane(lane)) {
    const count = model.count.at(id);
    calls += count;
    busy += model.busy.at(id) / 1e3;
    queued += model.queued.at(id) / 1e3;
    rows += model.batch.at(id);
    blocks += 1;
    const kind = model.kind.at(id);
    if (kind === FOLDED) folded = true;
    // A launch's iterations take turns; the calls of a batch run at once.
    const times = kind === LAUNCH ? Math.max(count, 1) : 1;
    for (let time = 0; time < times; time += 1) each.push(model.busy.at(id) / 1e3 / times);
  }
  each.sort((a, b) => a - b);
  return {
    name: lane.name,
    rank: lane.rank,
    loop: lane.loop,
    nodes: lane.nodes,
    spans: lane.spans ?? false,
    calls,
    p50: folded ? null : quantile(each, 0.5),
    p95: folded ? null : quantile(each, 0.95),
    mean: busy / Math.max(calls, 1),
    busy,
    queued,
    batch: rows / Math.max(blocks, 1),
  };
}

export interface Difference {
  name: string;
  rank: number;
  loop: boolean;
  a: LaneFigures | null;
  b: LaneFigures | null;
  /** Milliseconds that `b` was busy for longer. */
  busy: number;
}

/** The largest change first. */
export function differences(a: readonly LaneFigures[], b: readonly LaneFigures[]): Difference[] {
  const key = (one: LaneFigures) => `${one.rank} ${one.loop} ${one.name}`;
  const [inA, inB] = [a, b].map((list) => new Map(list.map((one) => [key(one), one]))) as [
    Map<string, LaneFigures>,
    Map<string, LaneFigures>,
  ];
  const all = [...new Set([...inA.keys(), ...inB.keys()])].map((each) => {
    const [one, other] = [inA.get(each) ?? null, inB.get(each) ?? null];
    const { name, rank, loop } = (one ?? other)!;
    return { name, rank, loop, a: one, b: other, busy: (other?.busy ?? 0) - (one?.busy ?? 0) };
  });
  return all.sort((one, other) => Math.abs(other.busy) - Math.abs(one.busy));
}

/** A short name of a block: `call #3.17`, `iterations 5–8`, `24 calls`. */
export function blockWords(model: Model, id: number): string {
  const kind = model.kind.at(id);
  const count = model.count.at(id);
  if (kind === FOLDED) return plural(count, model.laneAt(id).loop ? "iteration" : "call");
  const place = placeWords(model, id);
  if (kind === LAUNCH) return `${count > 1 ? "iterations" : "iteration"} ${place}`;
  return `${count > 1 ? strings.trace.calls(count) : "call"}${place && ` #${place}`}`;
}

/** The same where there is little room: `#3.17`, `5–8`, `×24`. */
export function blockMark(model: Model, id: number): string {
  const kind = model.kind.at(id);
  if (kind === FOLDED) return model.count.at(id) > 1 ? `×${model.count.at(id)}` : "";
  const place = placeWords(model, id);
  return kind === LAUNCH ? place : place && `#${place}`;
}

/** Which iteration, from 1; of a launch all of its iterations. Empty outside of loops. */
function placeWords(model: Model, id: number): string {
  const iteration = model.iteration[id]!;
  const launch = model.kind.at(id) === LAUNCH;
  if (iteration.length === 0 && !launch) return "";
  const first = (iteration.at(-1) ?? 0) + 1;
  const last = launch ? first + model.count.at(id) - 1 : first;
  const place = [...iteration.slice(0, -1).map((index) => index + 1), first].join(".");
  return last > first ? `${place}–${last}` : place;
}

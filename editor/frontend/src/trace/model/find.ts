// Which block is where, which come before and after it, and which hops came to it and left it. Pure.
import { lower } from "./columns";
import { MOST_TRACKS, type Hop, type Lane, type Model, type Track } from "./model";

/** A hop is told a moment before or after the block that it belongs to. */
const SLACK = 200;

/** Index in the track of the first block that ends after `from`; of the last track, whose blocks may overlap, of the
 * first that may. */
export function firstIn(model: Model, lane: Lane, track: number, from: number): number {
  const { ids } = lane.tracks[track]!;
  if (track < MOST_TRACKS - 1) return lower(ids.size, from, (at) => model.finished.at(ids.at(at)));
  for (let at = 0; at < ids.size; at += 1) if (model.finished.at(ids.at(at)) >= from) return at;
  return ids.size;
}

/** The block of a track at a time, else the nearest within `reach` microseconds; null where there is none. */
export function blockAt(model: Model, lane: Lane, track: number, at: number, reach: number): number | null {
  const found = lane.tracks[track];
  if (!found) return null;
  let best: number | null = null;
  let distance = reach;
  for (let index = firstIn(model, lane, track, at - reach); index < found.ids.size; index += 1) {
    const id = found.ids.at(index);
    const started = model.started.at(id);
    if (started > at + reach) break;
    const away = Math.max(started - at, at - model.finished.at(id), 0);
    if (away < distance || (away === distance && best === null)) [best, distance] = [id, away];
  }
  return best;
}

/** The block before or after this one in its lane; null at its ends. */
export function neighbour(model: Model, id: number, step: 1 | -1): number | null {
  const lane = model.laneAt(id);
  const key = (other: number): [number, number] => [model.started.at(other), other];
  const here = key(id);
  let best: number | null = null;
  for (const track of lane.tracks) {
    const around = lower(track.ids.size, here[0], (at) => model.started.at(track.ids.at(at)));
    for (const other of near(track, around)) {
      const order = compare(key(other), here) * step;
      if (order <= 0) continue;
      if (best === null || compare(key(other), key(best)) * step < 0) best = other;
    }
  }
  return best;
}

function near(track: Track, index: number): number[] {
  const found: number[] = [];
  for (let at = Math.max(0, index - 1); at < Math.min(track.ids.size, index + 3); at += 1)
    found.push(track.ids.at(at));
  return found;
}

function compare(a: readonly [number, number], b: readonly [number, number]): number {
  return a[0] - b[0] || a[1] - b[1];
}

/** A hop with the blocks that it is drawn between, as far as they are known. */
export interface Link {
  hop: Hop;
  from: number | null;
  to: number | null;
}

export type NodeOf = (walk: string, use: string) => string;

/** Each hop with the block that made its value and the first that could read it. `nodeOf`: the node of a use. */
export function linksOf(model: Model, nodeOf: NodeOf): Link[] {
  const byFinish = new Map<number, number[]>();
  const byStart = new Map<number, number[]>();
  for (let id = 0; id < model.size; id += 1) {
    const { rank } = model.laneAt(id);
    push(byFinish, rank, id);
    push(byStart, rank, id);
  }
  for (const ids of byFinish.values()) ids.sort((a, b) => model.finished.at(a) - model.finished.at(b));
  for (const ids of byStart.values()) ids.sort((a, b) => model.started.at(a) - model.started.at(b));
  return model.hops.map((hop) => {
    const [source, target] = hop.edge.split(" -> ");
    const made = byFinish.get(hop.source) ?? [];
    const read = byStart.get(hop.target) ?? [];
    const end = lower(made.length, hop.sent + SLACK, (at) => model.finished.at(made[at]!));
    const start = lower(read.length, (hop.arrived < 0 ? hop.sent : hop.arrived) - SLACK, (at) =>
      model.started.at(read[at]!),
    );
    return {
      hop,
      from: nearest(model, hop, made, end - 1, -1, useOf(hop, source, nodeOf)),
      to: nearest(model, hop, read, start, 1, useOf(hop, target, nodeOf)),
    };
  });
}

/** Blocks looked at for one end of a hop. */
const LOOKED = 64;

/** The nearest block: of its Walk and step where blocks carry theirs, of its use where the edge names it. */
function nearest(
  model: Model,
  hop: Hop,
  ids: readonly number[],
  from: number,
  step: 1 | -1,
  use: Use | null,
): number | null {
  const run = model.name(hop.run);
  for (let looked = 0, at = from; looked < LOOKED && at >= 0 && at < ids.length; looked += 1, at += step) {
    const id = ids[at]!;
    const sameStep = hop.step < 0 || model.step.at(id) < 0 || model.step.at(id) === hop.step;
    const sameWalk = hop.walk === "" || model.names[model.walk.at(id)] === hop.walk;
    if (!sameStep || !sameWalk || !model.runs[id]!.includes(run)) continue;
    if (use === null || isOf(model, id, use)) return id;
  }
  return null;
}

interface Use {
  name: string;
  node: string;
}

/** A loop on the device tells its nodes alone. */
function isOf(model: Model, id: number, { name, node }: Use): boolean {
  const own = model.use.at(id);
  return own < 0 ? model.laneAt(id).nodes.includes(node) : model.names[own] === name;
}

function useOf(hop: Hop, end: string | undefined, nodeOf: NodeOf): Use | null {
  const name = end?.split(".")[0] ?? "";
  return name === "" || name.startsWith("@") || !end?.includes(".") ? null : { name, node: nodeOf(hop.walk, name) };
}

function push(groups: Map<number, number[]>, rank: number, id: number): void {
  const found = groups.get(rank);
  if (found) found.push(id);
  else groups.set(rank, [id]);
}

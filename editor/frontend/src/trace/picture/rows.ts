// Where ranks, their counters and their lanes stand below each other, in pixels. Pure.
import type { Lane, Model } from "../model/model";

export const RANK_HEIGHT = 24;
export const STRIP_HEIGHT = 26;
export const TRACK_HEIGHT = 20;
/** Height of the tracks below the first. */
export const NEXT_TRACK = 12;
const GAP = 4;

export type Row =
  | { kind: "rank"; rank: number; top: number; height: number; lanes: number; serving: number | null }
  | { kind: "strip"; rank: number; top: number; height: number }
  | { kind: "lane"; rank: number; top: number; height: number; lane: Lane; shards: number };

export interface Rows {
  list: readonly Row[];
  height: number;
}

/** `closed`: ranks whose lanes are hidden. `opened`: lanes with those of their other shards below them. */
export function rowsOf(model: Model, closed: ReadonlySet<number>, opened: ReadonlySet<number> = new Set()): Rows {
  const list: Row[] = [];
  let top = 0;
  const put = (row: Row) => {
    list.push(row);
    top += row.height;
  };
  for (const rank of model.ranks) {
    const own = model.lanes.filter((lane) => lane.rank === rank && lane.of === null && lane.tracks.length > 0);
    const lanes = own.sort(byFirst(model));
    put({
      kind: "rank",
      rank,
      top,
      height: RANK_HEIGHT,
      lanes: lanes.length,
      serving: model.servingOf(rank),
    });
    if (closed.has(rank)) continue;
    if ((model.counters.get(rank)?.at.size ?? 0) > 1) put({ kind: "strip", rank, top, height: STRIP_HEIGHT });
    for (const lane of lanes) {
      const shards = model.shardsOf(lane.index).sort((a, b) => a.rank - b.rank);
      put({ kind: "lane", rank, top, height: laneHeight(lane), lane, shards: shards.length });
      for (const shard of opened.has(lane.index) ? shards : [])
        put({ kind: "lane", rank: shard.rank, top, height: laneHeight(shard), lane: shard, shards: 0 });
    }
    top += GAP;
  }
  return { list, height: top };
}

export function laneHeight(lane: Lane): number {
  return TRACK_HEIGHT + GAP + (lane.tracks.length - 1) * NEXT_TRACK;
}

/** Top and height of a track below its lane's top. */
export function trackPlace(track: number): { top: number; height: number } {
  return track === 0
    ? { top: GAP / 2, height: TRACK_HEIGHT - 2 }
    : { top: GAP / 2 + TRACK_HEIGHT + (track - 1) * NEXT_TRACK, height: NEXT_TRACK - 2 };
}

export function rowAt(rows: Rows, y: number): Row | null {
  return rows.list.find((row) => y >= row.top && y < row.top + row.height) ?? null;
}

/** Earlier blocks are on top, so that a run reads from top left to bottom right. */
function byFirst(model: Model): (a: Lane, b: Lane) => number {
  const first = (lane: Lane) => Math.min(...lane.tracks.map((track) => model.started.at(track.ids.at(0))));
  return (a, b) => first(a) - first(b) || a.index - b.index;
}

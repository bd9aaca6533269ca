// Keys on a picture do everything that the pointer can, and move from block to block.
import { neighbour } from "../model/find";
import type { Model } from "../model/model";
import type { Rows } from "./rows";
import type { TraceSession, Which } from "../model/session";
import { around } from "../model/span";
import type { Timeline } from "../model/timeline";
import { strings } from "../../strings";

export const KEYS = strings.trace.plusAndMinusZoomLeft;

const ZOOM = 1.4;
const MOVE = 0.15;

export interface Pressed {
  session: TraceSession;
  of: Which;
  model: Model;
  timeline: Timeline;
  rows: Rows;
  selected: number | null;
  lane: number | null;
}

/** True if the key has a meaning here. */
export function act(key: string, on: Pressed): boolean {
  const { session, timeline, selected, lane } = on;
  switch (key) {
    case "+":
    case "=":
      timeline.zoom(1 / ZOOM);
      break;
    case "-":
      timeline.zoom(ZOOM);
      break;
    case "0":
      timeline.fit();
      break;
    case "ArrowLeft":
    case "ArrowRight":
      timeline.move(key === "ArrowLeft" ? -MOVE : MOVE);
      break;
    case "ArrowUp":
    case "ArrowDown":
      chooseLane(on, nextLane(on.rows, lane, key === "ArrowUp" ? -1 : 1));
      return true;
    case ",":
    case ".":
      choose(on, nextBlock(on, key === "," ? -1 : 1));
      break;
    case "Escape":
      if (selected === null && lane === null) return false;
      session.unselect();
      return true;
    default:
      return false;
  }
  session.setFollow(false);
  return true;
}

function chooseLane({ session, of }: Pressed, lane: number | null): void {
  if (lane !== null) session.selectLane(lane, of);
}

function choose({ session, of, model, timeline }: Pressed, block: number | null): void {
  if (block === null) return;
  session.select(block, of);
  timeline.set(around(timeline.span, { from: model.started.at(block), to: model.finished.at(block) }));
}

function nextLane(rows: Rows, lane: number | null, step: 1 | -1): number | null {
  const lanes = rows.list.flatMap((row) => (row.kind === "lane" ? [row.lane.index] : []));
  if (lanes.length === 0) return null;
  const at = lane === null ? (step === 1 ? -1 : lanes.length) : lanes.indexOf(lane);
  return lanes[Math.min(Math.max(at + step, 0), lanes.length - 1)]!;
}

function nextBlock({ model, rows, selected, lane }: Pressed, step: 1 | -1): number | null {
  if (selected !== null) return neighbour(model, selected, step);
  const found = lane ?? nextLane(rows, null, 1);
  const blocks = found === null ? [] : model.inLane(model.lanes[found]!);
  return (step === 1 ? blocks[0] : blocks.at(-1)) ?? null;
}

// Sizes and boxes in pixels of the canvas. Nodes are drawn to these sizes exactly, so that nothing must be measured
// and numbers that arrive later never move anything. Pure.
import { isLoop } from "../../document/tree";
import type { BoundaryData, ContainerData, Pad, Piece, Point, PortShown, Rect, UseData } from "./types";

export const GRID = 8;
export const HEAD = 28;
export const SUB = 16;
export const ROW = 20;
export const CHIPS = 22;
export const WHEN = 18;
export const LIVE = 18;
export const CONTAINER_HEAD = 30;
export const RAIL = 24;
/** Height of the line at a choice's bottom, where cases are added. */
export const CHOICE_FOOT = 28;
export const MERGE = 32;
const FLAG = /^flag\b/;
/** Height that one wire to the next iteration takes at a loop's bottom. */
export const LANE = 16;

export function snap(value: number): number {
  return Math.round(value / GRID) * GRID;
}

export function snapped([x, y]: Point): Point {
  return [snap(x), snap(y)];
}

export function rowsOf(data: { inputs: PortShown[]; outputs: PortShown[] }): number {
  return Math.max(data.inputs.length, data.outputs.length);
}

export function useSize(data: UseData): Point {
  const rows = rowsOf(data);
  const width = Math.max(
    portsWidth(data.inputs, data.outputs),
    data.name.length * 7.6 + 108,
    data.component.length * 6.4 +
      28 +
      (data.footnote.length + (data.drawnOnly ? 11 : 0) + (data.ghost ? 10 : 0)) * 5.4,
    data.states.reduce((sum, state) => sum + (state.slot.length + state.state.length) * 5.9 + 30, 12),
    168,
  );
  const extra = (data.states.length ? CHIPS : 0) + (data.when ? WHEN : 0);
  return [up(Math.min(width, 320)), HEAD + SUB + 4 + rows * ROW + extra + LIVE + 4];
}

/** From a use's top to the middle of its port row `index`. */
export function useRow(index: number): number {
  return HEAD + SUB + 4 + index * ROW + ROW / 2;
}

export function boundarySize(data: BoundaryData): Point {
  const width = Math.max(
    portsWidth(data.inputs, data.outputs),
    // The icon, the title, and the sign of a problem.
    data.title.length * 7.2 + 62,
    data.subtitle.length * 6.5 + 28,
    112,
  );
  return [up(Math.min(width, 260)), boundaryTop(data) + rowsOf(data) * ROW + 6];
}

export function boundaryTop(data: { subtitle: string }): number {
  return HEAD + (data.subtitle ? SUB : 0);
}

export function boundaryRow(data: { subtitle: string }, index: number): number {
  return boundaryTop(data) + index * ROW + ROW / 2;
}

export function forkSize(fork: string, into: string, when: string): Point {
  return [
    up(Math.min(Math.max((fork.length + into.length) * 7.6 + 108, when.length * 5.8 + 24, 140), 264)),
    when ? 48 : 32,
  ];
}

export function containerPad(kind: ContainerData["container"], when: string, lanes: number): Pad {
  const top = CONTAINER_HEAD + (isLoop(kind) || when ? RAIL : 0) + 10;
  if (kind === "choose") return { top, right: 16, bottom: CHOICE_FOOT + 8, left: 16 };
  return { top, right: 24, bottom: 16 + (lanes ? 8 + lanes * LANE : 0), left: kind === "parallel" ? 28 : 24 };
}

export function mergeSize(name: string): Point {
  return [up(Math.min(Math.max(name.length * 7.4 + 62, 96), 240)), MERGE];
}

export function containerMin(data: ContainerData): Point {
  const title = data.container === "loop" ? (data.name.length + data.times.length) * 7 + 150 : 170;
  const until = data.until ? data.until.length * 6.6 + 60 : 0;
  const head = data.head?.value.length ?? 0;
  if (data.container === "map") {
    const counts = Math.max(data.bound.length, 3) + Math.max(data.width.length, 3) + Math.max(data.name.length, 3);
    const rail = counts * 7.4 + 258 + (data.when ? Math.min(data.when.length * 6.6 + 60, 160) : 0);
    return [up(Math.min(Math.max(Math.max(head, 16) * 6.8 + 200, rail), 640)), 104];
  }
  if (data.head) return [up(Math.min(Math.max(head * 6.8 + 210, 320), 460)), 104 + CHOICE_FOOT];
  if (data.branch) return [up(Math.min(Math.max(data.name.length * 7.4 + 120, 208), 460)), 88];
  return [up(Math.max(Math.min(title + until, 460), 208)), 104];
}

export function closedSize(data: ContainerData): Point {
  const width = Math.max(portsWidth(data.inputs, data.outputs), containerMin(data)[0]);
  return [up(width), closedRow(rowsOf(data)) - ROW / 2 + LIVE + 8];
}

export function closedRow(index: number): number {
  return CONTAINER_HEAD + RAIL + 2 + index * ROW + ROW / 2;
}

function portsWidth(inputs: PortShown[], outputs: PortShown[]): number {
  const longest = (ports: PortShown[]) => ports.reduce((most, port) => Math.max(most, port.name.length), 0);
  // A flag may become what ends a loop, and says so then: the node doesn't grow over its neighbour for that.
  const ending = outputs.some(({ type }) => FLAG.test(type)) ? 34 : 0;
  return (longest(inputs) + longest(outputs)) * 6.6 + 76 + ending;
}

function up(value: number): number {
  return Math.ceil(value / GRID) * GRID;
}

/** Width of the words on a wire, drawn together. */
export function chipWidth(chips: readonly string[]): number {
  return chips.length ? chips.join(" · ").length * 5.6 + 10 : 0;
}

/** Space that must be seen of something for it to count as seen. */
const SEEN = 24;

/** True if enough of a box is within a view of `size` pixels. */
export function inSight(rect: Rect, { x, y, zoom }: { x: number; y: number; zoom: number }, [w, h]: Point): boolean {
  const [left, top] = [rect.x * zoom + x, rect.y * zoom + y];
  const [right, bottom] = [left + rect.w * zoom, top + rect.h * zoom];
  return left < w - SEEN && top < h - SEEN && right > SEEN && bottom > SEEN;
}

/** True if all of a box is within a view of `size` pixels. */
export function inWhole(rect: Rect, { x, y, zoom }: { x: number; y: number; zoom: number }, [w, h]: Point): boolean {
  const [left, top] = [rect.x * zoom + x, rect.y * zoom + y];
  return left >= 0 && top >= 0 && left + rect.w * zoom <= w && top + rect.h * zoom <= h;
}

// ── boxes ──────────────────────────────────────────────────────────────────────────────────────

export function union(rects: readonly Rect[]): Rect {
  const x = Math.min(...rects.map((rect) => rect.x));
  const y = Math.min(...rects.map((rect) => rect.y));
  return {
    x,
    y,
    w: Math.max(...rects.map((rect) => rect.x + rect.w)) - x,
    h: Math.max(...rects.map((rect) => rect.y + rect.h)) - y,
  };
}

/** The box of a container around its children. */
export function around(children: readonly Rect[], pad: Pad, least: Point): Rect {
  const inner = union(children);
  return {
    x: inner.x - pad.left,
    y: inner.y - pad.top,
    w: Math.max(inner.w + pad.left + pad.right, least[0]),
    h: Math.max(inner.h + pad.top + pad.bottom, least[1]),
  };
}

/** Every piece's absolute box, from the leaves' (and empty containers') top left corners. Containers hold what their
 * pieces keep free below them too. */
export function boxesOf(pieces: readonly Piece[], places: ReadonlyMap<string, Point>): Map<string, Rect> {
  const children = byParent(pieces);
  const boxes = new Map<string, Rect>();
  const held = (piece: Piece): Rect => {
    const found = box(piece);
    return { ...found, h: found.h + piece.below };
  };
  const box = (piece: Piece): Rect => {
    const inside = children.get(piece.id) ?? [];
    const [x, y] = places.get(piece.id) ?? [0, 0];
    const found =
      piece.pad && inside.length
        ? around(inside.map(held), piece.pad, piece.size)
        : { x, y, w: piece.size[0], h: piece.size[1] };
    boxes.set(piece.id, found);
    if (piece.data.kind === "container" && piece.data.container === "choose" && piece.pad)
      widened(inside, found, piece.pad, boxes);
    return found;
  };
  for (const piece of children.get(null) ?? []) box(piece);
  return boxes;
}

/** The branches of a choice as wide as its frame, but for those that stand beside one another. */
function widened(branches: readonly Piece[], frame: Rect, pad: Pad, boxes: Map<string, Rect>): void {
  const level = (a: Rect, b: Rect) => a.y < b.y + b.h && b.y < a.y + a.h;
  const own = branches.map((piece) => boxes.get(piece.id)!);
  branches.forEach((piece, index) => {
    const box = own[index]!;
    if (own.some((other) => other !== box && level(other, box))) return;
    boxes.set(piece.id, { ...box, x: frame.x + pad.left, w: frame.w - pad.left - pad.right });
  });
}

export function byParent(pieces: readonly Piece[]): Map<string | null, Piece[]> {
  const found = new Map<string | null, Piece[]>();
  for (const piece of pieces) {
    const list = found.get(piece.parent);
    if (list) list.push(piece);
    else found.set(piece.parent, [piece]);
  }
  return found;
}

export function contains(rect: Rect, [x, y]: Point): boolean {
  return x >= rect.x && x <= rect.x + rect.w && y >= rect.y && y <= rect.y + rect.h;
}

export function overlap(a: Rect, b: Rect, gap = 0): boolean {
  return a.x < b.x + b.w + gap && b.x < a.x + a.w + gap && a.y < b.y + b.h + gap && b.y < a.y + a.h + gap;
}

export function center(rect: Rect): Point {
  return [rect.x + rect.w / 2, rect.y + rect.h / 2];
}

export interface Holder {
  id: string;
  depth: number;
  rect: Rect;
  /** The branches of a choice, of which the nearest takes what is dropped between them. */
  branches?: readonly Holder[];
}

/** The innermost open container that a point is in; those in `without` (what is dragged) don't count. */
export function holderAt(holders: readonly Holder[], point: Point, without: ReadonlySet<string>): Holder | null {
  let best: Holder | null = null;
  for (const holder of holders)
    if (!without.has(holder.id) && contains(holder.rect, point) && (!best || holder.depth > best.depth))
      best = holder;
  if (!best?.branches) return best;
  const [nearest] = best.branches.toSorted((a, b) => distance(a.rect, point) - distance(b.rect, point));
  return nearest ?? null;
}

function distance({ x, y, w, h }: Rect, [px, py]: Point): number {
  return Math.hypot(Math.max(x - px, 0, px - x - w), Math.max(y - py, 0, py - y - h));
}

/** Where in a list of siblings something dropped at `point` belongs: by columns, then from top to bottom. */
export function indexAt(siblings: readonly Rect[], point: Point, stacked: boolean): number {
  let index = 0;
  for (const [position, rect] of siblings.entries()) {
    const [x, y] = center(rect);
    const above = Math.abs(point[0] - x) < rect.w / 2 && Math.abs(point[1] - y) > rect.h / 2;
    const before = stacked || above ? y < point[1] : x < point[0];
    if (before) index = position + 1;
  }
  return index;
}

export type Side = "left" | "center" | "right" | "top" | "middle" | "bottom";

/** New top left corners that line the boxes up. */
export function aligned(boxes: ReadonlyMap<string, Rect>, side: Side): Map<string, Point> {
  const all = union([...boxes.values()]);
  const move = (rect: Rect): Point => {
    if (side === "left") return [all.x, rect.y];
    if (side === "right") return [all.x + all.w - rect.w, rect.y];
    if (side === "center") return [all.x + (all.w - rect.w) / 2, rect.y];
    if (side === "top") return [rect.x, all.y];
    if (side === "bottom") return [rect.x, all.y + all.h - rect.h];
    return [rect.x, all.y + (all.h - rect.h) / 2];
  };
  return new Map([...boxes].map(([id, rect]) => [id, move(rect)]));
}

/** New corners with equal gaps between neighbours; the outer two stay. */
export function distributed(boxes: ReadonlyMap<string, Rect>, axis: "x" | "y"): Map<string, Point> {
  const side = axis === "x" ? "w" : "h";
  const sorted = [...boxes].sort(([, a], [, b]) => a[axis] - b[axis]);
  const all = union([...boxes.values()]);
  const filled = sorted.reduce((sum, [, rect]) => sum + rect[side], 0);
  const gap = sorted.length > 1 ? (all[side] - filled) / (sorted.length - 1) : 0;
  let at = all[axis];
  return new Map(
    sorted.map(([id, rect]) => {
      const place: Point = axis === "x" ? [at, rect.y] : [rect.x, at];
      at += rect[side] + gap;
      return [id, place];
    }),
  );
}

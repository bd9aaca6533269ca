// A layout at once, without a library: columns by data flow, recursively through containers. Pure.
import { around, byParent, overlap, union } from "../shapes/geometry";
import type { Piece, Point, Rect } from "../shapes/types";

const GAP_X = 72;
const GAP_Y = 28;
/** More between the inputs and the outputs of a Walk without steps: room for the first one. */
const ROOM = 240;

/** `label`: pixels that the words on the wire take, for which neighbours make room. */
export type Link = readonly [source: string, target: string, label?: number];

export interface Links {
  wires: readonly Link[];
  /** The order of nodes without a wire between them: it gives columns where wires don't, and no rows. */
  after: readonly Link[];
}

interface Placed {
  /** Position of every leaf inside, relative to the level's own corner. */
  at: Map<string, Point>;
  size: Point;
}

/** Top left corners of all leaves (and empty containers), none overlapping another. */
export function layered(pieces: readonly Piece[], { wires, after }: Links): Map<string, Point> {
  const children = byParent(pieces);
  const parents = new Map(pieces.map((piece) => [piece.id, piece.parent]));
  return level(null, children, { wires: lifted(parents, wires), after: lifted(parents, after) }, false).at;
}

/** The links, of those that wires don't draw, that close no circle with the wires and with those before them. */
export function agreeing(wires: readonly Link[], after: readonly Link[]): Link[] {
  const next = group(wires, 0, 1);
  const reaches = (from: string, to: string): boolean => {
    const seen = new Set([from]);
    for (const at of seen) for (const id of next.get(at) ?? []) seen.add(id);
    return seen.has(to);
  };
  return after.filter(([source, target]) => {
    if (source === target || reaches(target, source)) return false;
    next.set(source, [...(next.get(source) ?? []), target]);
    return true;
  });
}

/** Links between siblings, by their parent: ends are raised to where both have the same one. */
function lifted(parents: ReadonlyMap<string, string | null>, links: readonly Link[]): Map<string | null, Link[]> {
  const chain = (id: string): string[] => {
    const found = [id];
    for (let at = parents.get(id); at != null; at = parents.get(at)) found.unshift(at);
    return found;
  };
  const result = new Map<string | null, Link[]>();
  for (const [source, target, label] of links) {
    if (!parents.has(source) || !parents.has(target)) continue;
    const a = chain(source);
    const b = chain(target);
    let depth = 0;
    while (depth < a.length && depth < b.length && a[depth] === b[depth]) depth += 1;
    const [from, to] = [a[depth], b[depth]];
    if (from === undefined || to === undefined) continue;
    const key = depth ? (a[depth - 1] as string) : null;
    result.set(key, [...(result.get(key) ?? []), [from, to, label]]);
  }
  return result;
}

function level(
  parent: string | null,
  children: ReadonlyMap<string | null, Piece[]>,
  links: Record<keyof Links, ReadonlyMap<string | null, Link[]>>,
  stacked: boolean,
): Placed {
  const members = [...(children.get(parent) ?? [])].sort((a, b) => a.order - b.order);
  const inner = new Map<string, Placed>();
  const sizes = new Map<string, Point>();
  for (const piece of members) {
    const holds = piece.pad !== null && (children.get(piece.id)?.length ?? 0) > 0;
    const stacks = piece.data.kind === "container" && ["parallel", "choose"].includes(piece.data.container);
    if (!holds || !piece.pad) {
      sizes.set(piece.id, roomOf(piece));
      continue;
    }
    const found = level(piece.id, children, links, stacks);
    const { pad, size } = piece;
    inner.set(piece.id, found);
    sizes.set(piece.id, [
      Math.max(found.size[0] + pad.left + pad.right, size[0]),
      Math.max(found.size[1] + pad.top + pad.bottom, size[1]),
    ]);
  }
  const own = { wires: links.wires.get(parent) ?? [], after: links.after.get(parent) ?? [] };
  const corners = stacked ? stack(members, sizes) : columns(members, sizes, own);
  return gathered(members, corners, sizes, inner);
}

function roomOf({ size: [w, h], below }: Piece): Point {
  return [w, h + below];
}

function gathered(
  members: readonly Piece[],
  corners: ReadonlyMap<string, Point>,
  sizes: ReadonlyMap<string, Point>,
  inner: ReadonlyMap<string, Placed>,
): Placed {
  const at = new Map<string, Point>();
  let width = 0;
  let height = 0;
  for (const piece of members) {
    const [x, y] = corners.get(piece.id) ?? [0, 0];
    const [w, h] = sizes.get(piece.id) ?? [0, 0];
    width = Math.max(width, x + w);
    height = Math.max(height, y + h);
    const inside = inner.get(piece.id);
    if (!inside || !piece.pad) at.set(piece.id, [x, y]);
    else for (const [id, [left, top]] of inside.at) at.set(id, [x + piece.pad.left + left, y + piece.pad.top + top]);
  }
  return { at, size: [width, height] };
}

function stack(members: readonly Piece[], sizes: ReadonlyMap<string, Point>): Map<string, Point> {
  const found = new Map<string, Point>();
  let y = 0;
  for (const piece of members) {
    found.set(piece.id, [0, y]);
    y += (sizes.get(piece.id)?.[1] ?? 0) + GAP_Y;
  }
  return found;
}

function columns(members: readonly Piece[], sizes: ReadonlyMap<string, Point>, { wires: links, after }: Links) {
  const ranks = ranked(members, [...links, ...agreeing(forwardOf(members, links), after)]);
  const layers: Piece[][] = [];
  for (const piece of members) (layers[ranks.get(piece.id) ?? 0] ??= []).push(piece);
  const before = new Map<string, string[]>();
  for (const [source, target] of links) before.set(target, [...(before.get(target) ?? []), source]);
  const corners = new Map<string, Point>();
  let x = 0;
  for (const layer of layers) {
    if (!layer?.length) continue;
    const wished = (piece: Piece): number => {
      const tops = (before.get(piece.id) ?? []).flatMap((id) => corners.get(id)?.[1] ?? []);
      return tops.length ? tops.reduce((sum, top) => sum + top, 0) / tops.length : 0;
    };
    const sorted = layer.map((piece) => ({ piece, wish: wished(piece) })).sort((a, b) => a.wish - b.wish);
    let bottom = -Infinity;
    let width = 0;
    for (const { piece, wish } of sorted) {
      const [w, h] = sizes.get(piece.id) ?? [0, 0];
      const y = Math.max(wish, bottom + GAP_Y);
      corners.set(piece.id, [x, Math.round(y)]);
      bottom = y + h;
      width = Math.max(width, w);
    }
    x += width + gapAfter(layers.indexOf(layer), ranks, links);
  }
  const top = Math.min(0, ...[...corners.values()].map(([, y]) => y));
  return new Map([...corners].map(([id, [left, y]]) => [id, [left, y - top] as Point]));
}

/** Between a column and the next: enough for the words on the wires between them. */
function gapAfter(column: number, ranks: ReadonlyMap<string, number>, links: readonly Link[]): number {
  const labels = links.map(([source, target, label = 0]) =>
    ranks.get(source) === column && ranks.get(target) === column + 1 ? label + 32 : 0,
  );
  return Math.max(GAP_X, ...labels);
}

/** Columns by longest way; what nothing feeds stands just before what it feeds, what has no wires after its forerunner. */
function ranked(members: readonly Piece[], links: readonly Link[]): Map<string, number> {
  const forward = forwardOf(members, links);
  const into = group(forward, 1, 0);
  const from = group(forward, 0, 1);
  const ranks = new Map<string, number>();
  let last = 0;
  for (const piece of members) {
    const sources = (into.get(piece.id) ?? []).flatMap((id) => ranks.get(id) ?? []);
    const alone = !into.has(piece.id) && !from.has(piece.id);
    const rank = sources.length ? Math.max(...sources) + 1 : alone && piece.order !== -1 ? last : 0;
    ranks.set(piece.id, rank);
    last = rank;
  }
  const most = Math.max(0, ...ranks.values());
  for (const piece of [...members].reverse()) {
    const targets = (from.get(piece.id) ?? []).flatMap((id) => ranks.get(id) ?? []);
    if (!into.has(piece.id) && targets.length) ranks.set(piece.id, Math.max(0, Math.min(...targets) - 1));
    if (piece.order === Infinity && !targets.length) ranks.set(piece.id, into.has(piece.id) ? most : most + 1);
  }
  return ranks;
}

function forwardOf(members: readonly Piece[], links: readonly Link[]): Link[] {
  const orders = new Map(members.map((piece) => [piece.id, piece.order]));
  return links.filter(([a, b]) => a !== b && (orders.get(a) ?? 0) <= (orders.get(b) ?? 0));
}

function group(links: readonly Link[], key: 0 | 1, value: 0 | 1): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const link of links) found.set(link[key], [...(found.get(link[key]) ?? []), link[value]]);
  return found;
}

/**
 * Places for all: those of the document where it has them; of the rest a whole layout where it has none, otherwise a
 * free spot to the right of what comes before each.
 */
export function arranged(
  pieces: readonly Piece[],
  links: Links,
  stored: Readonly<Record<string, Point>>,
): { places: Map<string, Point>; placed: boolean } {
  const children = byParent(pieces);
  const leaves = pieces.filter((piece) => piece.pad === null || !children.get(piece.id)?.length);
  const missing = leaves.filter((piece) => !stored[piece.id]);
  const known = leaves.filter((piece) => stored[piece.id]);
  if (missing.length === 0 || !known.some((piece) => !piece.id.startsWith("@")))
    return missing.length
      ? { places: wide(pieces, layered(pieces, links)), placed: false }
      : { places: new Map(leaves.map((piece) => [piece.id, stored[piece.id] as Point])), placed: true };
  const places = new Map(known.map((piece) => [piece.id, stored[piece.id] as Point]));
  for (const piece of [...missing].sort((a, b) => a.order - b.order))
    places.set(piece.id, spot(piece, pieces, places, [...links.wires, ...links.after]));
  return { places, placed: false };
}

function wide(pieces: readonly Piece[], places: Map<string, Point>): Map<string, Point> {
  if (pieces.some((piece) => piece.data.kind !== "boundary")) return places;
  const outputs = new Set(pieces.filter((piece) => piece.order === Infinity).map((piece) => piece.id));
  return new Map([...places].map(([id, [x, y]]) => [id, [outputs.has(id) ? x + ROOM : x, y]]));
}

function spot(
  piece: Piece,
  pieces: readonly Piece[],
  places: ReadonlyMap<string, Point>,
  links: readonly Link[],
): Point {
  const boxes = new Map<string, Rect>();
  for (const other of pieces) {
    const at = places.get(other.id);
    const [w, h] = roomOf(other);
    if (at) boxes.set(other.id, { x: at[0], y: at[1], w, h });
  }
  const leaves = [...boxes.values()];
  const all = union(leaves);
  const [w, h] = roomOf(piece);
  const sources = links.filter(([, target]) => target === piece.id).map(([source]) => source);
  const near = [...sources, ...siblingsBefore(piece, pieces)];
  const beside = near.map((id) => outer(id, piece, pieces, boxes)).find((box) => box);
  const rect: Rect = { x: all.x, y: all.y, w, h };
  const others = piece.data.kind === "container" && piece.data.branch ? siblingBoxes(piece, pieces, boxes) : [];
  if (others.length) {
    // Branches stand below one another.
    const above = union(others);
    [rect.x, rect.y] = [above.x, above.y + above.h + GAP_Y];
  } else if (piece.order === -1) rect.x = all.x - w - GAP_X * 2;
  else if (piece.order === Infinity) rect.x = all.x + all.w + GAP_X * 2;
  else if (beside) [rect.x, rect.y] = [beside.x + beside.w + GAP_X, beside.y];
  for (let tries = 0; tries < 200; tries += 1) {
    const hit = leaves.find((other) => overlap(rect, other, 8));
    if (!hit) break;
    rect.y = hit.y + hit.h + GAP_Y;
  }
  return [rect.x, rect.y];
}

/** The box of a piece, or of what holds it beside the piece that is to be placed: the frame around what has a place. */
function outer(
  id: string,
  piece: Piece,
  pieces: readonly Piece[],
  boxes: ReadonlyMap<string, Rect>,
): Rect | undefined {
  const byId = new Map(pieces.map((other) => [other.id, other]));
  let at = byId.get(id);
  while (at && at.parent !== piece.parent && at.parent !== null) at = byId.get(at.parent);
  return at ? framed(at, pieces, boxes) : undefined;
}

/** The box of a leaf; of a container around what it holds, as far as that has places. */
function framed(piece: Piece, pieces: readonly Piece[], boxes: ReadonlyMap<string, Rect>): Rect | undefined {
  const own = boxes.get(piece.id);
  if (!piece.pad || own) return own;
  const inside = pieces.filter((other) => other.parent === piece.id);
  const held = inside.flatMap((other) => framed(other, pieces, boxes) ?? []);
  return held.length ? around(held, piece.pad, piece.size) : undefined;
}

function siblingBoxes(piece: Piece, pieces: readonly Piece[], boxes: ReadonlyMap<string, Rect>): Rect[] {
  const siblings = pieces.filter((other) => other.parent === piece.parent && other !== piece);
  return siblings.flatMap((other) => framed(other, pieces, boxes) ?? []);
}

function siblingsBefore(piece: Piece, pieces: readonly Piece[]): string[] {
  return pieces
    .filter((other) => other.parent === piece.parent && other.order < piece.order)
    .sort((a, b) => b.order - a.order)
    .map((other) => other.id);
}

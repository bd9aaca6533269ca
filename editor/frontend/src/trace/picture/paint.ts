// Draws what is seen of a model on a canvas: lanes, axis, the small picture of the whole. What is smaller than a pixel
// is drawn together, so that the work follows the width and not the number of blocks.
import { lower } from "../model/columns";
import { blockMark, blockWords } from "../model/figures";
import { firstIn, type Link } from "../model/find";
import type { Counter, Lane, Model, Track } from "../model/model";
import { laneHeight, trackPlace, type Row, type Rows } from "./rows";
import { showClock, showTick, ticks, type Span } from "../model/span";
import { FOLDED, LAUNCH } from "../model/types";

export const MAP_HEIGHT = 26;
export const AXIS_HEIGHT = 22;
export const TOP = MAP_HEIGHT + AXIS_HEIGHT;
/** Blocks narrower than this are drawn together, as many as start in a piece of this width. */
const CELL = 2;
const WORDS_FROM = 16;
const MOST_LINES = 12;
const HOUR = 3600;
/** Iterations of a launch are told apart from so many pixels each. */
const NOTCH = 5;

export interface Palette {
  bg: string;
  fg: string;
  muted: string;
  line: string;
  soft: string;
  accent: string;
  bad: string;
  warn: string;
  onBlock: string;
  ranks: readonly string[];
  font: string;
}

/** A piece of the critical path. */
export interface Piece {
  from: number;
  to: number;
  block: number | null;
  kind: string;
}

export interface Scene {
  model: Model;
  rows: Rows;
  span: Span;
  all: Span;
  width: number;
  height: number;
  scroll: number;
  palette: Palette;
  selected: number | null;
  hovered: number | null;
  /** Nodes that are selected elsewhere: their lanes are marked. */
  lit: ReadonlySet<string>;
  lane: number | null;
  path: readonly Piece[] | null;
  links: readonly Link[];
  /** Seconds since 1970 at 0, for an axis of the time of day; null: of the time since 0. */
  wall: number | null;
  /** Shares of the whole's width that work fills, for the small picture. */
  density: Float64Array;
}

type Context = CanvasRenderingContext2D;

export function paint(context: Context, scene: Scene): void {
  const { width, height, palette } = scene;
  context.fillStyle = palette.bg;
  context.fillRect(0, 0, width, height);
  const offset = scene.wall === null ? 0 : (scene.wall % HOUR) * 1e6;
  const { from, to } = scene.span;
  const times = ticks({ from: from + offset, to: to + offset }, 90 / width).map((at) => at - offset);
  context.save();
  context.beginPath();
  context.rect(0, TOP, width, Math.max(0, height - TOP));
  context.clip();
  context.translate(0, TOP - scene.scroll);
  grid(context, scene, times);
  for (const row of seen(scene)) paintRow(context, scene, row);
  paintMarks(context, scene);
  if (scene.path) paintPath(context, scene, scene.path);
  paintLinks(context, scene);
  paintOutlines(context, scene);
  context.restore();
  paintAxis(context, scene, times);
  paintMap(context, scene);
}

function seen({ rows, scroll, height }: Scene): readonly Row[] {
  return rows.list.filter((row) => row.top + row.height > scroll && row.top < scroll + height - TOP);
}

export function xOf({ span, width }: Pick<Scene, "span" | "width">, at: number): number {
  return ((at - span.from) / (span.to - span.from)) * width;
}

// ── lanes ───────────────────────────────────────────────────────────────────────────────────────

function grid(context: Context, scene: Scene, times: readonly number[]): void {
  context.fillStyle = scene.palette.soft;
  for (const at of times) context.fillRect(Math.round(xOf(scene, at)), scene.scroll, 1, scene.height);
}

function paintRow(context: Context, scene: Scene, row: Row): void {
  const { palette, model, width } = scene;
  if (row.kind === "rank") {
    context.fillStyle = palette.soft;
    context.fillRect(0, row.top, width, row.height);
    return;
  }
  if (row.kind === "strip") {
    const counter = model.counters.get(row.rank);
    if (counter) paintStrip(context, scene, row, counter);
    return;
  }
  const { lane } = row;
  if (scene.lane === lane.index || lane.nodes.some((node) => scene.lit.has(node))) {
    context.globalAlpha = 0.12;
    context.fillStyle = palette.accent;
    context.fillRect(0, row.top, width, laneHeight(lane));
    context.globalAlpha = 1;
  }
  lane.tracks.forEach((track, index) => paintTrack(context, scene, row.top, lane, track, index));
}

function paintTrack(context: Context, scene: Scene, top: number, lane: Lane, track: Track, index: number): void {
  const { model, span, width, palette } = scene;
  const scale = width / (span.to - span.from);
  const color = palette.ranks[lane.rank % palette.ranks.length]!;
  const place = trackPlace(index);
  const y = top + place.top;
  const ids = track.ids;
  let at = firstIn(model, lane, index, span.from);
  while (at < ids.size) {
    const id = ids.at(at);
    const started = model.started.at(id);
    if (started > span.to) return;
    const length = model.finished.at(id) - started;
    if (length * scale >= CELL) {
      paintBlock(context, scene, id, { y, height: place.height, color, scale });
      at += 1;
      continue;
    }
    const next = cellEnd(model, track, at, CELL / scale);
    const filled = (next < ids.size ? track.before.at(next) : track.total) - track.before.at(at);
    context.globalAlpha = 0.35 + 0.65 * quarter((filled * scale) / CELL);
    context.fillStyle = color;
    context.fillRect((started - span.from) * scale, y, CELL, place.height);
    context.globalAlpha = 1;
    at = next;
  }
}

/** The first block after those that start within `wide`; the last among them where it needs no company. */
function cellEnd(model: Model, track: Track, from: number, wide: number): number {
  const until = model.started.at(track.ids.at(from)) + wide;
  const next = lower(track.ids.size, until, (at) => model.started.at(track.ids.at(at)), from + 1);
  const last = next - 1;
  if (last <= from) return from + 1;
  const id = track.ids.at(last);
  return model.finished.at(id) - model.started.at(id) >= wide ? last : next;
}

function quarter(share: number): number {
  return Math.ceil(Math.min(share, 1) * 4) / 4;
}

interface Place {
  y: number;
  height: number;
  color: string;
  scale: number;
}

function paintBlock(context: Context, scene: Scene, id: number, place: Place): void {
  const { model, span, width, palette } = scene;
  const { y, height, scale } = place;
  const kind = model.kind.at(id);
  const [started, finished] = [model.started.at(id), model.finished.at(id)];
  const left = Math.max((started - span.from) * scale, -2);
  const right = Math.min((finished - span.from) * scale, width + 2);
  const wait = (model.ready.at(id) - span.from) * scale;
  if (kind !== FOLDED && left - wait > 1) {
    // It waited: a thin line from when it was ready.
    context.globalAlpha = 0.45;
    context.fillStyle = place.color;
    const from = Math.max(wait, -2);
    context.fillRect(from, y + height / 2 - 0.5, left - from, 1);
  }
  context.globalAlpha = kind === FOLDED ? 0.45 : 1;
  context.fillStyle = model.failed.has(id) ? palette.bad : place.color;
  const gap = right - left > 4 ? 0.5 : 0;
  context.fillRect(left, y, right - left - gap, height);
  context.globalAlpha = 1;
  const count = model.count.at(id);
  if (kind === LAUNCH && count > 1 && ((finished - started) * scale) / count >= NOTCH)
    notches(context, scene, id, place);
  if (right - left >= WORDS_FROM && height >= 14) {
    context.fillStyle = kind === FOLDED ? palette.fg : palette.onBlock;
    context.font = palette.font;
    context.textBaseline = "middle";
    const room = right - left - 6;
    const words = [blockWords, blockMark].map((said) => said(model, id)).find((said) => wide(said) <= room);
    if (words) context.fillText(words, Math.max(left, 0) + 4, y + height / 2 + 0.5);
  }
}

function notches(context: Context, { model, span, width, palette }: Scene, id: number, place: Place): void {
  const [started, count] = [model.started.at(id), model.count.at(id)];
  const step = (model.finished.at(id) - started) / count;
  context.fillStyle = palette.bg;
  context.globalAlpha = 0.5;
  const first = Math.max(1, Math.ceil((span.from - started) / step));
  for (let at = first; at < count; at += 1) {
    const x = (started + at * step - span.from) * place.scale;
    if (x > width) break;
    context.fillRect(x, place.y + place.height - 5, 1, 5);
  }
  context.globalAlpha = 1;
}

/** A sign of this font is about six pixels wide: measuring each text would cost more than drawing it. */
function wide(words: string): number {
  return words.length * 6;
}

// ── counters ────────────────────────────────────────────────────────────────────────────────────

function paintStrip(context: Context, scene: Scene, row: Row, counter: Counter): void {
  const { palette } = scene;
  const height = row.height - 4;
  const base = row.top + 2 + height;
  const color = palette.ranks[row.rank % palette.ranks.length]!;
  context.globalAlpha = 0.3;
  steps(context, scene, counter, (at) => counter.busy.at(at), { base, height, color });
  context.globalAlpha = 1;
  const pages = counter.pagesTotal;
  if (pages > 0) line(context, scene, counter, (at) => counter.pagesUsed.at(at) / pages, base, height, color);
  let most = 1;
  for (let at = 0; at < counter.queue.size; at += 1) most = Math.max(most, counter.queue.at(at));
  line(context, scene, counter, (at) => counter.queue.at(at) / most, base, height, palette.warn);
}

/** A gauge tells of the time since the one before. */
function steps(
  context: Context,
  scene: Scene,
  counter: Counter,
  value: (at: number) => number,
  { base, height, color }: { base: number; height: number; color: string },
): void {
  context.fillStyle = color;
  for (let at = firstGauge(counter, scene); at < counter.at.size; at += 1) {
    const left = xOf(scene, at === 0 ? counter.at.at(0) : counter.at.at(at - 1));
    if (left > scene.width) return;
    const tall = Math.min(value(at), 1) * height;
    context.fillRect(left, base - tall, Math.max(xOf(scene, counter.at.at(at)) - left, 0.5), tall);
  }
}

function line(
  context: Context,
  scene: Scene,
  counter: Counter,
  value: (at: number) => number,
  base: number,
  height: number,
  color: string,
): void {
  context.strokeStyle = color;
  context.lineWidth = 1.25;
  context.beginPath();
  let [last, begun] = [-Infinity, false];
  for (let at = Math.max(0, firstGauge(counter, scene) - 1); at < counter.at.size; at += 1) {
    const x = xOf(scene, counter.at.at(at));
    if (x - last < 0.5) continue;
    const y = base - Math.min(Math.max(value(at), 0), 1) * height;
    if (begun) context.lineTo(x, y);
    else context.moveTo(x, y);
    [last, begun] = [x, true];
    if (x > scene.width) break;
  }
  context.stroke();
}

function firstGauge(counter: Counter, { span }: Scene): number {
  return lower(counter.at.size, span.from, (at) => counter.at.at(at));
}

// ── over the lanes ──────────────────────────────────────────────────────────────────────────────

function paintMarks(context: Context, scene: Scene): void {
  const { model, palette, width, scroll, height } = scene;
  context.fillStyle = palette.muted;
  const places = new Set(
    model.marks.map((mark) => Math.round(xOf(scene, mark.at))).filter((x) => x >= 0 && x <= width),
  );
  // With many runs, the marks on the axis are enough.
  if (places.size > MOST_LINES) return;
  for (const x of places) {
    for (let y = scroll; y < scroll + height; y += 6) context.fillRect(x, y, 1, 3);
  }
}

/** Middle of a block on the picture; null where its rank is closed. */
function spot(scene: Scene, id: number, at: number): { x: number; y: number } | null {
  const lane = scene.model.laneAt(id);
  const row = scene.rows.list.find((each) => each.kind === "lane" && each.lane === lane);
  return row ? { x: xOf(scene, at), y: row.top + trackPlace(0).top + trackPlace(0).height / 2 } : null;
}

function rankSpot(scene: Scene, rank: number, at: number): { x: number; y: number } | null {
  const row = scene.rows.list.find((each) => each.kind === "rank" && each.rank === rank);
  return row ? { x: xOf(scene, at), y: row.top + row.height / 2 } : null;
}

function paintLinks(context: Context, scene: Scene): void {
  const { model, palette } = scene;
  context.strokeStyle = context.fillStyle = palette.accent;
  context.lineWidth = 1.5;
  for (const { hop, from, to } of scene.links) {
    const end = hop.arrived < 0 ? hop.sent : hop.arrived;
    const a = from === null ? rankSpot(scene, hop.source, hop.sent) : spot(scene, from, model.finished.at(from));
    const b = to === null ? rankSpot(scene, hop.target, end) : spot(scene, to, model.started.at(to));
    if (a && b) arrow(context, a, b);
  }
}

function arrow(context: Context, a: { x: number; y: number }, b: { x: number; y: number }): void {
  const bend = Math.max(16, Math.abs(b.x - a.x) / 2);
  context.beginPath();
  context.moveTo(a.x, a.y);
  context.bezierCurveTo(a.x + bend, a.y, b.x - bend, b.y, b.x, b.y);
  context.stroke();
  context.beginPath();
  context.moveTo(b.x, b.y);
  context.lineTo(b.x - 7, b.y - 4);
  context.lineTo(b.x - 7, b.y + 4);
  context.fill();
}

function paintPath(context: Context, scene: Scene, path: readonly Piece[]): void {
  const { palette } = scene;
  context.strokeStyle = palette.bad;
  context.lineWidth = 2;
  let last: { x: number; y: number } | null = null;
  context.beginPath();
  for (const piece of path) {
    if (piece.block === null) continue;
    const [a, b] = [spot(scene, piece.block, piece.from), spot(scene, piece.block, piece.to)];
    if (!a || !b) continue;
    // Below the words on a block.
    a.y = b.y += trackPlace(0).height / 2;
    if (last) context.lineTo(a.x, a.y);
    else context.moveTo(a.x, a.y);
    context.lineTo(b.x, b.y);
    last = b;
  }
  context.stroke();
}

function paintOutlines(context: Context, scene: Scene): void {
  const { model, palette, selected, hovered } = scene;
  if (selected !== null) {
    context.strokeStyle = palette.accent;
    for (const mate of model.mates(selected)) if (mate !== selected) outline(context, scene, mate, 1);
  }
  for (const [id, width] of [
    [hovered, 1],
    [selected, 2],
  ] as const) {
    if (id === null) continue;
    context.strokeStyle = palette.fg;
    outline(context, scene, id, width);
  }
}

function outline(context: Context, scene: Scene, id: number, line: number): void {
  const { model } = scene;
  const lane = model.laneAt(id);
  const row = scene.rows.list.find((each) => each.kind === "lane" && each.lane === lane);
  if (!row) return;
  const track = lane.tracks.findIndex(({ ids }) => {
    const at = lower(ids.size, model.started.at(id), (index) => model.started.at(ids.at(index)));
    for (let index = at; index < ids.size && model.started.at(ids.at(index)) === model.started.at(id); index += 1)
      if (ids.at(index) === id) return true;
    return false;
  });
  const place = trackPlace(Math.max(track, 0));
  const left = Math.max(xOf(scene, model.started.at(id)), -4);
  const right = Math.min(xOf(scene, model.finished.at(id)), scene.width + 4);
  context.lineWidth = line;
  context.strokeRect(left - 1, row.top + place.top - 1, Math.max(right - left, CELL) + 2, place.height + 2);
}

// ── above the lanes ─────────────────────────────────────────────────────────────────────────────

function paintAxis(context: Context, scene: Scene, times: readonly number[]): void {
  const { palette, width, model } = scene;
  context.fillStyle = palette.bg;
  context.fillRect(0, MAP_HEIGHT, width, AXIS_HEIGHT);
  context.fillStyle = palette.line;
  context.fillRect(0, TOP - 1, width, 1);
  context.font = palette.font;
  context.textBaseline = "middle";
  const step = times.length > 1 ? times[1]! - times[0]! : scene.span.to - scene.span.from;
  const most = Math.max(...times.map(Math.abs), 0);
  for (const at of times) {
    const x = Math.round(xOf(scene, at));
    context.fillStyle = palette.line;
    context.fillRect(x, TOP - 5, 1, 5);
    context.fillStyle = palette.muted;
    const words = scene.wall === null ? showTick(at, step, most) : showClock(scene.wall + at / 1e6, step);
    if (x + 4 + wide(words) <= width) context.fillText(words, x + 4, MAP_HEIGHT + AXIS_HEIGHT / 2);
  }
  context.fillStyle = palette.accent;
  for (const mark of model.marks) {
    const x = xOf(scene, mark.at);
    if (x < -5 || x > width + 5) continue;
    context.beginPath();
    context.moveTo(x - 4, TOP - 7);
    context.lineTo(x + 4, TOP - 7);
    context.lineTo(x, TOP - 1);
    context.fill();
  }
}

function paintMap(context: Context, scene: Scene): void {
  const { palette, width, span, all, density } = scene;
  context.fillStyle = palette.soft;
  context.fillRect(0, 0, width, MAP_HEIGHT);
  context.globalAlpha = 0.6;
  context.fillStyle = palette.muted;
  const cell = width / density.length;
  for (let at = 0; at < density.length; at += 1) {
    const tall = density[at]! * (MAP_HEIGHT - 4);
    if (tall > 0) context.fillRect(at * cell, MAP_HEIGHT - 2 - tall, cell + 0.5, tall);
  }
  context.globalAlpha = 1;
  const scale = width / (all.to - all.from);
  const left = Math.max(0, (span.from - all.from) * scale);
  const right = Math.min(width, (span.to - all.from) * scale);
  context.globalAlpha = 0.55;
  context.fillStyle = palette.bg;
  context.fillRect(0, 0, left, MAP_HEIGHT);
  context.fillRect(right, 0, width - right, MAP_HEIGHT);
  context.globalAlpha = 1;
  context.strokeStyle = palette.accent;
  context.lineWidth = 1;
  context.strokeRect(left + 0.5, 0.5, Math.max(right - left - 1, 2), MAP_HEIGHT - 1);
}

/** How much of each of `cells` pieces of all time the blocks fill, the fullest 1. */
export function densityOf(model: Model, all: Span, cells: number): Float64Array {
  const filled = new Float64Array(cells);
  const scale = cells / (all.to - all.from);
  for (let id = 0; id < model.size; id += 1) {
    const left = (model.started.at(id) - all.from) * scale;
    const right = (model.finished.at(id) - all.from) * scale;
    for (let at = Math.max(0, Math.floor(left)); at < Math.min(cells, right); at += 1)
      filled[at]! += Math.min(right, at + 1) - Math.max(left, at);
  }
  const most = Math.max(...filled, 1e-9);
  for (let at = 0; at < cells; at += 1) filled[at]! /= most;
  return filled;
}

// The ways of wires, as SVG paths. Pure.
import type { Point } from "../shapes/types";

export type Shape = "curved" | "straight";

interface Ends {
  sx: number;
  sy: number;
  tx: number;
  ty: number;
}

export interface Way {
  path: string;
  start: Point;
  /** Where a label may stand. */
  label: Point;
}

const f = (value: number) => Math.round(value * 10) / 10;

export function forward({ sx, sy, tx, ty }: Ends, points: readonly Point[], shape: Shape): Way {
  const stops: Point[] = [[sx, sy], ...points, [tx, ty]];
  const segments = stops.slice(1).map((to, index) => segment(stops[index] as Point, to, shape));
  const middle = Math.floor((stops.length - 1) / 2);
  const [a, b] = [stops[middle] as Point, stops[middle + 1] ?? (stops[middle] as Point)];
  const label: Point = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
  return { path: `M${f(sx)},${f(sy)}${segments.join("")}`, start: [sx, sy], label };
}

function segment([x, y]: Point, [tx, ty]: Point, shape: Shape): string {
  if (shape === "straight") return `L${f(tx)},${f(ty)}`;
  const dx = tx - x;
  const bend = dx >= 0 ? Math.max(dx / 2, Math.min(30, Math.abs(ty - y))) : Math.min(25 * Math.sqrt(-dx), 220);
  return `C${f(x + bend)},${f(y)} ${f(tx - bend)},${f(ty)} ${f(tx)},${f(ty)}`;
}

/** Out to the right, back along `floor`, and in from the left: to the next iteration. */
export function back({ sx, sy, tx, ty }: Ends, floor: number, lane: number): Way & { arrow: Point } {
  const right = sx + 14 + lane * 3;
  const left = tx - 14 - lane * 3;
  const r = 8;
  const path =
    `M${f(sx)},${f(sy)}H${f(right - r)}Q${f(right)},${f(sy)} ${f(right)},${f(sy + r)}` +
    `V${f(floor - r)}Q${f(right)},${f(floor)} ${f(right - r)},${f(floor)}` +
    `H${f(left + r)}Q${f(left)},${f(floor)} ${f(left)},${f(floor - r)}` +
    `V${f(ty + r)}Q${f(left)},${f(ty)} ${f(left + r)},${f(ty)}H${f(tx)}`;
  const middle = (right + left) / 2;
  return { path, start: [sx, sy], label: [middle, floor], arrow: [Math.max(left + 16, middle - 62), floor] };
}

/** Between which stops a new point of a wire belongs: where the way grows least. */
export function slotFor(ends: Ends, points: readonly Point[], at: Point): number {
  const stops: Point[] = [[ends.sx, ends.sy], ...points, [ends.tx, ends.ty]];
  const far = (a: Point, b: Point) => Math.hypot(a[0] - b[0], a[1] - b[1]);
  let best = 0;
  let least = Infinity;
  for (let index = 0; index + 1 < stops.length; index += 1) {
    const [a, b] = [stops[index] as Point, stops[index + 1] as Point];
    const more = far(a, at) + far(at, b) - far(a, b);
    if (more < least) [least, best] = [more, index];
  }
  return best;
}

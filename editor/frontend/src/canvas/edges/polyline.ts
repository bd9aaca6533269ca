// A wire's way as a row of points, to find what is so far along it. Pure.

export interface Polyline {
  /** x, y, x, y, ... */
  points: Float32Array;
  /** Way to each point from the first, in pixels. */
  lengths: Float32Array;
  length: number;
}

const STEPS = 16;

/** Reads the paths that `paths.ts` makes: M, L, H, V, C and Q, absolute. */
export function polyline(path: string): Polyline {
  const points: number[] = [];
  let [x, y] = [0, 0];
  const to = (nx: number, ny: number) => points.push((x = nx), (y = ny));
  for (const [, letter, rest] of path.matchAll(/([MLHVCQ])([^MLHVCQ]*)/g)) {
    const n = (rest?.match(/-?\d+(?:\.\d+)?/g) ?? []).map(Number) as [number, number, number, number, number, number];
    if (letter === "M" || letter === "L") to(n[0], n[1]);
    else if (letter === "H") to(n[0], y);
    else if (letter === "V") to(x, n[0]);
    else if (letter === "Q") bend(x, y, n[0], n[1], n[0], n[1], n[2], n[3], 2, to);
    else bend(x, y, n[0], n[1], n[2], n[3], n[4], n[5], 3, to);
  }
  const lengths = new Float32Array(points.length / 2);
  for (let index = 1; index < lengths.length; index += 1) {
    const dx = points[index * 2]! - points[index * 2 - 2]!;
    const dy = points[index * 2 + 1]! - points[index * 2 - 1]!;
    lengths[index] = lengths[index - 1]! + Math.hypot(dx, dy);
  }
  return { points: new Float32Array(points), lengths, length: lengths.at(-1) ?? 0 };
}

/** The point after `way` pixels. */
export function along({ points, lengths, length }: Polyline, way: number): [number, number] {
  const wanted = Math.max(0, Math.min(length, way));
  let [low, high] = [0, lengths.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (lengths[middle]! <= wanted) low = middle;
    else high = middle;
  }
  const from = lengths[low] ?? 0;
  const span = (lengths[high] ?? 0) - from;
  const share = span > 0 ? (wanted - from) / span : 0;
  const mix = (a: number, b: number) => a + (b - a) * share;
  return [mix(points[low * 2] ?? 0, points[high * 2] ?? 0), mix(points[low * 2 + 1] ?? 0, points[high * 2 + 1] ?? 0)];
}

/** A Bézier curve of the second or third degree; of the second the two middle points are one. */
function bend(
  x0: number,
  y0: number,
  x1: number,
  y1: number,
  x2: number,
  y2: number,
  x3: number,
  y3: number,
  degree: 2 | 3,
  to: (x: number, y: number) => void,
): void {
  for (let step = 1; step <= STEPS; step += 1) {
    const t = step / STEPS;
    const u = 1 - t;
    const at =
      degree === 2
        ? (a: number, b: number, _: number, d: number) => u * u * a + 2 * u * t * b + t * t * d
        : (a: number, b: number, c: number, d: number) =>
            u ** 3 * a + 3 * u * u * t * b + 3 * u * t * t * c + t ** 3 * d;
    to(at(x0, x1, x2, x3), at(y0, y1, y2, y3));
  }
}

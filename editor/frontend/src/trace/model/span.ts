// The piece of time that is shown, and its axis. Microseconds. Pure.

export interface Span {
  from: number;
  to: number;
}

/** Nothing shorter is shown: a few clock ticks. */
export const SHORTEST = 5;

/** `by` > 1: more is shown; `at` stays where it is. */
export function zoomed(span: Span, by: number, at: number, longest: number): Span {
  const length = span.to - span.from;
  const next = Math.min(Math.max(length * by, SHORTEST), Math.max(longest, SHORTEST));
  const share = (at - span.from) / length;
  const from = at - share * next;
  return { from, to: from + next };
}

export function moved(span: Span, by: number): Span {
  return { from: span.from + by, to: span.to + by };
}

/** At least the middle of what is shown lies in what there is. */
export function kept(span: Span, all: Span): Span {
  const middle = (span.from + span.to) / 2;
  const by = middle < all.from ? all.from - middle : middle > all.to ? all.to - middle : 0;
  return by === 0 ? span : moved(span, by);
}

/** All of it, with a little room at both sides. */
export function fitted(all: Span): Span {
  const length = Math.max(all.to - all.from, SHORTEST);
  return { from: all.from - length * 0.01, to: all.from + length * 1.02 };
}

/** So that the piece is in sight: as it is where it already is and isn't tiny. */
export function around(span: Span, piece: Span): Span {
  const length = span.to - span.from;
  const own = Math.max(piece.to - piece.from, SHORTEST);
  const tiny = own < length / 1500;
  if (piece.from >= span.from && piece.to <= span.to && !tiny) return span;
  const next = own > length ? own * 1.5 : tiny ? own * 150 : length;
  const middle = (piece.from + piece.to) / 2;
  return { from: middle - next / 2, to: middle + next / 2 };
}

/** Places of the axis, `room` apart at least as a share of the span: 1, 2 or 5 times a power of ten. */
export function ticks(span: Span, room: number): number[] {
  const least = (span.to - span.from) * room;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * ([1, 2, 5, 10].find((times) => times * power >= least) ?? 10);
  const found: number[] = [];
  for (let at = Math.ceil(span.from / step) * step; at <= span.to; at += step)
    found.push(Math.round(at / step) * step);
  return found;
}

/** A time or a length, with three or four figures: `850 µs`, `12.4 ms`, `1.25 s`, `2:05 min`. */
export function showMicros(micros: number): string {
  const size = Math.abs(micros);
  const sign = micros < 0 ? "−" : "";
  if (size < 999.5) return `${sign}${Number(size.toFixed(size < 10 && size % 1 ? 1 : 0))} µs`;
  if (size < 999_500) return `${sign}${Number((size / 1e3).toPrecision(3))} ms`;
  if (size < 60e6) return `${sign}${Number((size / 1e6).toPrecision(size < 10e6 ? 3 : 4))} s`;
  const seconds = Math.round(size / 1e6);
  return `${sign}${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} min`;
}

/** A point in time, to ten microseconds and better: `70.23 ms`, `1.23456 s`. */
export function showAt(micros: number): string {
  const size = Math.abs(micros);
  const words =
    size < 1e3
      ? `${Math.round(size)} µs`
      : size < 1e6
        ? `${(size / 1e3).toFixed(2)} ms`
        : `${(size / 1e6).toFixed(5)} s`;
  return micros < 0 ? `−${words}` : words;
}

/** Seconds since 1970 as the time of day here; to the thousandth where ticks are closer than a second. */
export function showClock(seconds: number, step: number): string {
  // Tolerance for the rounding of a tick.
  const date = new Date(Math.round(seconds * 1e4) / 10);
  const two = (value: number) => String(value).padStart(2, "0");
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
  return step >= 1e6 ? time : `${time}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** On an axis whose ticks are `step` apart and go up to `most`: as many figures as tell them apart, one unit for all. */
export function showTick(at: number, step: number, most: number): string {
  const [unit, size] =
    most >= 1e6 ? (["s", 1e6] as const) : most >= 1e3 ? (["ms", 1e3] as const) : (["µs", 1] as const);
  const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  return `${(at / size).toFixed(digits)} ${unit}`.replace("-", "−");
}

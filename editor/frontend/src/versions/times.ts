// When something was, in words. Pure.

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
];
const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** Both in seconds since 1970: `2 hours ago`; below a minute `just now`. */
export function ago(then: number, now: number): string {
  const seconds = now - then;
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? [null, 1];
  return unit === null ? "just now" : words.format(-Math.round(seconds / size), unit);
}

/** Seconds since 1970 in the browser's own time zone, to the minute. */
export function exact(then: number): string {
  return new Date(then * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

// Figures, times and counts in words, alike in all panels. Pure.

/** `1 error`, `3 errors`; of nouns that take an s. */
import { strings } from "../strings";

export function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** `2 errors, 1 warning`; empty where there are none of either. */
export function problemCount(errors: number, warnings: number): string {
  return [errors && plural(errors, "error"), warnings && plural(warnings, "warning")].filter(Boolean).join(", ");
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Three figures at most: `27.5 GiB`. */
export function showBytes(bytes: number): string {
  let power = 0;
  let number = Math.abs(bytes);
  while (number >= 1024 && power < UNITS.length - 1) {
    number /= 1024;
    power += 1;
  }
  const digits = power === 0 || number >= 100 ? 0 : 1;
  return `${bytes < 0 ? "−" : ""}${number.toFixed(digits)} ${UNITS[power]}`;
}

/** How long something took: `12 ms`, `1.23 s`, `1 min 30 s`. */
export function showSeconds(seconds: number): string {
  if (seconds > 0 && seconds < 0.00095) return "< 1 ms";
  if (seconds < 0.0995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/** For how long something is so: `12 s`, `4 min`, `3 h`, `2 days`. */
export function showAge(seconds: number): string {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  return seconds < 36 * 3600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}

const SPANS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
];
const spans = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** Both in seconds since 1970: `2 hours ago`; below a minute `just now`. */
export function ago(then: number, now: number): string {
  const seconds = now - then;
  const [unit, size] = SPANS.find(([, size]) => Math.abs(seconds) >= size) ?? [null, 1];
  return unit === null ? strings.ui.justNow : spans.format(-Math.round(seconds / size), unit);
}

const times = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** Seconds since 1970 in the browser's own time zone and manner, to the minute. */
export function showTime(at: number): string {
  return times.format(at * 1000);
}

/** How a loop that a value can end was over. */
export function endWords({ loop, iterations, reason }: { loop: string; iterations: number; reason: string }): string {
  if (reason === "stop") return strings.ui.loopEnded(loop, iterations);
  return reason === "bound"
    ? strings.ui.loopReached(loop, iterations)
    : strings.ui.loopGave(loop, reason, iterations);
}

/** How what a run gave to be played came, for a player that began with the first of it. */
export function playedWords({ seconds, underruns, late }: Record<"seconds" | "underruns" | "late", number>): string {
  const whole = showSeconds(seconds);
  return underruns === 0
    ? strings.ui.playedInTime(whole)
    : strings.ui.playedLate(whole, plural(underruns, "interruption"), showSeconds(late));
}

/** Explains what the time of a device loop covers. */
export function insideWords(nodes: readonly string[], spans = false): string {
  const inside =
    nodes.length > 1
      ? strings.ui.thisIsADeviceLoop(nodes.join(", "))
      : strings.ui.thisIsADeviceLoopWithValue(nodes[0] ?? "nothing");
  return spans ? strings.ui.itHasPartsOnOther(inside) : inside;
}

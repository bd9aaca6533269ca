// A node's and a loop's activity in few letters, and in words. Pure.
import type { RankGauge } from "../../messages/frames";
import type { Activity, Figure, LoopActivity } from "../../telemetry/shown";
import { plural } from "../../ui/words";
import { strings } from "../../strings";

type Figures = Pick<Activity, "rate" | "ms" | "batch"> & {
  iteration: readonly number[] | null;
  figures?: readonly Figure[];
};

/** In the order of what matters: a narrow node shows the first ones. `used`: share of the pages; null: has none. */
export function figuresOf(
  { iteration, rate, ms, batch, figures = [] }: Figures,
  used: number | null = null,
): string[] {
  const parts = [
    iteration?.length ? `#${iteration.map((index) => index + 1).join(".")}` : "",
    rate > 0 ? `${few(rate)}/s` : "",
    ms > 0 ? strings.canvas.ms(few(ms)) : "",
    batch > 1 ? `×${batch}` : "",
    used === null || used < 0.005 ? "" : strings.canvas.kv(Math.round(used * 100)),
    ...figures.map(({ name, mean }) => `${few(mean)} ${words(name)}`),
  ];
  return parts.filter(Boolean);
}

/** A line each. */
export function tellingOf(activity: Activity, used: number | null = null): string {
  const { iteration, calls, kept, rate, ms, queuedMs, batch, ranks, figures } = activity;
  const lines = [
    iteration?.length ? strings.canvas.iteration(iteration.map((index) => index + 1).join(" . ")) : "",
    `${Math.round(calls).toLocaleString("en")} ${calls === 1 ? "call" : "calls"}${rate > 0 ? strings.canvas.aSecond(few(rate)) : ""}`,
    kept > 0 ? strings.canvas.keptOfCalls(plural(kept, "call")) : "",
    ms > 0 ? strings.canvas.msOnTheDevice(few(ms)) : "",
    queuedMs >= 0.05 ? strings.canvas.waitedMsForItsBatch(few(queuedMs)) : "",
    batch > 1 ? strings.canvas.inABatch(plural(batch, "call")) : "",
    ranks.length ? strings.canvas.onRank([...ranks].sort((a, b) => a - b).join(", ")) : "",
    used === null ? "" : strings.canvas.ofTheKvPages(Math.round(used * 100)),
    ...figures.map(({ name, mean, most }) => strings.canvas.onAverage(words(name), few(mean), `${most}`)),
  ];
  return lines.filter(Boolean).join("\n");
}

/** Share of the fullest of these ranks; null: none of them has pages. */
export function pagesUsed(ranks: readonly number[], gauges: ReadonlyMap<number, RankGauge>): number | null {
  let most: number | null = null;
  for (const rank of ranks) {
    const gauge = gauges.get(rank);
    if (gauge && gauge.pages_total > 0) most = Math.max(most ?? 0, 1 - gauge.pages_free / gauge.pages_total);
  }
  return most;
}

/** `17 / 50`; of several runs `4–17 / 50`. `share`: of the way, for the bar; 0 where nobody knows how far it is. */
export function loopWords({ state, low, high, times, runs, ms }: LoopActivity, map = false) {
  const at = low === high ? `${low}` : `${low}–${high}`;
  const end = times === null ? "" : ` / ${times}`;
  const done = map
    ? strings.canvas.itemsAtWork(at)
    : strings.canvas.ofIterations(at, times ?? strings.canvas.anUnknownNumber);
  const many = runs > 1 ? strings.canvas.runs(runs) : "";
  const told = ms > 0 ? strings.canvas.msAnIteration(few(ms)) : "";
  const ending = { running: "", done: ", ended", error: strings.canvas.endedByAnError }[state];
  return {
    short: `${at}${end}${many}`,
    long: `${done}${ending}${runs > 1 ? strings.canvas.inRuns(runs) : ""}${told}`,
    share: times ? Math.min(1, high / times) : 0,
  };
}

/** An operator's own name of a figure, `distinct_experts`. */
function words(name: string): string {
  return name.replaceAll("_", " ");
}

function few(value: number): string {
  return value < 10 ? value.toFixed(1) : `${Math.round(value)}`;
}

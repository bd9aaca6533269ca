import { expect, it } from "vitest";
import { figuresOf, loopWords, pagesUsed, tellingOf } from "../../src/canvas/nodes/figures";
import type { RankGauge } from "../../src/messages/frames";
import type { Activity } from "../../src/telemetry/shown";

const activity = {
  state: "running",
  iteration: [2, 16],
  calls: 1200,
  rate: 41.6,
  ms: 3.14,
  queuedMs: 0.8,
  batch: 4,
  ranks: [2, 0],
  figures: [],
} as unknown as Activity;

it("a node says where it is, how fast and how long, and leaves out what is nothing", () => {
  expect(figuresOf(activity, 0.427)).toEqual(["#3.17", "42/s", "3.1 ms", "×4", "KV 43%"]);
  expect(figuresOf({ iteration: [], rate: 0, ms: 0, batch: 1 }, 0.001)).toEqual([]);
  expect(tellingOf(activity)).toBe(
    "iteration 3 . 17\n1,200 calls, 42 a second\n3.1 ms on the device\nwaited 0.8 ms for its batch\n4 calls in a batch\non rank 0, 2",
  );
  expect(tellingOf({ ...activity, iteration: [], calls: 1, rate: 0, ms: 0, queuedMs: 0, batch: 1, ranks: [] })).toBe(
    "1 call",
  );
});

it("a node shows figures of its own, by the names that its operator gives them", () => {
  const counted = { ...activity, figures: [{ name: "distinct_experts", mean: 11.5, most: 23 }] };
  expect(figuresOf(counted).at(-1)).toBe("12 distinct experts");
  expect(tellingOf(counted).split("\n").at(-1)).toBe("distinct experts: 12 on average, at most 23");
});

it("pages are those of the fullest rank", () => {
  const gauge = (free: number, total: number) => ({ pages_free: free, pages_total: total }) as RankGauge;
  const gauges = new Map([
    [0, gauge(75, 100)],
    [1, gauge(10, 100)],
    [2, gauge(0, 0)],
  ]);
  expect(pagesUsed([0, 1], gauges)).toBeCloseTo(0.9);
  expect(pagesUsed([0], gauges)).toBeCloseTo(0.25);
  expect([pagesUsed([2], gauges), pagesUsed([7], gauges)]).toEqual([null, null]);
});

it("a loop says how far its runs are, of how many where that is known", () => {
  const loop = { state: "running", low: 17, high: 17, times: 50, runs: 1, ms: 0 } as const;
  expect(loopWords(loop)).toEqual({ short: "17 / 50", long: "17 of 50 iterations", share: 0.34 });
  expect(loopWords({ ...loop, low: 4, runs: 3, ms: 12.2 })).toEqual({
    short: "4–17 / 50 · 3 runs",
    long: "4–17 of 50 iterations, in 3 runs\n12 ms an iteration",
    share: 0.34,
  });
  expect(loopWords({ ...loop, times: null, state: "error", runs: 0 })).toMatchObject({
    short: "17",
    long: "17 of an unknown number of iterations, ended by an error",
    share: 0,
  });
  expect(loopWords({ ...loop, times: null, low: 4 }, true)).toEqual({
    short: "4–17",
    long: "4–17 items begun",
    share: 0,
  });
});

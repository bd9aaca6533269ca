// Figures that operators publish, as nodes show them.
import { expect, it } from "vitest";
import type { RankGauge, TelemetryEvent } from "../../src/messages/frames";
import { FLUSH_MS } from "../../src/telemetry/flush";
import { useKey } from "../../src/telemetry/calls";
import { ofUse } from "../../src/telemetry/shown";
import { activity, frame, made, phase } from "./told";

const gauge = (rank: number, count: number, total: number, most: number): TelemetryEvent =>
  ({
    type: "rank",
    rank,
    figures: [{ nodes: ["llm", "view"], name: "distinct_experts", count, total, most }],
  }) as Partial<RankGauge> as RankGauge;

it("a node shows the newest figure of each of its ranks, together", () => {
  const { time, store } = made();
  store.take(frame(phase("started"), activity(), gauge(0, 2, 20, 15)));
  store.take(frame(gauge(0, 4, 28, 9), gauge(1, 4, 12, 5)));
  time.pass(FLUSH_MS);
  const wanted = [{ name: "distinct_experts", mean: 5, most: 9 }];
  expect(store.get("llm")?.figures).toEqual(wanted);
  expect(store.get("view")?.figures).toEqual(wanted);
  const use = ofUse(store.get("llm"), store.get(useKey("decode", "llm")), { walk: "decode", use: "llm" }, false);
  expect(use?.figures).toEqual(wanted);
});

it("the next runs begin without the figures of the last", () => {
  const { time, store } = made();
  store.take(frame(phase("started"), gauge(0, 2, 20, 15)));
  store.take(frame(phase("finished"), phase("started", null, "r2")));
  time.pass(FLUSH_MS);
  expect(store.get("llm")?.figures).toEqual([]);
});

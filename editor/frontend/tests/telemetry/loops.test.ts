import { describe, expect, it, vi } from "vitest";
import { FLUSH_MS } from "../../src/telemetry/flush";
import type { TelemetryEvent } from "../../src/messages/frames";
import type { GraphDocument } from "../../src/document/types";
import { made, frame, activity, looping, ended, phase, work } from "./told";

describe("loops", () => {
  it("show where their run is, of how many, from the indices of its calls", () => {
    const { time, store } = made();
    const changed = vi.fn();
    store.watchLoop("decode", "words", changed);
    store.take(frame(activity({ iteration: [16] }), activity({ node: "mtp", iteration: [16, 1] })));
    time.screen();
    expect(changed).toHaveBeenCalledTimes(1);
    expect(store.loop("decode", "words")).toEqual({ state: "running", low: 17, high: 17, times: 50, runs: 1, ms: 0 });
    expect(store.loop("decode", "parts")).toMatchObject({ low: 2, times: 3 });
    store.take(frame(phase("finished")));
    time.screen();
    expect(store.loop("decode", "words")).toMatchObject({ state: "done", low: 17, times: 50, runs: 0 });
  });

  it("does not go back with a use that is behind, and does with one that goes around anew", () => {
    const { time, store } = made();
    const words = () => (time.pass(FLUSH_MS), store.loop("decode", "words")?.low);
    store.take(frame(activity({ iteration: [7] }), activity({ use: "mtp", iteration: [5, 2] })));
    expect(words()).toBe(8);
    expect(store.loop("decode", "parts")?.low).toBe(3);
    store.take(frame(activity({ use: "mtp", iteration: [6, 0] })));
    expect(words()).toBe(8);
    expect(store.loop("decode", "parts")?.low).toBe(1);
    store.take(frame(activity({ iteration: [0] })));
    expect(words()).toBe(1);
  });

  it("counts how many items of a map are begun, in whatever order their calls come", () => {
    const walk = (item: object) => ({ body: [{ loop: "rounds", times: "3", body: [item] }] });
    const graph = {
      walks: { decode: walk({ map: "x.y", as: "words", bound: "9", width: "4", body: ["llm", "mtp"] }) },
    };
    const { time, store } = made(graph as unknown as GraphDocument);
    const words = () => (time.pass(FLUSH_MS), store.loop("decode", "words")?.low);
    const called = (iteration: number[], use = "llm") => store.take(frame(activity({ use, node: use, iteration })));
    called([0, 0]);
    called([0, 3]);
    expect(words()).toBe(4);
    called([0, 1]);
    called([0, 0], "mtp");
    expect(words()).toBe(4);
    called([0, 5]);
    expect(words()).toBe(6);
    called([1, 2]);
    expect(words()).toBe(3);
    expect(store.loop("decode", "words")).toMatchObject({ times: null, state: "running" });
    store.take(frame(phase("finished")));
    time.pass(FLUSH_MS);
    expect(store.loop("decode", "words")).toMatchObject({ state: "done", low: 3, runs: 0 });
  });

  it("counts a loop's last calls where they are told after the run's end, by the rank that made them", () => {
    const { time, store } = made();
    store.take(frame(activity({ iteration: [48] }), phase("finished"), activity({ iteration: [49] })));
    time.pass(FLUSH_MS);
    expect(store.loop("decode", "words")).toMatchObject({ state: "done", low: 50, high: 50, runs: 0 });
    store.take(
      frame(activity({ run: "r2", iteration: [3] }), phase("finished", null, "r2"), activity({ iteration: [9] })),
    );
    time.pass(FLUSH_MS);
    expect(store.loop("decode", "words")).toMatchObject({ low: 4, high: 4 });
  });

  it("show how far runs side by side are apart, and the end of few runs alone", () => {
    const { time, store } = made();
    const runs = ["r1", "r2"];
    const two = looping({
      runs,
      walks: ["decode", "decode"],
      iterations: [[3], [40]],
      calls: 8,
      busy: 0.1,
      batch: 2,
    });
    store.take(frame(two));
    time.screen();
    const words = () => store.loop("decode", "words");
    expect(words()).toEqual({ state: "running", low: 3, high: 40, times: 50, runs: 2, ms: 25 });
    expect(store.get("llm")).toMatchObject({ state: "running", batch: 2, calls: 43, ms: 25 });
    store.take(frame(ended(50, "until", "r2")));
    time.pass(FLUSH_MS);
    expect(words()).toMatchObject({ state: "running", low: 3, high: 3, runs: 1 });
    store.take(frame(...Array.from({ length: 5 }, (_, index) => looping({ runs: [`more${index}`] }))));
    time.pass(FLUSH_MS);
    expect(words()).toMatchObject({ low: 3, high: 4, runs: 6, times: null });
  });

  it("have their time to themselves where several nodes share them", () => {
    const { time, store } = made();
    store.take(frame(activity({ calls: 1, busy: 0.04 }), looping({ nodes: ["llm", "head"] })));
    time.screen();
    expect(store.get("llm")).toMatchObject({ ms: 0, state: "running" });
    store.take(frame(ended(4, "times", "r1", work(["llm", "head"], 4, 0.02))));
    time.pass(FLUSH_MS);
    expect(store.get("llm")).toMatchObject({ ms: 0, calls: 5 });
    expect(store.get("head")).toMatchObject({ ms: 0, calls: 4 });
    expect(store.loop("decode", "words")).toMatchObject({ ms: 5, high: 4, state: "done" });
  });

  it("are the time of a node that they call alone, and of none that waits for other ranks", () => {
    for (const [spans, ms] of [
      [false, 5],
      [true, 0],
    ] as const) {
      const { time, store } = made();
      store.take(frame(looping({ spans })));
      time.screen();
      expect(store.get("llm")).toMatchObject({ ms, calls: 4 });
      store.take(frame(ended(8, "times", "r1", work(["llm"], 8, 0.04, spans))));
      time.pass(FLUSH_MS);
      expect(store.get("llm")).toMatchObject({ ms, calls: 8 });
      expect(store.loop("decode", "words")).toMatchObject({ ms: 5 });
    }
  });

  it("say that an error ended them", () => {
    const { time, store } = made();
    store.take(frame(looping(), ended(4, "error")));
    time.screen();
    expect(store.loop("decode", "words")?.state).toBe("error");
  });

  it("are told by their launches alike, times of nodes that share one left out", () => {
    const { time, store } = made();
    const launch: TelemetryEvent = {
      type: "launch",
      rank: 1,
      number: 1,
      loop: "parts",
      nodes: ["mtp", "head"],
      uses: ["mtp", "head"],
      count: 3,
      runs: ["r1"],
      walks: ["decode"],
      steps: [0],
      outer: [[7]],
      first: [0],
      ready: [0],
      taken: 0,
      launched: 0,
      started: 1,
      finished: 1.03,
      pages_free: 0,
      spans: false,
    };
    store.take(frame(launch, { ...launch, outer: [[8]], nodes: ["mtp"], uses: ["mtp"] }));
    time.screen();
    expect(store.loop("decode", "parts")).toMatchObject({ low: 3, times: 3, state: "running" });
    expect(store.loop("decode", "parts")?.ms).toBeCloseTo(10);
    expect(store.get("head")).toMatchObject({ calls: 3, ms: 0, iteration: [7, 2], ranks: [1] });
    expect(store.get("mtp")?.calls).toBe(6);
    expect(store.get("mtp")?.ms).toBeCloseTo(10);
  });
});

import { describe, expect, it } from "vitest";
import type { RunShown } from "../../src/messages/answers";
import { useKey } from "../../src/telemetry/calls";
import { FLUSH_MS } from "../../src/telemetry/flush";
import type { ForwardEvent, TelemetryEvent } from "../../src/messages/frames";
import { branchState, ofUse } from "../../src/telemetry/shown";
import { made, frame, activity, looping, phase } from "./told";

describe("level full", () => {
  const forward = (fields: Partial<ForwardEvent> = {}): TelemetryEvent => ({
    type: "forward",
    rank: 2,
    number: 1,
    runs: ["r1", "r2", "r1"],
    walks: ["decode", "decode", "paint"],
    nodes: ["llm", "llm", "vae"],
    uses: ["llm", "llm", "vae"],
    steps: [0, 0, 1],
    iterations: [[3], [9], []],
    ready: [0.98, 1, 0.5],
    taken: 1,
    launched: 1.001,
    started: 1.002,
    finished: 1.012,
    pages_free: 3,
    failed: [],
    ...fields,
  });

  it("counts the rows of a forward as calls, each with its batch, its time and its wait", () => {
    const { time, store } = made();
    store.take(frame(forward()));
    time.screen();
    const llm = store.get("llm");
    expect(llm).toMatchObject({ state: "running", calls: 2, batch: 2, ranks: [2], iteration: [9] });
    expect(llm?.ms).toBeCloseTo(10);
    expect(llm?.queuedMs).toBeCloseTo(12);
    expect(store.get("vae")).toMatchObject({ calls: 1, batch: 1, iteration: [] });
    expect(store.loop("decode", "words")).toMatchObject({ low: 4, high: 10 });
  });

  it("tells two uses of a node apart, in one batch as in a loop of the device", () => {
    const { time, store } = made();
    store.take(frame(forward({ uses: ["llm", "again", "vae"] })));
    time.screen();
    const calls = (key: string) => store.get(useKey("decode", key))?.calls;
    expect([calls("llm"), calls("again"), store.get("llm")?.calls]).toEqual([1, 1, 2]);
    expect([calls("vae"), store.get(useKey("paint", "vae"))?.state]).toEqual([undefined, "running"]);
    store.take(frame(looping({ runs: ["r3"], nodes: ["llm"], uses: ["llm", "again"], iterations: [[7]] })));
    time.pass(FLUSH_MS);
    expect([calls("llm"), calls("again"), store.get("llm")?.calls]).toEqual([8, 8, 9]);
  });

  it("shows the row that failed at its node at once", () => {
    const { time, store } = made();
    store.take(frame(forward({ failed: [2] })));
    time.screen();
    expect([store.get("vae")?.state, store.get("llm")?.state]).toEqual(["error", "running"]);
    expect(store.get("vae")?.failure).toMatchObject({ run: "r1" });
  });
});

it("a use on its canvas has its own figures, and its node's errors, previews and waiting", () => {
  const { time, store } = made();
  const at = (walk: string, use: string) => {
    const own = store.get(useKey(walk, use));
    return ofUse(store.get("llm"), own, { walk, use }, store.isFrozen());
  };
  store.take(frame(phase("started")));
  time.screen();
  expect([at("decode", "llm")?.state, at("decode", "again")?.state]).toEqual(["queued", "queued"]);
  store.take(frame(activity({ use: "again" })));
  time.screen();
  expect(at("decode", "again")).toMatchObject({ state: "running", calls: 2 });
  expect(at("decode", "llm")).toMatchObject({ state: "idle", calls: 0 });
  store.picture("llm", "blob:1");
  store.fail("r1", { code: "node_error", message: "no room", node: "llm", walk: "decode", use: "llm" });
  time.screen();
  expect(at("decode", "llm")).toMatchObject({ state: "error", error: "no room", preview: { url: "blob:1" } });
  expect(at("decode", "again")).toMatchObject({ state: "running", failure: null });
  expect(at("paint", "llm")).toMatchObject({ state: "idle", failure: null });
  const times = [{ node: "llm", rank: 0, calls: 3, busy: 0.3 }];
  store.showRun({ id: "old", times, error: null } as unknown as RunShown);
  time.screen();
  expect(at("decode", "llm")).toMatchObject({ state: "done", calls: 3 });
});

describe("a branch of a choice", () => {
  it("was taken where one of its uses was called, passed by where only others were", () => {
    const { time, store } = made();
    store.take(frame(activity({ run: "r1", walk: "w", node: "draw", use: "draw", calls: 1 })));
    time.screen();
    const of = (...uses: string[]) => uses.map((use) => store.get(useKey("w", use)));
    expect(branchState(of("draw", "tidy"), of("photo"))).toBe("taken");
    expect(branchState(of("photo"), of("draw", "tidy"))).toBe("passed");
    expect(branchState(of("photo"), of("tidy"))).toBe("");
  });
});

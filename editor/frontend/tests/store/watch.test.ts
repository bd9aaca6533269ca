import { describe, expect, it, vi } from "vitest";
import { ApiError, type Request } from "../../src/api/client";
import { breakpointsAt, isOf, sameCall, tapsAt, WatchStore } from "../../src/store/watch";
import type { BreakShown, Frame, HeldCall, SampleEvent, TapShown, WatchShown } from "../../src/messages/frames";

const TAP: TapShown = {
  id: "t1",
  walk: "draw",
  source: "dit.latents",
  to: "",
  interval: 0.25,
  preview: true,
  run: null,
  expires_at: 9,
  inside: true,
};
const BREAK: BreakShown = {
  id: "b1",
  walk: "draw",
  use: "vae",
  iteration: null,
  run: null,
  expires_at: 9,
  inside: false,
};
const HELD: HeldCall = { rank: 0, walk: "draw", use: "vae", node: "vae", step: 1, iteration: [], loop: "" };

function sample(fields: Partial<SampleEvent> = {}): SampleEvent {
  return {
    type: "sample",
    why: "tap",
    tap: "t1",
    run: "r1",
    rank: 0,
    walk: "draw",
    step: 1,
    source: "dit.latents",
    iteration: [3],
    at: 10,
    modality: "latents",
    dtype: "bfloat16",
    shape: [16, 4],
    statistics: null,
    preview: null,
    digest: "",
    picked: [],
    ...fields,
  };
}

function made(watch: Partial<WatchShown> = {}, running: unknown[] = []) {
  const asked: { path: string; method: string; body: unknown }[] = [];
  const answers = new Map<string, unknown>([
    ["GET /api/v1/deployments/shapes/watch", { level: "summary", taps: [], breakpoints: [], ...watch }],
    ["GET /api/v1/runs?deployment=shapes&state=running", running],
  ]);
  let listener: ((frame: Frame) => void) | null = null;
  let seq = 0;
  const frames: (() => void)[] = [];
  const store = new WatchStore("shapes", {
    call: async <T>(path: string, { method = "GET", body }: Request = {}) => {
      asked.push({ path, method, body });
      const answer = answers.get(`${method} ${path}`);
      if (answer instanceof ApiError) throw answer;
      return { value: (await answer) as T, etag: null, sources: new Map() };
    },
    subscribe: (take) => {
      listener = take;
      return () => void (listener = null);
    },
    frame: (run) => void frames.push(run),
  });
  const tell = (frame: object) => {
    seq += 1;
    listener?.({ deployment: "shapes", seq, ...frame } as Frame);
  };
  const events = (...all: SampleEvent[]) => tell({ type: "events", source: "rank 0.0", wall: 1000, events: all });
  const screen = () => frames.splice(0).forEach((run) => run());
  return { store, asked, answers, tell, events, screen, listens: () => listener !== null, frames };
}

describe("what is wanted", () => {
  it("is asked for while somebody watches, and follows frames", async () => {
    const { store, tell, listens } = made({ taps: [TAP] });
    const changed = vi.fn();
    expect(listens()).toBe(false);
    const leave = store.watch(changed);
    await vi.waitFor(() => expect(store.get().level).toBe("summary"));
    expect(store.get().taps).toEqual([TAP]);
    tell({ type: "watch", level: "full", taps: [], breakpoints: [BREAK] });
    expect(store.get()).toMatchObject({ level: "full", taps: [], breakpoints: [BREAK] });
    tell({ type: "watch", deployment: "other", level: "off", taps: [], breakpoints: [] });
    expect(store.get().level).toBe("full");
    expect(changed.mock.calls.length).toBeGreaterThanOrEqual(2);
    leave();
    leave();
    expect(listens()).toBe(false);
  });

  it("is not set back by an answer that a frame has overtaken", async () => {
    const { store, answers, tell } = made();
    let answer: (value: WatchShown) => void = () => undefined;
    answers.set("GET /api/v1/deployments/shapes/watch", new Promise((done) => (answer = done)));
    store.watch(() => undefined);
    tell({ type: "watch", level: "full", taps: [TAP], breakpoints: [] });
    answer({ level: "summary", taps: [], breakpoints: [] });
    await Promise.resolve();
    await Promise.resolve();
    expect(store.get()).toMatchObject({ level: "full", taps: [TAP] });
  });

  it("is asked for anew after a gap, and says why where the service does not tell", async () => {
    const { store, answers, tell, asked } = made();
    store.watch(() => undefined);
    await vi.waitFor(() => expect(asked).toHaveLength(2));
    answers.set(
      "GET /api/v1/deployments/shapes/watch",
      new ApiError(404, "not_found", "there is no such deployment"),
    );
    tell({ type: "gap", count: 3 });
    await vi.waitFor(() => expect(store.get().problem).toBe("there is no such deployment"));
  });

  it("shows at once what was asked for, and takes what is gone already for removed", async () => {
    const { store, answers, asked } = made();
    answers.set("POST /api/v1/deployments/shapes/taps", TAP);
    answers.set("POST /api/v1/deployments/shapes/breakpoints", BREAK);
    answers.set("DELETE /api/v1/deployments/shapes/taps/t1", new ApiError(404, "not_found", "gone"));
    answers.set("DELETE /api/v1/deployments/shapes/breakpoints/b1", new ApiError(500, "broken", "it broke"));
    await store.addTap({ walk: "draw", source: "dit.latents" });
    await store.addBreakpoint({ walk: "draw", use: "vae" });
    expect(tapsAt(store.get(), "draw", "dit.latents")).toEqual([TAP]);
    expect(tapsAt(store.get(), "draw", "dit.other")).toEqual([]);
    expect(breakpointsAt(store.get(), "draw", "vae")).toEqual([BREAK]);
    await store.removeTaps();
    expect(store.get().taps).toEqual([]);
    await expect(store.removeBreakpoint("b1")).rejects.toThrow("it broke");
    expect(store.get().breakpoints).toEqual([BREAK]);
    await store.setLevel("off");
    expect(store.get().level).toBe("off");
    expect(asked.at(-1)).toEqual({
      path: "/api/v1/deployments/shapes/watch/level",
      method: "PUT",
      body: { level: "off" },
    });
  });
});

describe("samples", () => {
  it("are kept by tap, newest first, and told with the next frame of the screen, once", () => {
    const { store, events, screen, frames } = made();
    const changed = vi.fn();
    store.watchSamples("t1", changed);
    events(sample(), sample({ iteration: [4] }), sample({ tap: "t2" }), sample({ why: "record", tap: "" }));
    expect(changed).not.toHaveBeenCalled();
    expect(frames).toHaveLength(1);
    screen();
    expect(changed).toHaveBeenCalledTimes(1);
    expect(store.samples("t1").map(({ sample: one, at }) => [one.iteration[0], at])).toEqual([
      [4, 1010],
      [3, 1010],
    ]);
    expect(store.samples("t2")).toHaveLength(1);
    for (let count = 0; count < 100; count += 1) events(sample({ iteration: [count] }));
    expect(store.samples("t1")).toHaveLength(24);
    expect(store.samples("t1")[0]?.sample.iteration).toEqual([99]);
  });

  it("go with their tap", () => {
    const { store, events, tell } = made();
    store.watch(() => undefined);
    events(sample(), sample({ tap: "t2" }));
    tell({ type: "watch", level: "summary", taps: [{ ...TAP, id: "t2" }], breakpoints: [] });
    expect([store.samples("t1").length, store.samples("t2").length]).toEqual([0, 1]);
  });
});

describe("paused runs", () => {
  it("are those that the service and its frames tell, until they go on or end", async () => {
    const { store, tell } = made({}, [
      { id: "r0", paused: { held: [HELD], breakpoint: "b1" } },
      { id: "r9", paused: null },
    ]);
    store.watch(() => undefined);
    await vi.waitFor(() => expect(Object.keys(store.get().paused)).toEqual(["r0"]));
    tell({ type: "paused", run: "r1", held: [HELD], breakpoint: "" });
    expect(store.get().paused["r1"]).toEqual({ run: "r1", held: [HELD], breakpoint: "" });
    tell({ type: "resumed", run: "r0" });
    tell({ type: "run", run: "r1", task: "draw", state: "done", seconds: 1 });
    expect(store.get().paused).toEqual({});
  });

  it("keep what was looked at of the calls that are held, or may be held next, and forget those let go", () => {
    const { store, events, tell } = made();
    store.watch(() => undefined);
    const held: Partial<SampleEvent> = { why: "held", tap: "", iteration: [] as number[] };
    const next: HeldCall = { ...HELD, use: "encode" };
    tell({ type: "paused", run: "r1", held: [HELD], breakpoint: "" });
    events(sample({ ...held, source: "vae.latents" }), sample({ ...held, source: "encode.pixels" }));
    expect(store.held("r1")).toHaveLength(2);
    tell({ type: "paused", run: "r1", held: [HELD, next], breakpoint: "" });
    expect(store.held("r1")).toHaveLength(2);
    tell({ type: "paused", run: "r1", held: [next], breakpoint: "" });
    expect(store.held("r1").map(({ sample: one }) => one.source)).toEqual(["encode.pixels"]);
    tell({ type: "resumed", run: "r1" });
    expect(store.held("r1")).toEqual([]);
  });

  it("are steered by what is held", async () => {
    const { store, asked } = made();
    await store.steer("r1", "step", HELD);
    expect(asked).toEqual([{ path: "/api/v1/runs/r1/steer", method: "POST", body: { action: "step", call: HELD } }]);
    expect(sameCall(HELD, { ...HELD })).toBe(true);
    expect(sameCall(HELD, { ...HELD, iteration: [1] })).toBe(false);
    expect(isOf(sample({ source: "vae.x", iteration: [] }), HELD)).toBe(true);
    expect(isOf(sample({ source: "vae.x", iteration: [2] }), HELD)).toBe(false);
  });
});

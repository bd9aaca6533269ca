import { describe, expect, it, vi } from "vitest";
import type { RunShown } from "../../src/messages/answers";
import { FLUSH_MS } from "../../src/telemetry/flush";
import type { Frame, TelemetryEvent } from "../../src/messages/frames";
import { NodeStore } from "../../src/telemetry/nodes";
import { Time, made, frame, activity, looping, ended, phase } from "./told";

describe("states", () => {
  it("shows a node of a loop on the device as running until its calls are told, or its run has ended", () => {
    const { time, store } = made();
    store.watch("llm", () => undefined);
    const state = () => [store.get("llm")?.state, store.get("llm")?.calls];
    store.take(frame(looping({ iterations: [[10]] })));
    time.screen();
    for (let tick = 0; tick < 900; tick += 1) time.pass(FLUSH_MS);
    expect(state()).toEqual(["running", 10]);
    store.take(frame(looping({ iterations: [[40]] }), ended(40)));
    time.pass(FLUSH_MS);
    expect(state()).toEqual(["running", 40]);
    store.take(frame(activity({ calls: 40, busy: 0.4, iteration: [39] })));
    for (let tick = 0; tick < 40; tick += 1) time.pass(FLUSH_MS);
    expect([...state(), store.get("llm")?.ms]).toEqual(["done", 40, 10]);
    expect(store.loop("decode", "words")).toMatchObject({ state: "done", low: 40, high: 40, times: 50 });
    store.take(frame(looping({ iterations: [[5]] }), phase("finished"), looping({ iterations: [[6]] })));
    time.pass(FLUSH_MS);
    time.screen();
    expect(state()).toEqual(["done", 40]);
  });

  it("shows a node as running with the next frame of the screen, and as done once nothing is heard of it", () => {
    const { time, store } = made();
    const changed = vi.fn();
    store.watch("llm", changed);
    store.take(frame(activity()));
    expect(changed).not.toHaveBeenCalled();
    time.screen();
    expect(changed).toHaveBeenCalledTimes(1);
    expect(store.isRunning("llm")).toBe(true);
    expect(store.get("llm")).toMatchObject({ state: "running", calls: 2, ms: 10, iteration: [3], ranks: [0] });
    for (let tick = 0; tick < 20; tick += 1) time.pass(FLUSH_MS);
    expect(store.get("llm")).toMatchObject({ state: "done", rate: 0, calls: 2 });
    time.screen();
    time.pass(1000);
    time.screen();
    expect(time.waiting).toBe(0);
  });

  it("shows a node that was not run as kept, and as done where some of its calls were made", () => {
    const { time, store } = made();
    const kept = (at: number): TelemetryEvent => ({
      type: "kept", run: "r1", rank: 0, walk: "decode", node: "llm", use: "llm", step: 0, iteration: [at], at: 1,
    }); // prettier-ignore
    const shown = () => (time.screen(), time.pass(FLUSH_MS), [store.get("llm")?.state, store.get("llm")?.kept]);
    store.take(frame(phase("started"), kept(0), kept(1)));
    expect(shown()).toEqual(["kept", 2]);
    expect(store.get("llm")).toMatchObject({ calls: 2, ms: 0, iteration: [1] });
    store.take(frame(phase("finished")));
    expect(shown()).toEqual(["kept", 2]);
    // The next run makes one of its calls.
    store.take(frame(phase("started", null, "r2"), activity({ run: "r2", calls: 1, iteration: [0] })));
    store.take(frame({ ...kept(1), run: "r2" } as TelemetryEvent));
    expect(shown()).toEqual(["running", 1]);
    store.take(frame(phase("finished", null, "r2")));
    expect(shown()).toEqual(["done", 1]);
  });

  it("shows the nodes of a finished run that were kept", () => {
    const { time, store } = made();
    const row = (node: string, calls: number, kept: number) => ({ node, rank: 0, calls, busy: 0.1, queued: 0, kept });
    const times = [row("llm", 3, 3), row("vae", 3, 2)];
    store.showRun({ id: "r1", times, error: null } as unknown as RunShown);
    time.screen();
    expect(["llm", "vae"].map((node) => store.get(node)?.state)).toEqual(["kept", "done"]);
  });

  it("keeps a node of long calls running between its packets", () => {
    const { time, store } = made();
    store.take(frame(activity({ calls: 1, busy: 2 })));
    for (let tick = 0; tick < 60; tick += 1) time.pass(FLUSH_MS);
    expect(store.isRunning("llm")).toBe(true);
  });

  it("shows what a run will use as queued, and settles all at the run's end", () => {
    const { time, store } = made();
    store.take(frame(phase("queued"), phase("started")));
    time.screen();
    expect(["llm", "mtp", "guard", "vae"].map((node) => store.get(node)?.state)).toEqual(Array(4).fill("queued"));
    store.take(frame(activity(), phase("finished")));
    time.screen();
    expect([store.get("llm")?.state, store.get("vae")?.state]).toEqual(["done", "idle"]);
  });

  it("says no more that a node is queued once its Walk's step is over, unless another run waits for it", () => {
    const { time, store } = made();
    const states = () => ["guard", "mtp", "llm", "vae"].map((node) => store.get(node)?.state);
    store.take(frame(phase("started"), activity()));
    time.screen();
    // The alternative that was not taken goes first; what the Walk under way may still call stays.
    expect(states()).toEqual(["idle", "queued", "running", "queued"]);
    store.take(frame(phase("started", null, "r2"), activity({ walk: "paint", node: "vae", iteration: [] })));
    time.screen();
    expect(states()).toEqual(["queued", "queued", "running", "running"]);
    store.take(frame(phase("finished", null, "r2")));
    time.screen();
    expect(states()).toEqual(["idle", "idle", "running", "running"]);
  });

  it("counts a packet that comes after the end without starting anew", () => {
    const { time, store } = made();
    store.take(frame(activity(), phase("finished")));
    store.take(frame(activity({ node: "vae" }), activity()));
    time.screen();
    expect(store.get("llm")).toMatchObject({ state: "done", calls: 4 });
    expect(store.get("vae")).toMatchObject({ state: "done", calls: 2 });
  });

  it("starts the figures anew with the first run after a quiet time, and adds those of runs side by side", () => {
    const { time, store } = made();
    store.take(frame(activity(), activity({ run: "r2" })));
    time.screen();
    expect(store.get("llm")?.calls).toBe(4);
    store.take(frame(phase("finished"), phase("finished", null, "r2"), activity({ run: "r3", calls: 1 })));
    time.screen();
    expect(store.get("llm")?.calls).toBe(1);
  });

  it("tells calls a second of late", () => {
    const { time, store } = made();
    for (let packet = 0; packet < 60; packet += 1) {
      store.take(frame(activity({ calls: 5 })));
      time.pass(50);
    }
    expect(store.get("llm")?.rate).toBeCloseTo(100, -1);
  });
});

function over(run: string, state: "done" | "failed"): Frame {
  return { type: "run", deployment: "shapes", seq: 1, run, task: "draw", state, seconds: 1 };
}

describe("errors", () => {
  it("asks for a failed run's error once the service knows it, shows it at its node until another run starts", () => {
    const { time, store, failed } = made(null);
    store.take(frame(activity(), phase("finished", "node_error")));
    expect(failed).not.toHaveBeenCalled();
    store.take(over("r1", "failed"));
    expect(failed.mock.calls).toEqual([["r1"]]);
    store.explain("r1", { code: "node_error", message: "it broke", node: "llm" });
    time.screen();
    expect(store.get("llm")).toMatchObject({ state: "error", error: "it broke", failure: { code: "node_error" } });
    store.take(frame(phase("started", null, "r2")));
    time.screen();
    expect(store.get("llm")).toMatchObject({ state: "idle", failure: null });
  });

  it("forgets an error when a run is over before its first work is told", () => {
    const { time, store } = made(null);
    store.take(frame(activity()));
    store.take(over("r1", "failed"));
    store.explain("r1", { code: "node_error", message: "it broke", node: "llm" });
    store.take(over("r2", "done"));
    store.take(frame(activity({ run: "r2" })));
    time.screen();
    expect(store.get("llm")).toMatchObject({ state: "done", failure: null });
  });

  it("shows no error that is explained after another run has begun", () => {
    const { time, store } = made(null);
    store.take(frame(activity()));
    store.take(over("r1", "failed"));
    store.take(frame(activity({ run: "r2" })));
    store.explain("r1", { code: "node_error", message: "it broke", node: "llm" });
    time.screen();
    expect(store.get("llm")).toMatchObject({ state: "running", failure: null });
  });

  it("takes a stopped run for no error", () => {
    const { store, failed } = made();
    store.take(frame(activity(), phase("finished", "cancelled")));
    expect(failed).not.toHaveBeenCalled();
  });
});

describe("scope", () => {
  it("hears of the followed deployment and the focused run alone", () => {
    const { time, store } = made();
    store.take({ ...frame(activity()), deployment: "other" } as Frame);
    time.screen();
    expect(store.get("llm")).toBeNull();
    store.focusOn("r2");
    store.take(frame(activity(), activity({ run: "r2", calls: 7 })));
    time.screen();
    expect(store.get("llm")?.calls).toBe(7);
    store.follow("other");
    time.screen();
    expect(store.get("llm")).toMatchObject({ state: "idle", calls: 0 });
    expect(store.focused()).toBeNull();
  });

  it("shows a finished run's figures, whatever runs meanwhile", () => {
    const { time, store } = made();
    const times = [
      { node: "llm", rank: 0, calls: 10, busy: 1, queued: 0 },
      { node: "llm", rank: 1, calls: 10, busy: 3, queued: 0 },
    ];
    const error = { code: "node_error", message: "it broke", node: "vae" };
    store.showRun({ id: "old", times, error } as unknown as RunShown);
    store.take(frame(activity(), phase("started")));
    time.screen();
    expect(store.get("llm")).toMatchObject({ state: "done", calls: 20, ms: 200, ranks: [0, 1] });
    expect(store.get("vae")).toMatchObject({ state: "error", error: "it broke" });
  });

  it("shows a finished run's loops, whose nodes have calls and no times of their own", () => {
    const { time, store } = made();
    const loop = { node: "words", rank: 0, calls: 10, busy: 2, queued: 0, walk: "decode" };
    const times = [
      { node: "llm", rank: 0, calls: 1, busy: 0.3, queued: 0 },
      { ...loop, inside: { llm: 10, head: 5 }, spans: false },
    ];
    store.showRun({ id: "old", times, error: null } as unknown as RunShown);
    time.screen();
    expect(store.get("llm")).toMatchObject({ calls: 11, ms: 300 });
    expect(store.get("head")).toMatchObject({ calls: 5, ms: 0, state: "done" });
    expect(store.loop("decode", "words")).toMatchObject({ state: "done", high: 10, ms: 200 });
  });

  it("holds what is shown while paused, and takes nothing for running afterwards", () => {
    const { time, store } = made();
    store.take(frame(activity()));
    time.screen();
    store.setPaused(true);
    store.take(frame(activity({ calls: 50 })));
    time.screen();
    expect(store.get("llm")?.calls).toBe(2);
    store.setPaused(false);
    time.screen();
    expect(store.get("llm")?.state).toBe("done");
  });

  it("greys out what it knows while the service can't be reached", () => {
    const { time, store } = made();
    store.take(frame(activity()));
    time.screen();
    store.setStale(true);
    time.screen();
    expect(store.get("llm")).toMatchObject({ stale: true, state: "done" });
    store.setStale(false);
    time.screen();
    expect(store.get("llm")?.stale).toBe(false);
  });
});

describe("previews", () => {
  it("revokes a picture when a newer one replaces it, and keeps a pinned one through the next run", () => {
    const { time, store, revoke } = made();
    store.begin("r1");
    store.picture("out", "blob:1");
    store.picture("out", "blob:2");
    expect(revoke.mock.calls).toEqual([["blob:1"]]);
    store.pin("out", true);
    store.picture("out", "blob:3");
    expect(revoke).toHaveBeenLastCalledWith("blob:3");
    store.take(frame(phase("finished"), phase("started", null, "r2")));
    time.screen();
    expect(store.get("out")?.preview).toEqual({ url: "blob:2", pinned: true });
    store.pin("out", false);
    store.take(frame(phase("finished", null, "r2"), phase("started", null, "r3")));
    time.screen();
    expect(store.get("out")?.preview).toBeNull();
    expect(revoke).toHaveBeenLastCalledWith("blob:2");
  });

  it("keeps the words that came before the news of the run's start", () => {
    const { time, store } = made();
    store.begin("r1");
    store.text("out", "a red ");
    store.take(frame(phase("queued"), phase("started")));
    store.text("out", "circle");
    time.screen();
    expect(store.get("out")?.words).toBe("a red circle");
  });
});

describe("cost", () => {
  it("renders no more with 200 messages a second than with 20, and shows objects anew only at a flush", () => {
    const renders = (perSecond: number) => {
      const { time, store } = made();
      const changed = vi.fn();
      for (let node = 0; node < 50; node += 1) store.watch(`n${node}`, changed);
      for (let message = 0; message < perSecond; message += 1) {
        store.take(frame(...Array.from({ length: 50 }, (_, node) => activity({ node: `n${node}` }))));
        time.screen();
        time.pass(1000 / perSecond);
      }
      return changed.mock.calls.length;
    };
    const [few, many] = [renders(20), renders(200)];
    expect(many).toBeLessThanOrEqual(few * 1.5);
    expect(many).toBeLessThanOrEqual(50 * (1000 / FLUSH_MS + 2));
  });

  it("takes 5,000 events a second, with reading their JSON, in a tenth of a core", () => {
    const { time, store } = made();
    const names = Array.from({ length: 25 }, (_, node) => `n${node}`);
    for (const node of names) store.watch(node, () => void store.get(node));
    store.watchLoop("decode", "words", () => void store.loop("decode", "words"));
    const runs = Array.from({ length: 32 }, (_, run) => `r${run}`);
    const own = names.map((node) => activity({ node, walk: "decode", iteration: [7], run: runs[7] ?? "" }));
    const told = looping({ runs, walks: runs.map(() => "decode"), iterations: runs.map(() => [9]) });
    const message = JSON.stringify(frame(...own, ...own, ...own, ...own.slice(1), told));
    const second = () => {
      const before = process.cpuUsage();
      for (let packet = 0; packet < 50; packet += 1) {
        store.take(JSON.parse(message) as Frame);
        time.screen();
        time.pass(20);
      }
      const { user, system } = process.cpuUsage(before);
      return (user + system) / 1000;
    };
    expect(JSON.parse(message).events).toHaveLength(100);
    expect(Math.min(...Array.from({ length: 8 }, second))).toBeLessThan(100);
  });

  it("shows what a packet brings within 40 ms, at once where nothing was shown of late", () => {
    const { time, store } = made();
    const waits: number[] = [];
    let told = 0;
    store.watch("llm", () => waits.push(time.ms - told));
    for (let packet = 0; packet < 200; packet += 1) {
      told = time.ms;
      store.take(frame(activity({ calls: 1 })));
      // The screen shows a frame every 16 ms.
      for (let ms = 0; ms < 23 + (packet % 9); ms += 1) {
        time.pass(1);
        if (time.ms % 16 === 0) time.screen();
      }
    }
    expect(waits.length).toBeGreaterThan(100);
    expect(Math.max(...waits)).toBeLessThanOrEqual(40);
    time.pass(400);
    told = time.ms;
    store.take(frame(activity()));
    time.pass(0);
    expect(waits.at(-1)).toBe(0);
  });

  it("shows less often where drawing takes long", () => {
    const time = new Time();
    const clock = { ...time.clock, drawn: (run: () => void) => ((time.ms += 20), run()) };
    const hooks = {
      steps: () => null,
      loops: () => null,
      times: () => null,
      isMap: () => false,
      shownAs: (name: string) => name,
      failed: vi.fn(),
      revoke: vi.fn(),
    };
    const store = new NodeStore(clock, hooks);
    const changed = vi.fn();
    store.follow("shapes");
    store.watch("llm", changed);
    for (let ms = 0; ms < 1000; ms += 1) {
      store.take(frame(activity({ calls: 1 })));
      time.screen();
      time.pass(1);
    }
    expect(changed.mock.calls.length).toBeLessThan(1000 / (20 * 8) + 3);
  });
});

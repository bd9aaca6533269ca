import { describe, expect, it, vi } from "vitest";
import type { Frame, TelemetryEvent } from "../../src/telemetry/frames";
import { FLUSH_MS, NodeStore } from "../../src/telemetry/nodes";
import type { RunShown } from "../../src/api/types";

class Time {
  ms = 0;
  private frames: (() => void)[] = [];
  private timers: { at: number; run: () => void }[] = [];
  readonly clock = {
    now: () => this.ms,
    frame: (run: () => void) => void this.frames.push(run),
    after: (ms: number, run: () => void) => {
      const timer = { at: this.ms + ms, run };
      this.timers.push(timer);
      return () => void (this.timers = this.timers.filter((other) => other !== timer));
    },
  };
  screen() {
    for (const run of this.frames.splice(0)) run();
  }
  pass(ms: number) {
    this.ms += ms;
    for (const timer of this.timers.filter((due) => due.at <= this.ms)) {
      this.timers = this.timers.filter((other) => other !== timer);
      timer.run();
    }
  }
  get waiting() {
    return this.frames.length + this.timers.length;
  }
}

function made(expected: string[] = []) {
  const time = new Time();
  const failed = vi.fn();
  const revoke = vi.fn();
  const store = new NodeStore(time.clock, { expected: () => expected, failed, revoke });
  store.follow("shapes");
  time.screen();
  time.pass(1000);
  return { time, store, failed, revoke };
}

let seq = 0;
function frame(...events: TelemetryEvent[]): Frame {
  seq += 1;
  const head = { deployment: "shapes", seq, source: "rank 0.0", first: 0, dropped: 0, wall: 0 };
  return { type: "events", ...head, events };
}

function activity(fields: Partial<Extract<TelemetryEvent, { type: "activity" }>> = {}): TelemetryEvent {
  const where = { run: "r1", rank: 0, node: "llm", walk: "decode", iteration: [3] };
  return {
    type: "activity",
    ...where,
    calls: 2,
    busy: 0.02,
    queued: 0,
    launched: 1,
    finished: 2,
    batch: 1,
    ...fields,
  };
}

function phase(name: "queued" | "started" | "finished", error: string | null = null, run = "r1"): TelemetryEvent {
  return { type: "run", run, task: "draw", phase: name, at: 0, error };
}

describe("states", () => {
  it("shows a node of a loop on the device as running until its calls are told, or its run has ended", () => {
    const { time, store } = made();
    store.watch("llm", () => undefined);
    const state = () => store.get("llm")?.state;
    store.take(frame(activity({ calls: 0, busy: 0, batch: 0 })));
    time.screen();
    for (let tick = 0; tick < 200; tick += 1) time.pass(FLUSH_MS);
    expect([state(), store.get("llm")?.calls]).toEqual(["running", 0]);
    store.take(frame(activity({ calls: 40, busy: 0.4 })));
    for (let tick = 0; tick < 20; tick += 1) time.pass(FLUSH_MS);
    expect([state(), store.get("llm")?.calls, store.get("llm")?.ms]).toEqual(["done", 40, 10]);
    store.take(frame(activity({ calls: 0, busy: 0, batch: 0 }), phase("finished")));
    time.pass(FLUSH_MS);
    time.screen();
    expect(state()).toBe("done");
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
    for (let tick = 0; tick < 8; tick += 1) time.pass(FLUSH_MS);
    expect(store.get("llm")).toMatchObject({ state: "done", rate: 0, calls: 2 });
    time.screen();
    time.pass(1000);
    time.screen();
    expect(time.waiting).toBe(0);
  });

  it("keeps a node of long calls running between its packets", () => {
    const { time, store } = made();
    store.take(frame(activity({ calls: 1, busy: 2 })));
    for (let tick = 0; tick < 20; tick += 1) time.pass(FLUSH_MS);
    expect(store.isRunning("llm")).toBe(true);
  });

  it("shows what a run will use as queued, and settles all at the run's end", () => {
    const { time, store } = made(["llm", "vae"]);
    store.take(frame(phase("started")));
    time.screen();
    expect(store.get("vae")?.state).toBe("queued");
    store.take(frame(activity(), phase("finished")));
    time.screen();
    expect([store.get("llm")?.state, store.get("vae")?.state]).toEqual(["done", "idle"]);
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

describe("errors", () => {
  it("asks for a failed run's error once, shows it at its node until another run starts", () => {
    const { time, store, failed } = made();
    store.take(frame(activity(), phase("finished", "node_error")));
    store.take({ type: "run", deployment: "shapes", seq: 1, run: "r1", task: "draw", state: "failed", seconds: 1 });
    expect(failed.mock.calls).toEqual([["r1"]]);
    store.fail("r1", { code: "node_error", message: "it broke", node: "llm" });
    time.screen();
    expect(store.get("llm")).toMatchObject({ state: "error", error: "it broke", failure: { code: "node_error" } });
    store.take(frame(phase("started", null, "r2")));
    time.screen();
    expect(store.get("llm")).toMatchObject({ state: "idle", failure: null });
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

  it("takes a message in a small part of the time that reading its JSON takes", () => {
    const { store } = made();
    for (let node = 0; node < 50; node += 1) store.watch(`n${node}`, () => undefined);
    const message = frame(...Array.from({ length: 50 }, (_, node) => activity({ node: `n${node}` })));
    const text = JSON.stringify(message);
    const spent = (work: () => void) => {
      for (let warm = 0; warm < 500; warm += 1) work();
      const rounds = Array.from({ length: 7 }, () => {
        const start = performance.now();
        for (let round = 0; round < 500; round += 1) work();
        return performance.now() - start;
      });
      return Math.min(...rounds);
    };
    const ratio = spent(() => store.take(message)) / spent(() => void JSON.parse(text));
    expect(ratio).toBeLessThan(1);
  });
});

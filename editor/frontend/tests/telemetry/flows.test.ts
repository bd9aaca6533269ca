import { expect, it, vi } from "vitest";
import { FlowStore } from "../../src/telemetry/flows";
import type { Frame, TelemetryEvent, TransferEvent } from "../../src/messages/frames";

function frame(...events: TelemetryEvent[]): Frame {
  return { type: "events", deployment: "d", seq: 1, source: "rank 0.0", first: 0, dropped: 0, wall: 0, events };
}

function transfer(fields: Partial<TransferEvent> = {}): TransferEvent {
  const where = { run: "r", source: 0, target: 1, walk: "w", edge: 3, stream: false, step: 0, key: [] };
  return { type: "transfer", ...where, transport: "shm", count: 1, nbytes: 1000, at: 0, ...fields };
}

const call = (node: string, use: string, run = "r"): TelemetryEvent => ({
  type: "activity",
  run,
  rank: 0,
  node,
  use,
  walk: "w",
  iteration: [],
  calls: 2,
  busy: 0.1,
  queued: 0,
  launched: 0,
  finished: 0,
  batch: 1,
});

function made() {
  let now = 0;
  const store = new FlowStore(() => now);
  store.follow("d");
  return { store, pass: (ms: number) => void (now += ms) };
}

it("counts what left a use, and all uses of a node in some Walks", () => {
  const { store } = made();
  const moved = vi.fn();
  const leave = store.watch(moved);
  store.take(frame(call("a", "a"), call("a", "again"), call("a", "a")));
  expect([store.left("w/a"), store.left("w/again"), store.leftNode(["w"], "a")]).toEqual([4, 2, 6]);
  expect([store.left("other/a"), store.leftNode(["other"], "a")]).toEqual([0, 0]);
  expect(moved).toHaveBeenCalledTimes(1);
  leave();
  store.take(frame(call("a", "a")));
  expect(moved).toHaveBeenCalledTimes(1);
});

it("hears the followed deployment and run alone, and nothing while it is paused", () => {
  const { store } = made();
  store.take({ ...frame(call("a", "a")), deployment: "other" } as Frame);
  store.focusOn("r2");
  store.take(frame(call("a", "a"), transfer()));
  store.setPaused(true);
  store.take(frame(call("a", "a", "r2")));
  expect([store.left("w/a"), store.traffic("w", 3)]).toEqual([0, null]);
  store.setPaused(false);
  store.take(frame(call("a", "a", "r2"), transfer({ run: "r2" })));
  expect([store.left("w/a"), store.traffic("w", 3)?.count]).toEqual([2, 1]);
  store.follow("other");
  expect(store.left("w/a")).toBe(0);
});

it("tells how much goes along an edge a second, and forgets what is long ago", () => {
  const { store, pass } = made();
  for (let second = 0; second < 10; second += 1) {
    store.take(frame(transfer({ nbytes: 600 }), transfer({ nbytes: 400, transport: "cuda_ipc" })));
    pass(1000);
  }
  store.take(frame(transfer({ stream: true, edge: 4 })));
  expect(store.traffic("w", 4)).toBeNull();
  const traffic = store.traffic("w", 3);
  expect(traffic).toMatchObject({ transport: "cuda_ipc", source: 0, target: 1, count: 20, nbytes: 10_000 });
  expect(traffic?.rate).toBeGreaterThanOrEqual(750);
  expect(traffic?.rate).toBeLessThanOrEqual(1000);
  pass(10_000);
  expect(store.traffic("w", 3)).toMatchObject({ rate: 0, nbytes: 10_000 });
});

import { expect, it, vi } from "vitest";
import { fedTo, Recorded } from "../../src/debug/model/recorded";
import type { Frame, SampleEvent } from "../../src/messages/frames";
import { GRAPH, sample } from "./fixtures";

function frame(...events: SampleEvent[]): Frame {
  return { type: "events", deployment: "g", seq: 1, source: "rank 0.1", first: 0, dropped: 0, wall: 0, events };
}

it("the newest recorded sample of each edge is kept, run by run", () => {
  vi.useFakeTimers();
  const recorded = new Recorded();
  const changed = vi.fn();
  recorded.watch(changed);
  const last = sample({ source: "next.token", iteration: [1] });
  const other = sample({ source: "@in.tokens", run: "other" });
  recorded.take(frame(sample({ source: "next.token", iteration: [0] }), last));
  recorded.take(frame(other, sample({ why: "tap", tap: "t" })));
  expect([...recorded.of("r1")!.values()]).toEqual([last]);
  expect([...recorded.of("other")!.values()]).toEqual([other]);
  expect(recorded.of("gone")).toBeNull();
  const fed = fedTo(GRAPH, "decode", "vae", recorded.of("r1")!);
  expect(fed).toEqual([{ from: "next.token", to: "vae.latents", sample: last }]);
  expect([changed.mock.calls.length, recorded.now()]).toEqual([0, 0]);
  vi.runAllTimers();
  expect([changed.mock.calls.length, recorded.now()]).toEqual([1, 1]);
  vi.useRealTimers();
});

it("the newest runs alone are kept", () => {
  const recorded = new Recorded();
  for (let run = 0; run < 20; run += 1) recorded.take(frame(sample({ run: `r${run}` })));
  expect(Array.from({ length: 20 }, (_, run) => recorded.of(`r${run}`) !== null)).toEqual(
    Array.from({ length: 20 }, (_, run) => run >= 12),
  );
});

it("every edge into every use of the failed node is listed, told or not", () => {
  const fed = fedTo(GRAPH, "decode", "llm", new Map());
  expect(fed.map(({ from, to }) => `${from} > ${to}`)).toEqual([
    "@in.tokens > llm.tokens",
    "llm.token > next.tokens",
    "next.token > next.tokens",
    "next.token > last.tokens",
  ]);
  expect(fed.every(({ sample: told }) => told === null)).toBe(true);
  expect(fedTo(GRAPH, "gone", "llm", new Map())).toEqual([]);
});

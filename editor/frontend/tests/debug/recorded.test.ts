import { expect, it } from "vitest";
import { fedTo, take, type Latest } from "../../src/debug/recorded";
import type { Frame, SampleEvent } from "../../src/telemetry/frames";
import { GRAPH, sample } from "./fixtures";

function frame(...events: SampleEvent[]): Frame {
  return { type: "events", deployment: "g", seq: 1, source: "rank 0.1", first: 0, dropped: 0, wall: 0, events };
}

it("the newest recorded sample of each edge is kept, of one run alone", () => {
  const latest: Latest = new Map();
  const last = sample({ source: "next.token", iteration: [1] });
  take(latest, "r1", frame(sample({ source: "next.token", iteration: [0] }), last));
  take(latest, "r1", frame(sample({ source: "@in.tokens", run: "other" }), sample({ why: "tap", tap: "t" })));
  expect([...latest.values()]).toEqual([last]);
  const fed = fedTo(GRAPH, "decode", "vae", latest);
  expect(fed).toEqual([{ from: "next.token", to: "vae.latents", sample: last }]);
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

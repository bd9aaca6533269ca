// A closed container tells what those inside do.
import { expect, test } from "vitest";
import { showing, together } from "../../src/canvas/model/together";
import type { Activity } from "../../src/telemetry/activity";

const QUIET: Activity = {
  state: "idle",
  iteration: null,
  calls: 0,
  kept: 0,
  rate: 0,
  ms: 0,
  queuedMs: 0,
  batch: 0,
  ranks: [],
  figures: [],
  failure: null,
  preview: null,
  words: null,
  sound: null,
  stale: false,
};

test("the loudest state, the sum of rates, the furthest iteration of the deepest loop", () => {
  const all = [
    { ...QUIET, state: "running" as const, rate: 2, iteration: [4] },
    { ...QUIET, state: "running" as const, rate: 3.5, iteration: [3, 1] },
    { ...QUIET, state: "running" as const, rate: 0, iteration: [3, 2] },
    { ...QUIET, state: "done" as const, iteration: [9, 9] },
    null,
  ];
  expect(together(all)).toEqual({ state: "running", rate: 5.5, iteration: [3, 2], error: "" });
  expect(together([...all, { ...QUIET, state: "error" as const, error: "no memory" }])).toMatchObject({
    state: "error",
    error: "no memory",
  });
  expect(together([QUIET, { ...QUIET, state: "done" as const }])?.state).toBe("done");
  expect(together([null, null])).toBeNull();
});

test("of several previews the last one is shown", () => {
  const picture = { ...QUIET, preview: { url: "blob:a", pinned: false } };
  expect(showing(["a", "b", "c"], [picture, { ...QUIET, words: "so far" }, QUIET])).toBe("b");
  expect(showing(["a"], [null])).toBeNull();
});

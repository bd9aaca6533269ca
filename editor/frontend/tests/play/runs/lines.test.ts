import { expect, test } from "vitest";
import type { RunShown } from "../../../src/messages/answers";
import type { Head } from "../../../src/play/runs/history";
import { linesOf } from "../../../src/play/runs/lines";

const HEAD: Head = {
  id: "own",
  at: 2000,
  deployment: "shapes",
  task: "draw",
  state: "done",
  seed: 7,
  seconds: 1,
  thumb: "data:image/png;base64,AA==",
  said: "a red circle",
  wrote: "",
  size: 10,
};

function row(id: string, created_at: number, rest: Partial<RunShown> = {}): RunShown {
  const glimpse = { said: `prompt of ${id}`, wrote: "", pictured: true };
  const figures = { seconds: 2, queued: 0, seed: 7, params: {}, error: null, times: [] };
  return { id, deployment: "shapes", task: "draw", state: "done", created_at, ...figures, glimpse, ...rest };
}

test("runs of programs stand among the browser's own, newest first, with prompt and picture", () => {
  const lines = linesOf("shapes", [HEAD], [row("late", 3), row("early", 1)]);
  expect(lines.map(({ id, said, own }) => [id, said, own])).toEqual([
    ["late", "prompt of late", false],
    ["own", "a red circle", true],
    ["early", "prompt of early", false],
  ]);
  expect(lines.map(({ thumb }) => thumb)).toEqual([
    "/api/v1/runs/late/thumbnail",
    HEAD.thumb,
    "/api/v1/runs/early/thumbnail",
  ]);
});

test("a run that the browser kept stands once, as it was kept", () => {
  expect(linesOf("shapes", [HEAD], [row("own", 9)])).toEqual([
    expect.objectContaining({ id: "own", at: 2000, own: true }),
  ]);
});

test("runs of other deployments are left out", () => {
  const other = { ...HEAD, id: "other", deployment: "world" };
  expect(linesOf("shapes", [other], [row("elsewhere", 1, { deployment: "world" })])).toEqual([]);
});

test("there is no picture where none was made, while one is being made, or once it is forgotten", () => {
  const none = { said: "", wrote: "a circle", pictured: false };
  const lines = linesOf(
    "shapes",
    [],
    [row("going", 3, { state: "running" }), row("text", 2, { glimpse: none }), row("old", 1, { glimpse: null })],
  );
  expect(lines.map(({ thumb, said, wrote }) => [thumb, said, wrote])).toEqual([
    [null, "prompt of going", ""],
    [null, "", "a circle"],
    [null, "", ""],
  ]);
});

test("a run that waits for a person is not over, and has no picture yet", () => {
  const [line] = linesOf("shapes", [], [row("asks", 1, { state: "waiting" })]);
  expect(line).toMatchObject({ state: "waiting", over: false, thumb: null });
  expect(linesOf("shapes", [HEAD], [])[0]?.over).toBe(true);
});

test("the browser's own run that has not ended goes on", () => {
  expect(linesOf("shapes", [{ ...HEAD, state: "waiting" }], [])[0]?.state).toBe("running");
});

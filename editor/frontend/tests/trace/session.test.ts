import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Frame } from "../../src/messages/frames";
import { Editor } from "../../src/store/editor";
import { highlight } from "../../src/store/highlight";
import { TraceSession } from "../../src/trace/model/session";
import type { TraceShown } from "../../src/trace/model/types";
import { trace } from "./made";

let hear: (frame: Frame) => void;
let listening = 0;
vi.mock("../../src/api/socket", () => ({
  subscribe: (listener: (frame: Frame) => void) => {
    hear = listener;
    listening += 1;
    return () => void (listening -= 1);
  },
}));

let answers: Record<string, unknown>;
let asked: string[];
let session: TraceSession;
let close: () => void;

beforeEach(() => {
  vi.useFakeTimers();
  asked = [];
  answers = {
    "/api/v1/deployments/shapes/traces": [{ run: "r1", task: "draw", state: "done" }],
    "/api/v1/runs": [{ id: "r9", task: "draw", state: "running", created_at: 5 }],
    "/api/v1/deployments/shapes/graph": { name: "shapes", nodes: {}, walks: {} },
    "/api/v1/runs/r1/trace": trace(),
    "/api/v1/runs/r2/trace": trace({ run: "r2" }),
    "/api/v1/runs/r1/why": { run: "r1", path: [] },
    "/api/v1/runs/r2/why": { run: "r2", path: [] },
  };
  vi.stubGlobal("fetch", (path: string) => {
    asked.push(path);
    const value = answers[path.split("?")[0]!];
    return Promise.resolve(
      value === undefined
        ? new Response(JSON.stringify({ detail: "it is gone", code: "not_found" }), { status: 404 })
        : new Response(JSON.stringify(value)),
    );
  });
  session = new TraceSession(new Editor("shapes", { graph: { name: "shapes" } as never, placement: null }));
  close = session.open("shapes");
});

afterEach(() => {
  close();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const settled = () => vi.advanceTimersByTimeAsync(0);

it("lists what is kept and what runs, anew when a run has ended", async () => {
  await settled();
  expect([session.state.rows.length, session.state.running.length]).toEqual([1, 1]);
  const before = asked.filter((path) => path.includes("/traces")).length;
  hear({ type: "run", deployment: "shapes", seq: 1, run: "r9", task: "draw", state: "done", seconds: 1 });
  hear({ type: "run", deployment: "other", seq: 1, run: "r8", task: "draw", state: "done", seconds: 1 });
  await vi.advanceTimersByTimeAsync(1000);
  expect(asked.filter((path) => path.includes("/traces")).length).toBe(before + 1);
});

it("shows a run, and a second one beside it while one is looked for", async () => {
  await session.show("r1");
  expect(session.state.shown?.model.size).toBe(2);
  expect(session.state.shown?.why?.run).toBe("r1");
  session.startComparing();
  await session.show("r2");
  expect([session.state.run, session.state.shown?.trace.run, session.state.other?.trace.run]).toEqual([
    "r1",
    "r1",
    "r2",
  ]);
  session.endComparing();
  await session.show("r2");
  expect([session.state.shown?.trace.run, session.state.other]).toEqual(["r2", null]);
});

it("is led to a run of another deployment, which stays when the page opens", async () => {
  session.lookAt("other", "r1");
  await settled();
  expect(session.state).toMatchObject({ chosen: "other", run: "r1", rows: [] });
  const leave = session.open("other");
  await settled();
  expect(session.state.shown?.trace.run).toBe("r1");
  leave();
});

it("says why a run can't be shown", async () => {
  await session.show("gone");
  expect(session.state).toMatchObject({ shown: null, loading: false, refused: "it is gone" });
});

it("marks the nodes of what is chosen, and finds the other end of its values", async () => {
  await session.show("r1");
  session.select(1);
  expect([...highlight.getState().nodes]).toEqual(["vae"]);
  expect(session.linksOf(1, "a")).toMatchObject([{ from: 0, to: 1 }]);
  expect([session.blockOfHop(0), session.blockOfHop(7)]).toEqual([1, null]);
  session.selectLane(0, "a");
  expect([...highlight.getState().nodes]).toEqual(["llm"]);
  session.unselect();
  expect(highlight.getState().nodes.size).toBe(0);
});

it("reads a run that goes on again and again, and keeps what is chosen in it", async () => {
  const whole = trace();
  const running = (rows: number): TraceShown => {
    const blocks = Object.fromEntries(
      Object.entries(whole.blocks).map(([name, column]) => [name, (column as unknown[]).slice(2 - rows)]),
    );
    return { ...whole, state: "running", blocks: blocks as unknown as TraceShown["blocks"] };
  };
  answers["/api/v1/runs/r1/trace"] = running(1);
  await session.show("r1");
  session.select(0);
  const chosen = () => session.modelOf("a").started.at(session.state.selected!.block);
  expect(chosen()).toBe(1000);
  answers["/api/v1/runs/r1/trace"] = running(2);
  await vi.advanceTimersByTimeAsync(1100);
  expect([session.state.selected?.block, chosen()]).toEqual([1, 1000]);
  answers["/api/v1/runs/r1/trace"] = whole;
  await vi.advanceTimersByTimeAsync(1100);
  expect(session.state.shown?.trace.state).toBe("done");
  const times = asked.length;
  await vi.advanceTimersByTimeAsync(5000);
  expect(asked.length).toBe(times);
});

it("draws live events of its deployment alone, until nobody looks", () => {
  const told = vi.fn();
  session.told.add(told);
  const events = [{ type: "run", run: "r1", task: "draw", phase: "started", at: 5, error: null }] as const;
  const head = { type: "events", seq: 1, source: "conductor", first: 0, dropped: 0, wall: 0 } as const;
  hear({ ...head, deployment: "shapes", events: [...events] });
  hear({ ...head, deployment: "other", events: [...events] });
  expect([told.mock.calls.length, session.liveTrace.model.marks.length]).toEqual([1, 1]);
  const again = session.open("shapes");
  again();
  expect(listening).toBe(1);
  close();
  expect(listening).toBe(0);
  close = () => undefined;
});

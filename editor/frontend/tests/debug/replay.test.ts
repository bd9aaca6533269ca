import { beforeEach, expect, it } from "vitest";
import { compareReplay, replayEntries } from "../../src/debug/model/replay";
import { debuggingOf } from "../../src/debug/model/state";
import type { DeploymentShown } from "../../src/messages/answers";
import { Editor } from "../../src/store/editor";
import { FakeService } from "../shell/service";
import { GRAPH } from "./fixtures";

const TRACES = "GET /api/v1/deployments/g/traces?limit=1000";
const SAME = { a: "a", b: "b", compared: 3, equal: 3, missing: { a: 0, b: 0 }, outputs: [], first: null, rows: [] };

let service: FakeService;
let editor: Editor;

beforeEach(() => {
  service = new FakeService();
  editor = new Editor("g", { graph: GRAPH, placement: null });
  let made = 0;
  service.answers.set("POST /api/v1/runs/r0/replay", ({ body }) => {
    made += 1;
    const run = `new${made}`;
    service.answers.set(`GET /api/v1/runs/${run}`, () => ({ id: run, state: "done", error: null }));
    return { id: run, deployment: (JSON.parse(body!) as { deployment: string }).deployment };
  });
  for (const [a, b] of [
    ["r0", "new1"],
    ["new1", "new2"],
  ])
    service.answers.set(`GET /api/v1/runs/${a}/differences/${b}`, () => ({ ...SAME, a, b }));
});

function replays(): unknown[] {
  return service.requests.filter(({ path }) => path.endsWith("/replay")).map(({ body }) => JSON.parse(body!));
}

it("a recorded run is replayed once, where it is wanted", async () => {
  service.answers.set(TRACES, () => [{ run: "r0", recorded: true }]);
  await compareReplay(editor, { run: "r0", deployment: "g" }, "other");
  expect(replays()).toEqual([{ deployment: "other", record: true }]);
  expect(debuggingOf(editor).getState().comparison).toMatchObject({ phase: "shown", value: { a: "r0", b: "new1" } });
});

it("one that was not recorded is replayed where it ran as well", async () => {
  service.answers.set(TRACES, () => [{ run: "r0", recorded: false }]);
  await compareReplay(editor, { run: "r0", deployment: "g" }, "other");
  expect(replays()).toEqual([
    { deployment: "g", record: true },
    { deployment: "other", record: true },
  ]);
  expect(debuggingOf(editor).getState().comparison).toMatchObject({
    phase: "shown",
    value: { a: "new1", b: "new2" },
  });
});

it("a replay that fails, or is refused, says why", async () => {
  service.answers.set(TRACES, () => [{ run: "r0", recorded: true }]);
  service.answers.set("POST /api/v1/runs/r0/replay", () => ({ id: "bad", deployment: "g" }));
  const error = { code: "node_error", message: "llm broke" };
  service.answers.set("GET /api/v1/runs/bad", () => ({ id: "bad", state: "failed", error }));
  await compareReplay(editor, { run: "r0", deployment: "g" }, "g");
  const { comparison } = debuggingOf(editor).getState();
  expect(comparison).toMatchObject({ phase: "failed", message: "the replay failed: llm broke" });
  service.answers.delete("POST /api/v1/runs/r0/replay");
  await compareReplay(editor, { run: "r0", deployment: "g" }, "g");
  expect(debuggingOf(editor).getState().comparison).toMatchObject({ phase: "failed", message: "answered 404" });
});

it("a comparison that was closed meanwhile stays closed", async () => {
  service.answers.set(TRACES, () => {
    debuggingOf(editor).setState({ comparison: null });
    return [{ run: "r0", recorded: true }];
  });
  await compareReplay(editor, { run: "r0", deployment: "g" }, "g");
  expect(debuggingOf(editor).getState().comparison).toBeNull();
});

it("the menu offers other deployments that serve", () => {
  const deployment = (id: string, state: string) => ({ id, state }) as DeploymentShown;
  const all = [deployment("g", "ready"), deployment("b", "ready"), deployment("c", "starting")];
  editor.store.setState({ deployments: Object.fromEntries(all.map((one) => [one.id, one])) });
  const labels = replayEntries(editor, { run: "r0", deployment: "g" }).map(({ label }) => label);
  expect(labels).toEqual(["Replay", "Replay and compare", "Replay on b", "Replay on b and compare"]);
});

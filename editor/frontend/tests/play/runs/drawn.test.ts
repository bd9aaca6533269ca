// @vitest-environment jsdom
// Running what is drawn, over a service in memory: the scratch deployment gets the open graph, then the task runs there.
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { GraphDocument } from "../../../src/document/types";
import type { RunEvent } from "../../../src/messages/answers";
import { Drawn } from "../../../src/play/runs/drawn";
import { Play } from "../../../src/play/runs/session";
import type { TaskShown } from "../../../src/play/model/types";
import { leave } from "../../../src/session/scratch";
import { Editor } from "../../../src/store/editor";
import { FakeService, type Request } from "../../shell/service";
import { EDIT } from "../tasks";

const GRAPH = { format: "walkgraph/graph@1", name: "shapes", nodes: { llm: { component: "a.b" } } } as GraphDocument;
const PROMPT = { modality: "text", many: false, optional: false, description: "" };

class FakeAudio {
  createGain = () => ({ gain: { value: 1 }, connect: () => undefined, disconnect: () => undefined });
  resume = () => Promise.resolve();
  suspend = () => Promise.resolve();
}

class FakeSocket {
  onmessage = null;
  close() {}
}

let service: FakeService;
let editor: Editor;
let play: Play;
let drawn: Drawn;
let states: string[];

function task(name: string, inputs: TaskShown["inputs"] = {}): TaskShown {
  return {
    ...EDIT,
    deployment: editor.state.scratch?.id ?? "",
    name,
    label: "",
    inputs,
    outputs: ["text"],
    params: {},
  };
}

function withNode(graph: GraphDocument, name: string, component: string): GraphDocument {
  return { ...graph, nodes: { ...graph.nodes, [name]: { component, params: { n: 5 } } } };
}

/** Of the scratch deployment, as the service shows it. */
function shown(state: string, revision = 1) {
  const id = editor.state.scratch?.id;
  return {
    id,
    graph: "shapes",
    state,
    revision,
    reason: null,
    tasks: ["say"],
    digest: "d",
    next: null,
    scratch: true,
  };
}

/** Whatever the page names its scratch deployment. */
function answer(method: string, path: RegExp, give: (request: Request) => unknown): void {
  const before = service.answers.get.bind(service.answers);
  service.answers.get = (key) => {
    const [verb = "", where = ""] = key.split(" ");
    return verb === method && path.test(where) ? give : before(key);
  };
}

beforeEach(() => {
  vi.stubGlobal("AudioContext", FakeAudio);
  vi.stubGlobal("WebSocket", FakeSocket);
  service = new FakeService();
  editor = new Editor("shapes", { graph: GRAPH, placement: null });
  play = new Play(editor);
  drawn = new Drawn(editor, play);
  states = [];
  answer("PUT", /^\/api\/v1\/scratch\//, () => shown(states.shift() ?? "ready"));
  answer("GET", /^\/api\/v1\/deployments\/scratch_.*after=/, () => shown(states.shift() ?? "ready", 2));
  answer("GET", /^\/v1\/tasks\/scratch_/, () => [task("say"), task("draw", { prompt: PROMPT })]);
  answer("POST", /^\/api\/v1\/runs$/, (request) => {
    const asked = JSON.parse(request.body!) as { deployment: string; task: string };
    return {
      id: "r1",
      state: "running",
      created_at: 1,
      seconds: 1,
      queued: 0,
      seed: 7,
      params: {},
      error: null,
      times: [],
      ...asked,
    };
  });
  answer("GET", /^\/api\/v1\/runs\/r1\/events$/, () => {
    const events: RunEvent[] = [
      { event: "accepted", run: "r1", seed: 7 },
      { event: "done", run: "r1", seconds: 1, queued: 0, times: [] },
    ];
    return new Response(
      events.map(({ event, ...data }) => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`).join(""),
    );
  });
  answer("GET", /^\/api\/v1\/runs\?/, () => []);
  answer("DELETE", /^\/api\/v1\/scratch\//, () => null);
});

afterEach(() => vi.unstubAllGlobals());

const asked = (start: string) => service.requests.filter(({ method, path }) => `${method} ${path}`.startsWith(start));

describe("what is drawn", () => {
  it("is served, then its first task runs there", async () => {
    states = ["starting", "starting", "ready"];
    await drawn.run();
    const id = editor.state.scratch!.id;
    expect(id).toMatch(/^scratch_[0-9a-f]{8}$/);
    expect(asked("PUT").map(({ path, body }) => [path, JSON.parse(body!)])).toEqual([
      [`/api/v1/scratch/${id}`, { graph: GRAPH, placement: null }],
    ]);
    expect(JSON.parse(asked("POST /api/v1/runs")[0]!.body!)).toMatchObject({ deployment: id, task: "say" });
    expect(play.state.chosen).toBe(id);
    expect(play.state.results[`${id}/say`]!.result.state).toBe("done");
    expect(editor.state.scratch!.graph).toBe(editor.graph);
  });

  it("is served anew by the same one after an edit", async () => {
    await drawn.run();
    const { id } = editor.state.scratch!;
    editor.editGraph("describe", (graph) => ({ ...graph, description: "other" }));
    await drawn.run();
    const sent = asked("PUT").map(({ path, body }) => [path, (JSON.parse(body!) as { graph: GraphDocument }).graph]);
    expect(sent).toEqual([
      [`/api/v1/scratch/${id}`, GRAPH],
      [`/api/v1/scratch/${id}`, { ...GRAPH, description: "other" }],
    ]);
  });

  it.each([
    ["a parameter of a node", (graph: GraphDocument) => withNode(graph, "llm", "a.b"), 1],
    ["a new node", (graph: GraphDocument) => withNode(graph, "more", "a.b"), 1],
    ["a place on the canvas", (graph: GraphDocument) => ({ ...graph, layout: { walks: {} } }), 1],
    ["another component", (graph: GraphDocument) => withNode(graph, "llm", "a.c"), 2],
    ["a task", (graph: GraphDocument) => ({ ...graph, tasks: {} }), 2],
    ["a Walk", (graph: GraphDocument) => ({ ...graph, walks: {} }), 2],
  ])("asks for its tasks again only where an edit may change them: %s", async (_, edit, times) => {
    await drawn.run();
    editor.editGraph("edit", edit);
    await drawn.run();
    expect(asked("GET /v1/tasks/scratch_")).toHaveLength(times);
    expect(asked("POST /api/v1/runs")).toHaveLength(2);
    expect(JSON.parse(asked("POST /api/v1/runs")[1]!.body!)).toMatchObject({ task: "say" });
  });

  it("runs the task that Play showed of the graph's own deployment, and opens the form that lacks something", async () => {
    play.see("shapes", "draw");
    await drawn.run();
    expect(editor.state.view.tab).toBe("play");
    expect(asked("POST /api/v1/runs")).toEqual([]);
    expect(editor.state.toasts.at(-1)!.message).toMatch(/needs inputs/);
  });

  it("isn't asked for where the check has found an error: that is shown at its place", async () => {
    const problem = {
      code: "unknown_component",
      pointer: "/nodes/llm",
      message: "no such",
      severity: "error" as const,
    };
    editor.store.setState({ checked: { problems: [problem], of: editor.graph } });
    await drawn.run();
    expect(asked("PUT")).toEqual([]);
    expect(editor.state.view).toMatchObject({
      tab: "graph",
      canvas: { kind: "components" },
      selection: ["node:llm"],
    });
    expect(editor.state.toasts.at(-1)).toMatchObject({ kind: "error", message: "no such" });
  });

  it("that the service refuses is shown where it says", async () => {
    const errors = [{ code: "does_not_fit", pointer: "/placement/ranks/0", message: "too large" }];
    answer("PUT", /^\/api\/v1\/scratch\//, () =>
      Response.json({ code: "invalid_input", detail: "fix it", errors }, { status: 422 }),
    );
    await drawn.run();
    expect(editor.state.view.tab).toBe("placement");
    expect(editor.state.toasts.at(-1)).toMatchObject({ kind: "error", message: "too large" });
    expect(drawn.store.getState().preparing).toBe(false);
  });

  it("keeps its form when its deployment was ended meanwhile, and another one starts", async () => {
    play.see("shapes", "draw");
    await drawn.run();
    const before = editor.state.scratch!.id;
    play.give(task("draw", { prompt: PROMPT }), (given) => ({ ...given, seed: { text: "5", locked: true } }));
    editor.store.setState({ scratch: null });
    await drawn.run();
    const after = editor.state.scratch!.id;
    expect(after).not.toBe(before);
    expect(play.state.task[after]).toBe("draw");
    expect(play.state.forms[`${after}/draw`]!.seed).toEqual({ text: "5", locked: true });
  });

  it("leaves with the page", async () => {
    await drawn.run();
    const { id } = editor.state.scratch!;
    leave(editor);
    expect(asked("DELETE")).toMatchObject([{ path: `/api/v1/scratch/${id}`, keepalive: true }]);
    expect(editor.state.scratch).toBeNull();
    expect(id in editor.state.deployments).toBe(false);
    await drawn.run();
    expect(editor.state.scratch!.id).not.toBe(id);
  });
});

// @vitest-environment jsdom
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { GraphDocument } from "../../src/document/types";
import { Checking } from "../../src/session/checking";
import { Editor } from "../../src/store/editor";
import { Planning } from "../../src/session/planning";
import { FakeService, type Request } from "./service";

const GRAPH: GraphDocument = { name: "g", nodes: {}, walks: {} };
let service: FakeService;
let editor: Editor;

interface Asked {
  graph: GraphDocument;
  answer: (problems: unknown[]) => void;
  aborted: () => boolean;
}
let asked: Asked[];

beforeEach(() => {
  vi.useFakeTimers();
  service = new FakeService();
  editor = new Editor("g", { graph: GRAPH, placement: null });
  asked = [];
  service.answers.set("POST /api/v1/graphs/check", (request: Request, signal) => {
    const graph = JSON.parse(request.body ?? "") as GraphDocument;
    return new Promise((resolve, reject) => {
      signal?.addEventListener("abort", () => reject(new DOMException("", "AbortError")));
      const answer = (problems: unknown[]) => resolve({ ok: false, problems });
      asked.push({ graph, answer, aborted: () => signal?.aborted ?? false });
    });
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const settle = (ms = 0) => vi.advanceTimersByTimeAsync(ms);
const describeAs = (description: string) => editor.editGraph("Describe", (graph) => ({ ...graph, description }));
const problem = (message: string) => ({ code: "c", pointer: "", message, severity: "error" });

it("starts at once, ends the check before it, and shows the latest alone", async () => {
  const checking = new Checking(editor);
  describeAs("one");
  describeAs("two");
  await settle();
  expect(asked.map(({ graph }) => graph.description)).toEqual([undefined, "one", "two"]);
  expect(asked.map(({ aborted }) => aborted())).toEqual([true, true, false]);
  asked[2]?.answer([problem("of two")]);
  await settle();
  expect(editor.state.checked).toEqual({ problems: [problem("of two")], of: editor.graph });
  checking.dispose();
});

it("moving a node asks nobody: the problems stay", async () => {
  const checking = new Checking(editor);
  asked[0]?.answer([problem("p")]);
  await settle();
  editor.editGraph("Move", (graph) => ({ ...graph, layout: { components: { at: { a: [1, 2] } } } }));
  await settle();
  expect(asked).toHaveLength(1);
  expect(editor.state.checked).toEqual({ problems: [problem("p")], of: editor.graph });
  checking.dispose();
});

it("an edit that is undone before its check has ended has the problems of before", async () => {
  editor.editGraph("Add", (graph) => ({ ...graph, nodes: { spare: { component: "c" } } }));
  const checking = new Checking(editor);
  const spare = { ...problem("nobody uses it"), pointer: "/nodes/spare" };
  asked.at(-1)?.answer([spare]);
  await settle();
  editor.editGraph("Remove", (graph) => ({ ...graph, nodes: {} }));
  await settle();
  expect(editor.state.checked.problems).toEqual([]);
  editor.undo();
  await settle();
  asked.at(-1)?.answer([spare]);
  await settle();
  expect(editor.state.checked).toEqual({ problems: [spare], of: editor.graph });
  checking.dispose();
});

it("asks again when the service was away, and never after its end", async () => {
  service.down = true;
  const checking = new Checking(editor);
  await settle(10);
  service.down = false;
  await settle(3100);
  expect(asked).toHaveLength(1);
  asked[0]?.answer([problem("p")]);
  await settle();
  expect(editor.state.checked.problems).toHaveLength(1);
  checking.dispose();
  describeAs("later");
  await settle(5000);
  expect(asked).toHaveLength(1);
});

it("plans only where a plan is looked at, a moment after the last change, hardware included", async () => {
  const bodies: unknown[] = [];
  service.answers.set("POST /api/v1/plans", (request: Request) => {
    bodies.push(JSON.parse(request.body ?? ""));
    return { ok: true, ranks: [] };
  });
  const planning = new Planning(editor);
  describeAs("one");
  await settle(1000);
  expect(bodies).toEqual([]);
  editor.see({ tab: "placement" });
  await settle(10);
  expect(bodies).toEqual([{ graph: editor.graph, placement: null }]);
  expect(editor.state.planned).toMatchObject({ plan: { ok: true }, of: editor.state.documents, problem: null });
  describeAs("two");
  await settle(200);
  describeAs("three");
  await settle(200);
  expect(bodies).toHaveLength(1);
  await settle(200);
  expect(bodies).toHaveLength(2);
  editor.store.setState({ planned: { ...editor.state.planned, hardware: "3x141GB" } });
  await settle(400);
  expect(bodies[2]).toMatchObject({ graph: { description: "three" }, hardware: "3x141GB" });
  editor.see({ selection: ["node:x"] });
  await settle(1000);
  expect(bodies).toHaveLength(3);
  planning.dispose();
});

it("plans for a Walk with a loop in sight too, whose problems count once somebody asks where things lie", async () => {
  let plans = 0;
  service.answers.set("POST /api/v1/plans", () => ({ ok: false, ranks: [], plans: (plans += 1) }));
  editor.editGraph("Walks", (graph) => ({
    ...graph,
    walks: {
      plain: { body: ["x"] },
      around: { body: [{ parallel: ["x", { loop: "i", times: "3", body: ["x"] }] }] },
    },
  }));
  const planning = new Planning(editor);
  editor.see({ canvas: { kind: "walk", walk: "plain", inside: null } });
  await settle(1000);
  expect(plans).toBe(0);
  editor.see({ canvas: { kind: "walk", walk: "around", inside: null } });
  await settle(1000);
  expect(plans).toBe(1);
  expect(editor.state.planned).toMatchObject({ plan: { ok: false }, placing: false });
  editor.see({ tab: "deploy" });
  await settle(1000);
  expect(editor.state.planned).toMatchObject({ plan: { ok: false }, placing: true });
  expect(plans).toBe(1);
  planning.dispose();
});

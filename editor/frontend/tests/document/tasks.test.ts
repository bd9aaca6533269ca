import { expect, it } from "vitest";
import * as edits from "../../src/document/edits";
import type { GraphDocument, Step, Task } from "../../src/document/types";
import { frozen, graphOf, graphs } from "./cases";

const graph: GraphDocument = graphOf(
  { inputs: { p: "text" }, body: ["a"], edges: [["a.out", "@out.o"]], results: { r: "a.out" } },
  {
    walks: { w: { inputs: { p: "text" }, body: ["a"] }, v: { body: ["b"] } },
    streams: [{ name: "s", from: "b.out", walks: ["v"], chunks: { policy: "whole" } }],
    tasks: {
      t: {
        inputs: { said: { modality: "text" } },
        outputs: ["o"],
        params: { n: { type: "integer", default: 1 } },
        steps: [
          { walk: "w", with: { p: "@task.said" } },
          {
            first: [
              { walk: "v", when: "n > 1" },
              { walk: "w", with: { p: "@task.n" } },
            ],
          },
          { for: "parts", text: [{ walk: "w", with: { p: "@part" } }] },
        ],
      },
    },
  },
);
const task = (made: GraphDocument): Task => made.tasks!["t"]!;
const steps = (made: GraphDocument) => task(made).steps as Step[];

it("tasks are added, copied, renamed and taken away", () => {
  const added = edits.addTask(graph);
  expect(added.graph.tasks!["task"]).toEqual({ outputs: [], steps: [] });
  expect(edits.removeTask(added.graph, "task")).toEqual(graph);
  const copy = edits.duplicateTask(graph, "t");
  expect(Object.keys(copy.graph.tasks!)).toEqual(["t", copy.name]);
  expect(Object.keys(edits.renameTask(graph, "t", "u").tasks!)).toEqual(["u"]);
  expect(task(edits.setTask(graph, "t", { label: "Talk" })).label).toBe("Talk");
  expect(edits.setTask(edits.setTask(graph, "t", { label: "Talk" }), "t", { label: undefined })).toEqual(graph);
  expect(() => edits.addTask(graph, "t")).toThrow(/already/);
});

it("steps are put in, moved, changed and taken out at their pointers", () => {
  const step: Step = { walk: "v" };
  expect(steps(edits.insertStep(graph, "t", "/steps/0", step))[0]).toEqual(step);
  expect(steps(edits.insertStep(graph, "t", "/steps/-", step)).at(-1)).toEqual(step);
  expect(steps(edits.insertStep(graph, "t", "/steps/1/first/1", step))[1]).toMatchObject({
    first: [{ when: "n > 1" }, step, {}],
  });
  expect(steps(edits.insertStep(graph, "t", "/steps/2/image/0", step))[2]).toMatchObject({ image: [step] });
  expect(steps(edits.removeStep(graph, "t", "/steps/1/first/0"))[1]).toEqual({
    first: [{ walk: "w", with: { p: "@task.n" } }],
  });
  const whens = edits.setStep(graph, "t", "/steps/0", { when: "n > 2" });
  expect(steps(whens)[0]).toEqual({ walk: "w", with: { p: "@task.said" }, when: "n > 2" });
  expect(edits.setStep(whens, "t", "/steps/0", { when: undefined })).toEqual(graph);
  const kinds = (made: GraphDocument) => steps(made).map((each) => Object.keys(each)[0]);
  expect(kinds(edits.moveStep(graph, "t", "/steps/0", "/steps/3"))).toEqual(["first", "for", "walk"]);
  expect(kinds(edits.moveStep(graph, "t", "/steps/2", "/steps/0"))).toEqual(["for", "walk", "first"]);
  expect(edits.moveStep(graph, "t", "/steps/1", "/steps/2")).toBe(graph);
  const twins = edits.insertStep(graph, "t", "/steps/0", { walk: "w", with: { p: "@task.said" } });
  expect(edits.moveStep(twins, "t", "/steps/0", "/steps/2")).toBe(twins);
  expect(edits.setStep(graph, "t", "/steps/0", { with: { p: "@task.said" } })).toBe(graph);
  const inside = edits.moveStep(graph, "t", "/steps/0", "/steps/2/text/1");
  expect(steps(inside)).toHaveLength(2);
  expect(steps(inside)[1]).toMatchObject({ text: [{ with: { p: "@part" } }, { with: { p: "@task.said" } }] });
  const out = edits.moveStep(graph, "t", "/steps/2/text/0", "/steps/0");
  expect([steps(out)[0], steps(out)[3]]).toEqual([
    { walk: "w", with: { p: "@part" } },
    { for: "parts", text: [] },
  ]);
  expect(() => edits.moveStep(graph, "t", "/steps/2", "/steps/2/text/0")).toThrow(/into itself/);
  expect(() => edits.removeStep(graph, "t", "/steps/9")).toThrow(/no longer/);
  expect(() => edits.insertStep(graph, "t", "/steps/9/first/0", step)).toThrow(/no longer/);
  expect(() => edits.insertStep(graph, "t", "/outputs/0", step)).toThrow(/not a list/);
  const lanes = edits.setTask(graph, "t", { steps: { one: steps(graph), two: [] } });
  expect(task(edits.insertStep(lanes, "t", "/steps/two/0", step)).steps).toEqual({ one: steps(graph), two: [step] });
});

it("inputs, outputs and parameters go with what binds them", () => {
  const without = edits.removeTaskInput(graph, "t", "said");
  expect([task(without).inputs, steps(without)[0]]).toEqual([undefined, { walk: "w" }]);
  expect(JSON.stringify(edits.removeTaskParam(graph, "t", "n"))).not.toContain("@task.n");
  const more = edits.addTaskParam(graph, "t", "m", { type: "number" });
  expect(edits.removeTaskParam(more, "t", "m")).toEqual(graph);
  expect(task(edits.setTaskParam(graph, "t", "n", { min: 1, default: null })).params).toEqual({
    n: { type: "integer", min: 1 },
  });
  expect(edits.removeTaskInput(edits.addTaskInput(graph, "t", "x", { modality: "image" }), "t", "x")).toEqual(graph);
  expect(task(edits.setTaskInput(graph, "t", "said", { many: true })).inputs).toEqual({
    said: { modality: "text", many: true },
  });
  expect(() => edits.addTaskParam(graph, "t", "seed", { type: "integer" })).toThrow(/already/);
});

it("a Walk goes with its steps and what it writes", () => {
  const read = edits.connect(graph, "w", "@stream.s", "a.x", {}).graph;
  const made = edits.removeWalk(read, "v");
  expect([made.streams, made.walks!["w"]!.edges]).toEqual([undefined, undefined]);
  expect(steps(made)[1]).toEqual({ first: [{ walk: "w", with: { p: "@task.n" } }] });
  expect(steps(edits.removeWalk(graph, "w"))).toEqual([
    { first: [{ walk: "v", when: "n > 1" }] },
    { for: "parts", text: [] },
  ]);
});

it("Walks, inputs, results and streams are added and taken away", () => {
  const walk = edits.addWalk(graph);
  expect(edits.removeWalk(walk.graph, walk.name)).toEqual(graph);
  const copy = edits.duplicateWalk(graph, "w");
  expect(Object.keys(copy.graph.walks!)).toEqual(["w", "w_2", "v"]);
  expect(Object.keys(edits.moveWalk(graph, "v", 0).walks!)).toEqual(["v", "w"]);
  expect(edits.moveWalk(graph, "v", 1)).toBe(graph);
  expect(edits.removeInput(edits.addInput(graph, "v", "x", "tokens"), "v", "x")).toEqual(graph);
  expect(() => edits.addInput(graph, "v", "x", "nonsense")).toThrow(/not a port type/);
  expect(edits.setInput(graph, "w", "p", "tokens: int[n]").walks!["w"]!.inputs).toEqual({ p: "tokens: int[n]" });
  const result = edits.setResult(graph, "v", "r", "b.out");
  expect(result.walks!["v"]!.results).toEqual({ r: "b.out" });
  expect(edits.setResult(result, "v", "r", null)).toEqual(graph);
  expect(() => edits.setResult(graph, "v", "r", "b.out", true)).toThrow(/no loop/);
  expect(() => edits.setResult(graph, "v", "r", "gone.out")).toThrow(/no use/);
  const stream = edits.addStream(graph, { from: "a.out", walks: ["w"] });
  expect(stream.name).toBe("out");
  expect(edits.removeStream(stream.graph, "out")).toEqual(graph);
  expect(edits.setStream(graph, "s", { credits: 4 }).streams![0]).toMatchObject({ credits: 4 });
  expect(edits.setWalkLabel(edits.setWalkLabel(graph, "v", "Hear"), "v", "")).toEqual(graph);
});

it("nodes, states and weights are added, bound and taken away", () => {
  const added = edits.addNode(graph, "x.mind", { params: { k: 1 } });
  expect([added.name, added.graph.nodes!["mind"]]).toEqual(["mind", { component: "x.mind", params: { k: 1 } }]);
  expect(edits.removeNode(added.graph, "mind")).toEqual(graph);
  const state = edits.addState(graph, "kept", { kind: "tensor" });
  const bound = edits.setNodeState(state, "a", "slot", "kept");
  expect(bound.nodes!["a"]!.states).toEqual({ slot: "kept" });
  expect(edits.removeState(bound, "kept")).toEqual(graph);
  expect(edits.setState(state, "kept", { scope: "walk" }).states!["kept"]).toEqual({ kind: "tensor", scope: "walk" });
  const weights = edits.addWeights(graph, "big", { family: "f", source: "starter:f" });
  expect(edits.removeWeights(edits.setNodeWeights(weights, "a", "big"), "big")).toEqual(graph);
  expect(() => edits.setNodeWeights(graph, "a", "big")).toThrow(/no weights/);
  expect(edits.setNodeParam(edits.setNodeParam(graph, "a", "k", 2), "a", "k", undefined)).toEqual(graph);
  const gone = edits.removeNode(graph, "a");
  expect([gone.walks!["w"]!.body, "a" in gone.nodes!]).toEqual([[], false]);
});

it("a node of another component keeps what it has too", () => {
  const before = graphs()["synthetic_loops"]!;
  expect(edits.setNodeComponent(before, "grow", "test.unknown").nodes!["grow"]).toEqual({
    component: "test.unknown",
  });
  const port = (name: string) => ({ name, type: "scalar: int", optional: false, description: "" });
  const fresh = {
    name: "x.y",
    description: "",
    inputs: [port("a"), port("c")],
    outputs: [port("total")],
    params: {},
    states: [],
    cost: "compute",
    weights: null,
    families: [],
    host: false,
    available: true,
  };
  const old = { ...fresh, name: "synthetic.add", inputs: [port("a"), port("b")], outputs: [port("sum")] };
  const made = edits.setNodeComponent(before, "grow", "x.y", frozen({ "x.y": fresh, "synthetic.add": old }));
  const text = JSON.stringify(made.walks!["nested"]!.edges);
  expect(text).toContain('["grow.total","grow.a"]');
  expect(text).toContain('{"from":"steps_of_row.values","to":"grow.c","each":true}');
  expect(text).not.toContain("grow.sum");
});

// Nodes of blueprints as components, and the inside of a blueprint as a graph.
import { expect, it } from "vitest";
import { insideOf, withBlueprints } from "../../src/document/blueprints/inside";
import { renameBlueprint, renameInside, withInside } from "../../src/document/edits/blueprints";
import { addTaskParam, removeTaskParam, setTaskParam } from "../../src/document/edits/tasks";
import { addNode } from "../../src/document/edits/nodes";
import type { GraphDocument } from "../../src/document/types";
import { Editor } from "../../src/store/editor";
import { InsideEditor } from "../../src/store/inside";
import { standingFor } from "../../src/telemetry/steps";
import { outdated } from "../../src/panels/palette/search";
import { catalogue } from "../panels/components";

const graph: GraphDocument = {
  format: "walkgraph/graph@1",
  name: "g",
  nodes: { box: { component: "blueprint.start" } },
  walks: { w: { body: ["box"], edges: [] } },
  blueprints: {
    start: {
      inputs: { unused: "text" },
      outputs: { noise: "noise.latents", all: { from: "noise.latents", collect: "list" } },
      params: { n: { type: "integer", default: 4 } },
      states: { dice: { kind: "rng" } },
      nodes: { noise: { component: "flow.noise", states: { rng: "dice" } } },
      body: ["noise"],
    },
    outer: {
      outputs: { noise: "inner.noise" },
      nodes: { inner: { component: "blueprint.start" } },
      body: ["inner"],
    },
    again: { nodes: { x: { component: "blueprint.again" } }, body: ["x"] },
  },
};

it("declares a component for each blueprint, with what its ports and parameters are inside", () => {
  const known = withBlueprints(catalogue, graph);
  const made = known["blueprint.start"]!;
  const latents = catalogue["flow.noise"]!.outputs[0]!;
  expect(made.category).toBe("Blueprints");
  expect(made.inputs).toEqual([{ name: "unused", type: "text", optional: true, description: "" }]);
  expect(made.outputs.map(({ name, type }) => [name, type])).toEqual([
    ["noise", latents.type],
    ["all", `list of ${latents.type.replace(/:.*/, "")}`],
  ]);
  expect(made.params["n"]).toMatchObject({ type: "integer", default: 4, min: null });
  expect(made.states).toMatchObject([{ slot: "dice", kind: "rng", optional: true }]);
  expect(known["blueprint.outer"]!.outputs[0]!.type).toBe(latents.type);
  expect(known["blueprint.again"]).toBeDefined();
  expect(withBlueprints(catalogue, { ...graph, blueprints: {} })).toBe(catalogue);
});

it("goes inside and back without a change", () => {
  for (const name of Object.keys(graph.blueprints!))
    expect(withInside(graph, name, insideOf(graph, name))).toEqual(graph);
});

it("makes edits inside steps of the graph around it", () => {
  const outer = new Editor("g", { graph, placement: null }, catalogue);
  const inside = new InsideEditor(outer, "start");
  const stop = inside.follow();
  inside.editGraph("Add", (found) => addNode(found, "flow.noise", { name: "more" }).graph);
  expect(Object.keys(outer.graph.blueprints!["start"]!.nodes!)).toEqual(["noise", "more"]);
  expect(Object.keys(inside.graph.nodes!)).toEqual(["noise", "more"]);
  expect(outer.state.past.length).toBe(1);
  inside.undo();
  expect(outer.graph).toBe(graph);
  expect(Object.keys(inside.graph.nodes!)).toEqual(["noise"]);
  stop();
});

it("shows the problems inside at their places there", () => {
  const outer = new Editor("g", { graph, placement: null }, catalogue);
  const at = (pointer: string) => ({ code: "x", pointer, message: "", severity: "error" as const });
  const pointers = [
    "/nodes/box",
    "/blueprints/start/nodes/noise/params/n",
    "/blueprints/start/body/0",
    "/blueprints/outer",
  ];
  outer.store.setState({ checked: { problems: pointers.map(at), of: graph } });
  const inside = new InsideEditor(outer, "start");
  expect(inside.state.checked.problems.map(({ pointer }) => pointer)).toEqual([
    "/nodes/noise/params/n",
    "/walks/start/body/0",
  ]);
});

it("follows its blueprints with the catalogue, and leaves one that is gone", () => {
  const editor = new Editor("g", { graph, placement: null }, catalogue);
  editor.see({ opened: "outer" });
  editor.editGraph("Remove", (found) => ({ ...found, blueprints: { start: found.blueprints!["start"]! } }));
  expect(editor.state.catalogue["blueprint.outer"]).toBeUndefined();
  expect(editor.state.view.opened).toBeNull();
  editor.undo();
  expect(editor.state.catalogue["blueprint.outer"]).toBeDefined();
});

it("knows which copies have a newer entry", () => {
  const copy = (version: string) => ({ body: [], origin: { name: "start", version } });
  const entries = [{ name: "start", etag: "b" }];
  expect(outdated({ old: copy("a"), new: copy("b"), own: { body: [] } }, entries)).toEqual(["old"]);
  expect(outdated(undefined, entries)).toEqual([]);
});

it("shows what runs inside at the node that stands for it", () => {
  const made = { ...graph, walks: { w: { body: [{ use: "box", as: "first" }], edges: [] } } };
  expect(standingFor(made, "box__noise")).toBe("box");
  expect(standingFor(made, "first__noise", "w")).toBe("first");
  expect(standingFor(made, "other__noise")).toBe("other__noise");
});

it("renames a blueprint and its ports everywhere", () => {
  const wired = { ...graph, walks: { w: { body: ["box"], edges: [["box.noise", "@out.x"]] } } } as GraphDocument;
  const renamed = renameBlueprint(wired, "start", "begin");
  expect(Object.keys(renamed.blueprints!)).toEqual(["begin", "outer", "again"]);
  expect(renamed.nodes!["box"]!.component).toBe("blueprint.begin");
  expect(renamed.blueprints!["outer"]!.nodes!["inner"]!.component).toBe("blueprint.begin");
  expect(() => renameBlueprint(graph, "start", "outer")).toThrow();
  const inside = insideOf(wired, "start");
  const walk = inside.walks!["start"]!;
  const { noise, ...rest } = walk.results!;
  const made = withInside(wired, "start", {
    ...inside,
    walks: { start: { ...walk, results: { ...rest, made: noise! } } },
  });
  expect(made.walks!["w"]!.edges).toEqual([["box.made", "@out.x"]]);
  expect(made.blueprints!["outer"]!.outputs).toEqual({ noise: "inner.made" });
});

it("edits what a blueprint is and what its nodes set, inside, with the nodes around following", () => {
  const start = graph.blueprints!["start"]!;
  const made: GraphDocument = {
    ...graph,
    nodes: { box: { component: "blueprint.start", params: { n: 3 } } },
    blueprints: {
      ...graph.blueprints,
      start: {
        ...start,
        states: { dice: { kind: "rng", width: "n + 1" } },
        nodes: { noise: { component: "flow.noise", params: { channels: "=n * 2", name: "n" } } },
        body: [{ loop: "l", times: "n", body: [{ use: "noise", when: "@loop.index < n" }] }],
      },
      outer: {
        ...graph.blueprints!["outer"]!,
        nodes: { inner: { component: "blueprint.start", params: { n: "=n" } } },
      },
    },
  };
  const outer = new Editor("g", { graph: made, placement: null }, catalogue);
  const inside = new InsideEditor(outer, "start");
  const now = () => outer.graph.blueprints!["start"]!;
  inside.editGraph("describe", (one) => ({ ...one, description: "Begins." }));
  expect(now().description).toBe("Begins.");
  inside.editGraph("bound", (one) => setTaskParam(one, "start", "n", { min: 1, description: "How many." }));
  expect(now().params).toEqual({ n: { type: "integer", default: 4, min: 1, description: "How many." } });
  inside.editGraph("add", (one) => addTaskParam(one, "start", "more", { type: "boolean", default: false }));
  expect(Object.keys(now().params!)).toEqual(["n", "more"]);

  inside.editGraph("rename", (one) => renameInside(one, "start", "n", "count"));
  expect(Object.keys(now().params!)).toEqual(["count", "more"]);
  expect(now().body).toEqual([{ loop: "l", times: "count", body: [{ use: "noise", when: "@loop.index < count" }] }]);
  expect(now().nodes!["noise"]!.params).toEqual({ channels: "=count * 2", name: "n" });
  expect(now().states!["dice"]!.width).toBe("count + 1");
  expect(outer.graph.nodes!["box"]!.params).toEqual({ count: 3 });
  expect(outer.graph.blueprints!["outer"]!.nodes!["inner"]!.params).toEqual({ count: "=n" });
  expect(() => renameInside(inside.graph, "start", "count", "more")).toThrow();

  inside.editGraph("remove", (one) => removeTaskParam(one, "start", "count"));
  expect(now().params).toEqual({ more: { type: "boolean", default: false } });
  expect(outer.graph.nodes!["box"]).toEqual({ component: "blueprint.start" });
  expect(inside.rename("begin")).toBeNull();
  expect(outer.graph.nodes!["box"]!.component).toBe("blueprint.begin");
  expect(outer.state.view.opened).toBe("begin");
  expect(new InsideEditor(outer, "begin").rename("outer")).toContain("outer");
  for (let steps = 0; steps < 6; steps += 1) outer.undo();
  expect(outer.graph).toEqual(made);
});

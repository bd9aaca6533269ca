// Each edit of choices, merges and loops of steps is one step of the history: taken back whole, and done again the same.
import { expect, it } from "vitest";
import * as edits from "../../src/document/edits";
import { factsOf } from "../../src/document/routes";
import type { GraphDocument, Pointer, Step } from "../../src/document/types";
import { Editor } from "../../src/store/editor";
import { graphOf, palette as mixed } from "../document/cases";

const mix = mixed["test.mix"]!;
const flag = { name: "flag", type: "flag", optional: false, description: "" };
const palette = { ...mixed, "test.mix": { ...mix, outputs: [...mix.outputs, flag] } };
const canvas = { kind: "walk", walk: "w", inside: null } as const;
const GRAPH = graphOf(
  {
    body: ["a", "b", "c", "d"],
    edges: [
      ["a.out", "b.x"],
      ["a.out", "c.x"],
      ["b.out", "d.x"],
    ],
    results: { kept: "b.out" },
  },
  { tasks: { t: { outputs: [], inputs: {}, steps: [{ walk: "w" }] } } },
);
const steps = (graph: GraphDocument, where: Pointer, step: Step) => edits.insertStep(graph, "t", where, step);

/** In this order, each on what the one before has left. */
const EDITS: [label: string, edit: (graph: GraphDocument) => GraphDocument][] = [
  ["place all", (graph) => edits.place(graph, canvas, { "use:b": [1, 2], "use:c": [3, 4] })],
  ["put a choice around", (graph) => edits.wrap(graph, "w", ["use:b", "use:c"], "choose").graph],
  ["choose by a flag", (graph) => edits.setHead(graph, "w", "choose:0", "a.flag", palette)],
  ["name a case", (graph) => edits.renameCase(graph, "w", "case:true", "7").graph],
  ["name it back", (graph) => edits.renameCase(graph, "w", "case:7", "true").graph],
  ["merge at a port", (graph) => edits.connect(graph, "w", "c.out", "d.x", palette).graph],
  ["place the merge", (graph) => edits.place(graph, canvas, { "merge:out": [5, 6] })],
  ["merge a result", (graph) => edits.joinResult(graph, "w", "kept", "c.out")],
  ["rename the merge", (graph) => edits.renameMerge(graph, "w", "out", "either")],
  ["add otherwise", (graph) => edits.addOtherwise(graph, "w", "choose:0").graph],
  ["use a node in it", (graph) => edits.insertUse(graph, "w", "a", { parent: "otherwise:0" }).graph],
  ["merge that too", (graph) => edits.addToMerge(graph, "w", "either", "a_2.out", palette)],
  ["rename a use", (graph) => edits.setItem(graph, "w", "use:c", { as: "other" })],
  ["move it out", (graph) => edits.moveItems(graph, "w", ["use:other"], { parent: null })],
  ["move it back", (graph) => edits.moveItems(graph, "w", ["use:other"], { parent: "case:false" })],
  ["condition the choice", (graph) => edits.setItem(graph, "w", "choose:0", { when: "seed > 1" })],
  ["take a source out", (graph) => edits.removeFromMerge(graph, "w", "either", 0)],
  ["delete a use", (graph) => edits.removeItems(graph, "w", ["use:other"])],
  ["remove otherwise", (graph) => edits.removeBranch(graph, "w", "otherwise:0")],
  ["choose by nothing", (graph) => edits.setHead(graph, "w", "choose:0", null)],
  ["take the choice away", (graph) => edits.unwrap(graph, "w", "choose:0")],
  ["choose among steps", (graph) => steps(graph, "/steps/0", { choose: "", cases: { a: [], b: [] } })],
  ["name a step's case", (graph) => edits.renameStepCase(graph, "t", "/steps/0", "a", "x/y")],
  ["move a step in", (graph) => edits.moveStep(graph, "t", "/steps/1", "/steps/0/cases/x~1y/0")],
  ["remove a step's case", (graph) => edits.removeStepCase(graph, "t", "/steps/0", "x/y")],
  ["loop over steps", (graph) => steps(graph, "/steps/1", { loop: [{ walk: "w" }], times: "3" })],
  ["end the loop", (graph) => edits.setStep(graph, "t", "/steps/1", { until: "w.kept", times: "4" })],
  ["start it", (graph) => edits.setStep(graph, "t", "/steps/1", { start: { "w.kept": 1 } })],
  ["add a step to it", (graph) => steps(graph, "/steps/1/loop/1", { walk: "w", as: "again" })],
  ["move it out of the loop", (graph) => edits.moveStep(graph, "t", "/steps/1/loop/1", "/steps/0")],
];

it("are one step each, back and forth", () => {
  const editor = new Editor("g", { graph: GRAPH, placement: null, sources: new Map() });
  const states = [GRAPH];
  for (const [label, edit] of EDITS) {
    editor.editGraph(label, edit);
    expect(editor.graph, label).not.toEqual(states.at(-1));
    expect(editor.state.past.at(-1)?.label).toBe(label);
    const { merges, list, byId } = factsOf(editor.graph.walks!["w"]!);
    expect([byId.size, [...merges.values()].every(({ sources }) => sources.length > 1)]).toEqual([list.length, true]);
    states.push(editor.graph);
  }
  for (const state of states.slice(0, -1).reverse()) {
    editor.undo();
    expect(editor.graph).toEqual(state);
  }
  for (const state of states.slice(1)) {
    editor.redo();
    expect(editor.graph).toEqual(state);
  }
});

// Each edit of maps is one step of the history: taken back whole, and done again the same.
import { expect, it } from "vitest";
import * as edits from "../../src/document/edits";
import { factsOf } from "../../src/document/routes";
import type { GraphDocument } from "../../src/document/types";
import { Editor } from "../../src/store/editor";
import { graphOf, palette } from "../document/cases";

const canvas = { kind: "walk", walk: "w", inside: null } as const;
const GRAPH = graphOf({
  body: ["a", "b", "c"],
  edges: [
    ["a.all", "b.x"],
    ["b.out", "c.many"],
  ],
  results: { kept: "b.out" },
});

/** In this order, each on what the one before has left. */
const EDITS: [label: string, edit: (graph: GraphDocument) => GraphDocument][] = [
  ["place all", (graph) => edits.place(graph, canvas, { "use:b": [1, 2] })],
  ["put a map around", (graph) => edits.wrap(graph, "w", ["use:b"], "map").graph],
  ["place the map", (graph) => edits.place(graph, canvas, { "map:items": [3, 4] })],
  ["go through a list", (graph) => edits.setHead(graph, "w", "map:items", "a.all", palette)],
  ["set its bounds", (graph) => edits.setItem(graph, "w", "map:items", { bound: "12", width: "4" })],
  ["name it", (graph) => edits.setItem(graph, "w", "map:items", { as: "rows" })],
  ["read its index", (graph) => edits.connect(graph, "w", "@loop.rows", "b.y", palette).graph],
  ["send each", (graph) => edits.connect(graph, "w", "b.out", "@out.o", palette).graph],
  ["send all at the end", (graph) => edits.setEdge(graph, "w", 3, { each: false, collect: true })],
  ["move a step in", (graph) => edits.moveItems(graph, "w", ["use:c"], { parent: "map:rows" })],
  ["move it out", (graph) => edits.moveItems(graph, "w", ["use:c"], { parent: null })],
  ["rename the list's step", (graph) => edits.setItem(graph, "w", "use:a", { as: "first" })],
  ["map in the map", (graph) => edits.wrap(graph, "w", ["use:b"], "map").graph],
  ["condition it", (graph) => edits.setItem(graph, "w", "map:items", { when: "seed > 1" })],
  ["close it", (graph) => edits.setClosed(graph, canvas, "map:items", true)],
  ["take the inner one away", (graph) => edits.unwrap(graph, "w", "map:items")],
  ["delete the list's step", (graph) => edits.removeItems(graph, "w", ["use:first"])],
  ["delete the map", (graph) => edits.removeItems(graph, "w", ["map:rows"])],
  ["add a map", (graph) => edits.insertMap(graph, "w", { parent: null }).graph],
];

it("are one step each, back and forth", () => {
  const editor = new Editor("g", { graph: GRAPH, placement: null, sources: new Map() });
  const states = [GRAPH];
  for (const [label, edit] of EDITS) {
    editor.editGraph(label, edit);
    expect(editor.graph, label).not.toEqual(states.at(-1));
    expect(editor.state.past.at(-1)?.label).toBe(label);
    const { list, byId } = factsOf(editor.graph.walks!["w"]!);
    expect(byId.size).toBe(list.length);
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

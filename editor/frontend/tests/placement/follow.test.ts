import { describe, expect, it } from "vitest";
import type { GraphDocument } from "../../src/document/types";
import { assign, explicit } from "../../src/document/placement/edits";
import { followGraph } from "../../src/document/placement/follow";
import { Editor } from "../../src/store/editor";

const GRAPH: GraphDocument = {
  name: "g",
  nodes: { a: { component: "x" }, b: { component: "y" } },
  walks: { one: { body: ["a", "b"] }, two: { body: ["b"] } },
};
const PLACED = assign(assign(explicit(GRAPH), GRAPH, ["a"], [1], null), GRAPH, ["b"], [1], ["two"]);

describe("the placement follows the graph", () => {
  it("through renames", () => {
    const nodes = { z: { component: "x" }, b: { component: "y" } };
    expect(followGraph(PLACED, GRAPH, { ...GRAPH, nodes })?.groups[1]).toEqual({ nodes: ["z"], ranks: [1] });
    const walks = { one: GRAPH.walks!["one"]!, three: { body: ["b"] } };
    expect(followGraph(PLACED, GRAPH, { ...GRAPH, walks })?.groups[2]?.walks).toEqual(["three"]);
  });

  it("lets go of what is removed, and of groups that held nothing else", () => {
    const { a: _gone, ...nodes } = GRAPH.nodes!;
    expect(followGraph(PLACED, GRAPH, { ...GRAPH, nodes })?.groups).toEqual([PLACED.groups[0], PLACED.groups[2]]);
    const walks = { one: GRAPH.walks!["one"]! };
    expect(followGraph(PLACED, GRAPH, { ...GRAPH, walks })?.groups).toEqual(PLACED.groups.slice(0, 2));
    const replaced = { c: { component: "other" }, b: { component: "y" } };
    expect(followGraph(PLACED, GRAPH, { ...GRAPH, nodes: replaced })?.groups).toHaveLength(2);
  });

  it("stays the same object for everything else, and keeps names that were never there", () => {
    expect(followGraph(null, GRAPH, { ...GRAPH, nodes: {} })).toBeNull();
    expect(followGraph(PLACED, GRAPH, { ...GRAPH, description: "other" })).toBe(PLACED);
    const more = { ...GRAPH, nodes: { ...GRAPH.nodes, c: { component: "z" } } };
    expect(followGraph(PLACED, GRAPH, more)).toBe(PLACED);
    const odd = { ...PLACED, groups: [...PLACED.groups, { nodes: ["nobody"], ranks: [0] }] };
    const { a: _gone, ...nodes } = GRAPH.nodes!;
    expect(followGraph(odd, GRAPH, { ...GRAPH, nodes })?.groups.at(-1)).toEqual({ nodes: ["nobody"], ranks: [0] });
  });

  it("in the same step as the edit, so that undo brings both back", () => {
    const editor = new Editor("g", { graph: GRAPH, placement: PLACED });
    const nodes = { z: { component: "x" }, b: { component: "y" } };
    editor.editGraph("Rename", (graph) => ({ ...graph, nodes }));
    expect(editor.state.documents.placement?.groups[1]?.nodes).toEqual(["z"]);
    editor.undo();
    expect(editor.state.documents.placement).toBe(PLACED);
  });
});

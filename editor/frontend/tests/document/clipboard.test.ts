import { expect, it } from "vitest";
import * as edits from "../../src/document/edits";
import { diff, equal } from "../../src/document/diff";
import { at } from "../../src/document/pointer";
import { factsOf } from "../../src/document/routes";
import type { GraphDocument } from "../../src/document/types";
import { frozen, graphOf, graphs } from "./cases";

const loops = graphs()["synthetic_loops"]!;

it("items are pasted under fresh names, with the edges between them", () => {
  const clip = edits.readClip(JSON.stringify(edits.copyItems(loops, "nested", ["loop:column", "use:row_total"])))!;
  const { graph, ids } = edits.pasteItems(loops, "nested", clip, { place: { parent: "loop:row" } });
  expect(ids).toEqual(["loop:column_2", "use:row_total_2"]);
  const edges = graph.walks!["nested"]!.edges!;
  expect(edges.slice(loops.walks!["nested"]!.edges!.length)).toEqual([
    ["grow_2.sum", "grow_2.a"],
    { from: "grow_2.sum", to: "row_total_2.values", collect: true },
  ]);
  expect(graph.nodes).toEqual(loops.nodes);
  expect(edits.removeItems(graph, "nested", ids)).toEqual(loops);
});

it("edges from outside are drawn anew where their sources are", () => {
  const clip = edits.copyItems(loops, "nested", ["loop:column"]);
  expect(clip.incoming).toHaveLength(2);
  const inside = edits.pasteItems(loops, "nested", clip, { keepIncoming: true, place: { parent: "loop:row" } }).graph;
  expect(inside.walks!["nested"]!.edges!.slice(-2)).toEqual([
    ["row_start.sum", "grow_2.a"],
    { from: "steps_of_row.values", to: "grow_2.b", each: true },
  ]);
  const elsewhere = graphOf({ body: ["a"] });
  const pasted = edits.pasteItems(elsewhere, "w", clip, { keepIncoming: true }).graph.walks!["w"]!;
  expect(pasted.edges).toEqual([["grow.sum", "grow.a"]]);
});

it("a place before what the incoming edges come from is moved behind it, in the same container", () => {
  const graph = graphOf({
    body: ["a", "b", "c"],
    edges: [
      ["a.out", "b.x"],
      ["b.out", "c.x"],
    ],
  });
  const clip = edits.copyItems(graph, "w", ["use:c"]);
  const paste = (keepIncoming: boolean) =>
    edits.pasteItems(graph, "w", clip, { keepIncoming, place: { parent: null, index: 0 } }).graph.walks!["w"]!;
  expect(paste(true)).toMatchObject({
    body: ["a", "b", { use: "c", as: "c_2" }, "c"],
    edges: [
      ["a.out", "b.x"],
      ["b.out", "c.x"],
      ["b.out", "c_2.x"],
    ],
  });
  expect(paste(false).body).toEqual([{ use: "c", as: "c_2" }, "a", "b", "c"]);
});

it("what another graph lacks comes along", () => {
  const bagel = graphs()["bagel"]!;
  const [walk, body] = Object.entries(bagel.walks!).find(([, each]) =>
    factsOf(each).list.some(({ kind }) => kind === "fork"),
  )!;
  const ids = factsOf(body).tree.map(({ id }) => id);
  const clip = edits.copyItems(bagel, walk, ids);
  const empty: GraphDocument = frozen({ name: "other", walks: { here: { body: [] } } });
  const made = edits.pasteItems(empty, "here", clip).graph;
  expect(made.walks!["here"]!.body).toEqual(body.body);
  for (const [name, node] of Object.entries(made.nodes!)) expect(node).toEqual(bagel.nodes![name]);
  for (const [name, state] of Object.entries(made.states!)) expect(state).toEqual(bagel.states![name]);
  expect(Object.keys(made.states!).length).toBeGreaterThan(0);
  const other = edits.addState(empty, Object.keys(clip.states)[0]!, { kind: "rng" });
  const apart = edits.pasteItems(other, "here", clip).graph;
  const renamed = Object.keys(apart.states!).find((name) => name.endsWith("_2"))!;
  expect(JSON.stringify(apart.nodes) + JSON.stringify(apart.walks)).toContain(`"${renamed}"`);
});

it("nodes are pasted as nodes of their own, at their places", () => {
  const placed = edits.place(loops, { kind: "components" }, { one: [10, 20], grow: [110, 20] });
  const clip = edits.copyNodes(placed, ["one", "grow"]);
  const { graph, names } = edits.pasteNodes(placed, clip, { at: [0, 0] });
  expect(names).toEqual(["one_2", "grow_2"]);
  expect(graph.nodes!["one_2"]).toEqual(loops.nodes!["one"]);
  expect(edits.canvasLayout(graph, { kind: "components" }).at).toMatchObject({ one_2: [0, 0], grow_2: [100, 0] });
});

it("places follow pasted items", () => {
  const canvas = { kind: "walk", walk: "w", inside: null } as const;
  const graph = edits.place(graphOf({ body: ["a", { parallel: ["b"] }] }), canvas, {
    "use:b": [5, 5],
    "use:a": [0, 0],
  });
  const clip = edits.copyItems(graph, "w", ["parallel:0"]);
  const made = edits.pasteItems(graph, "w", clip, { at: [100, 50] });
  expect(made.ids).toEqual(["parallel:1"]);
  expect(edits.canvasLayout(made.graph, canvas).at).toMatchObject({ "use:b_2": [100, 50] });
  expect(edits.canvasLayout(edits.pasteItems(graph, "w", clip).graph, canvas).at).toMatchObject({
    "use:b_2": [45, 45],
  });
});

it("other text is no clip", () => {
  for (const text of [
    "",
    "{}",
    "[]",
    "null",
    '{"walkgraph":"clip@2"}',
    '{"walkgraph":"clip@1","items":7}',
    '{"walkgraph":"clip@1","items":[{"x":1}]}',
  ])
    expect(edits.readClip(text)).toBeNull();
  expect(() => edits.pasteItems(loops, "nested", edits.readClip('{"walkgraph":"clip@1"}')!)).toThrow(
    edits.EditRefused,
  );
});

it("differences are told part by part", () => {
  let made = edits.setNodeParam(loops, "one", "value", 2);
  made = edits.removeEdges(made, "nested", [8]);
  made = edits.setItem(made, "climb", "use:limit", { when: "limit > 1" });
  made = edits.moveItems(made, "nested", ["use:rows"], { parent: null });
  made = edits.addTask(made, "fresh").graph;
  made = edits.removeWalk(made, "ferry");
  made = edits.addInput(made, "skip", "extra", "tokens");
  made = edits.place(made, { kind: "components" }, { one: [1, 1] });
  const found = diff(loops, made);
  expect(found.map(({ kind, what, name, walk }) => [kind, what, name, walk])).toEqual([
    ["changed", "node", "one", undefined],
    ["changed", "item", "rows", "nested"],
    ["removed", "edge", "grow.sum → @out.last", "nested"],
    ["changed", "item", "limit", "climb"],
    ["added", "input", "extra", "skip"],
    ["removed", "walk", "ferry", undefined],
    ["changed", "task", found.find(({ what, kind }) => what === "task" && kind === "changed")!.name, undefined],
    ["added", "task", "fresh", undefined],
  ]);
  expect(found[0]!.text).toBe("Node `one`: params.value 1 → 2");
  for (const each of found) expect(at(each.kind === "removed" ? loops : made, each.pointer)).toBeDefined();
  const back = diff(made, loops);
  expect(back.map(({ kind }) => kind).sort()).toEqual(
    found.map(({ kind }) => ({ added: "removed", removed: "added", changed: "changed" })[kind]).sort(),
  );
});

it("shorthand, order of keys, defaults and layout are no difference", () => {
  const short = graphOf({ body: ["a", ["b"]], edges: [["a.out", "b.x"]], results: { r: "a.out" } });
  const long: GraphDocument = {
    walks: {
      w: {
        label: "",
        inputs: {},
        results: { r: { from: "a.out", collect: false } },
        edges: [{ to: "b.x", from: "a.out", each: false }],
        body: [{ use: "a", as: null }, { sequence: [{ use: "b" }] }],
      },
    },
    nodes: short.nodes!,
    name: "g",
    streams: [],
    layout: { components: {} },
  };
  expect(equal(short, long)).toBe(true);
  expect(diff(short, long)).toEqual([]);
  expect(equal(short, edits.setItem(short, "w", "use:a", { when: "n > 1" }))).toBe(false);
  for (const graph of Object.values(graphs())) expect(diff(graph, structuredClone(graph))).toEqual([]);
});

import { describe, expect, it } from "vitest";
import * as edits from "../../src/document/edits";
import { diff, equal } from "../../src/document/diff";
import { exclusive, factsOf } from "../../src/document/routes";
import { union } from "../../src/document/union";
import type { Catalogue } from "../../src/messages/answers";
import type { GraphDocument, Item, Link, Walk } from "../../src/document/types";
import { frozen, graphOf, palette as mixed } from "./cases";

const canvas = { kind: "walk", walk: "w", inside: null } as const;
const walkOf = (graph: GraphDocument): Walk => graph.walks!["w"]!;
const facts = (graph: GraphDocument) => factsOf(walkOf(graph));
const choice = (cases: Record<string, Item[]>, more = {}): Item => ({ choose: "a.flag", cases, ...more }) as Item;

const mix = mixed["test.mix"]!;
const flag = { name: "flag", type: "flag", optional: false, description: "" };
const palette: Catalogue = { ...mixed, "test.mix": { ...mix, outputs: [...mix.outputs, flag] } };

/** a, then b or c by what a says, then d. */
const before = graphOf({
  body: ["a", choice({ yes: ["b"], no: ["c"] }), "d"],
  edges: [
    ["a.out", "b.x"],
    ["a.out", "c.x"],
    ["b.out", "d.x"],
  ],
});
const merged = edits.connect(before, "w", "c.out", "d.x", palette).graph;

describe("a choice", () => {
  it("is a tree of branches with ids and places of their own", () => {
    const graph = graphOf({
      body: [choice({ "a/b": [["a"]], "10": [], "2": ["b"] }, { otherwise: ["c"] }), choice({ "2": ["d"] })],
    });
    expect(facts(graph).list.map(({ id, pointer, order }) => [id, pointer, order])).toEqual([
      ["choose:0", "/body/0", 0],
      ["case:2", "/body/0/cases/2", 1],
      ["use:b", "/body/0/cases/2/0", 1],
      ["case:10", "/body/0/cases/10", 2],
      ["case:a/b", "/body/0/cases/a~1b", 2],
      ["sequence:0", "/body/0/cases/a~1b/0", 2],
      ["use:a", "/body/0/cases/a~1b/0/0", 2],
      ["otherwise:0", "/body/0/otherwise", 3],
      ["use:c", "/body/0/otherwise/0", 3],
      ["choose:1", "/body/1", 4],
      ["case:2#1", "/body/1/cases/2", 5],
      ["use:d", "/body/1/cases/2/0", 5],
    ]);
    const { uses } = facts(graph);
    expect(exclusive(uses.get("a")!, uses.get("c")!)).toBe(true);
    expect(exclusive(uses.get("a")!, uses.get("d")!)).toBe(false);
  });

  it("is put around steps: those that feed one another share a case", () => {
    const plain = graphOf({
      body: ["a", "b", "c", "d"],
      edges: [
        ["a.out", "b.x"],
        ["c.out", "d.x"],
      ],
    });
    const { graph, id } = edits.wrap(plain, "w", ["use:b", "use:c", "use:d"], "choose");
    expect(walkOf(graph).body).toEqual(["a", { choose: "", cases: { a: ["b"], b: ["c", "d"] } }]);
    expect(id).toBe("choose:0");
    expect(edits.unwrap(graph, "w", id)).toEqual(plain);
    const one = edits.wrap(plain, "w", ["use:c", "use:d"], "choose");
    expect(walkOf(one.graph).body).toEqual(["a", "b", { choose: "", cases: { a: ["c", "d"], b: [] } }]);
    expect(() => edits.wrap(one.graph, "w", ["case:a"], "loop")).toThrow(/case stays/);
  });

  it("keeps apart in cases what shares a state", () => {
    const nodes = { a: { component: "m", states: { s: "kept" } }, b: { component: "m", states: { s: "kept" } } };
    const graph = graphOf({ body: ["a", "b"] }, { nodes });
    const made = edits.wrap(graph, "w", ["use:a", "use:b"], "choose").graph;
    expect(walkOf(made).body).toEqual([{ choose: "", cases: { a: ["a"], b: ["b"] } }]);
  });

  it("goes by a value that is there before it", () => {
    const graph = graphOf({
      inputs: { x: "text", picture: "image" },
      body: [{ choose: "", cases: { a: ["b"], b: [] } } as Item, "a", "c"],
      edges: [["a.out", "c.x"]],
    });
    const set = (from: string | null) => edits.setHead(graph, "w", "choose:0", from, palette);
    const named = { choose: "a.flag", cases: { true: ["b"], false: [] } };
    expect(walkOf(set("a.flag")).body).toEqual(["a", named, "c"]);
    expect(walkOf(set("@in.x")).body[0]).toEqual({ choose: "@in.x", cases: { a: ["b"], b: [] } });
    expect(facts(set("@in.x")).heads.map(({ from, pointer }) => [from, pointer])).toEqual([
      ["@in.x", "/body/0/choose"],
    ]);
    expect(() => set("b.flag")).toThrow(/inside the choice/);
    expect(() => set("@in.picture")).toThrow(/a flag, a whole number or a text/);
    expect(() => set("@loop.index")).toThrow(/a step's output/);
    expect(() => set("gone.x")).toThrow(/no use/);
    expect(set(null)).toBe(graph);
  });

  it("has cases that are added, named and taken away", () => {
    const more = edits.addCase(before, "w", "choose:0");
    expect(more.id).toBe("case:a");
    expect(Object.keys((walkOf(more.graph).body[1] as { cases: object }).cases)).toEqual(["yes", "no", "a"]);
    const renamed = edits.renameCase(more.graph, "w", "case:a", "42");
    expect(renamed.id).toBe("case:42");
    expect(() => edits.renameCase(before, "w", "case:yes", "no")).toThrow(/already a case/);
    expect(() => edits.renameCase(before, "w", "case:yes", "")).toThrow(/needs a value/);
    const rest = edits.addOtherwise(before, "w", "choose:0");
    expect(rest.id).toBe("otherwise:0");
    expect(edits.addOtherwise(rest.graph, "w", "choose:0")).toEqual(rest);
    expect(edits.removeBranch(rest.graph, "w", "otherwise:0")).toEqual(before);
    expect(edits.addCase(rest.graph, "w", "choose:0").id).toBe("case:a");
    const flags = graphOf({ body: [choice({ true: [] })] });
    expect(edits.addCase(flags, "w", "choose:0", undefined, "flag").id).toBe("case:false");
    const gone = edits.removeBranch(merged, "w", "case:no");
    expect(walkOf(gone)).toEqual({
      body: ["a", choice({ yes: ["b"] }), "d"],
      edges: [
        ["a.out", "b.x"],
        ["b.out", "d.x"],
      ],
    });
  });

  it("keeps the layout of branches whose names sort elsewhere", () => {
    const graph = graphOf(
      { body: [choice({ x: ["a"], y: ["b"] })] },
      { layout: { walks: { w: { at: { "case:y": [1, 1], "use:b": [2, 2] }, closed: ["case:x"] } } } },
    );
    const made = edits.renameCase(graph, "w", "case:y", "7").graph;
    expect(facts(made).list.map(({ id }) => id)).toEqual(["choose:0", "case:7", "use:b", "case:x", "use:a"]);
    expect(edits.canvasLayout(made, canvas)).toEqual({
      at: { "case:7": [1, 1], "use:b": [2, 2] },
      closed: ["case:x"],
    });
  });

  it("takes steps into its branches and gives them back", () => {
    const made = edits.moveItems(before, "w", ["use:d"], { parent: "case:no" });
    expect((walkOf(made).body[1] as { cases: object }).cases).toEqual({ yes: ["b"], no: ["c", "d"] });
    expect(edits.moveItems(made, "w", ["use:d"], { parent: null })).toEqual(before);
    const emptied = edits.moveItems(before, "w", ["use:b"], { parent: null });
    expect((walkOf(emptied).body[1] as { cases: object }).cases).toEqual({ yes: [], no: ["c"] });
    expect(() => edits.moveItems(before, "w", ["use:d"], { parent: "choose:0" })).toThrow(/one of them/);
    expect(() => edits.moveItems(before, "w", ["case:no"], { parent: null })).toThrow(/case stays/);
    expect(() => edits.mute(before, "w", ["case:no"])).toThrow(/only a value/);
    expect(walkOf(edits.setItem(before, "w", "choose:0", { when: "n > 1" })).body[1]).toEqual(
      choice({ yes: ["b"], no: ["c"] }, { when: "n > 1" }),
    );
  });

  it("has no edges between its branches", () => {
    expect(edits.whyNot(before, "w", "b.out", "c.x", palette)).toMatch(/different branches/);
    expect(edits.whyNot(before, "w", "a.out", "c.x", palette)).toBeNull();
  });

  it("follows other names, and forgets what is gone", () => {
    const named = edits.setItem(before, "w", "use:a", { as: "first" });
    expect((walkOf(named).body[1] as { choose: string }).choose).toBe("first.flag");
    const gone = edits.removeItems(before, "w", ["use:a"]);
    expect((walkOf(gone).body[0] as { choose: string }).choose).toBe("");
    const input = graphOf({ inputs: { x: "text" }, body: [choice({ a: ["a"] }, { choose: "@in.x" })] });
    const renamed = edits.renameInput(input, "w", "x", "y");
    expect((walkOf(renamed).body[0] as { choose: string }).choose).toBe("@in.y");
    expect((walkOf(edits.removeInput(renamed, "w", "y")).body[0] as { choose: string }).choose).toBe("");
  });

  it("is copied with the names that it goes by", () => {
    const clip = edits.copyItems(merged, "w", ["use:a", "choose:0"]);
    const { graph } = edits.pasteItems(merged, "w", clip);
    expect(walkOf(graph).body.at(-1)).toEqual({
      choose: "a_2.flag",
      cases: { yes: [{ use: "b", as: "b_2" }], no: [{ use: "c", as: "c_2" }] },
    });
    expect(walkOf(graph).merges).toEqual({ out: ["b.out", "c.out"], out_2: ["b_2.out", "c_2.out"] });
  });
});

describe("a merge", () => {
  it("is made where an edge of another branch comes to a port", () => {
    expect(walkOf(merged).merges).toEqual({ out: ["b.out", "c.out"] });
    expect(walkOf(merged).edges).toEqual([
      ["a.out", "b.x"],
      ["a.out", "c.x"],
      ["@merge.out", "d.x"],
    ]);
    const route = facts(merged).routes[2]!;
    expect([route.source.kind, route.source.place?.id, route.backward]).toEqual(["merge", "choose:0", false]);
    expect(facts(merged).merging.map(({ from, to, pointer }) => [from, to, pointer])).toEqual([
      ["b.out", "@merge.out", "/merges/out/0"],
      ["c.out", "@merge.out", "/merges/out/1"],
    ]);
    // Other ports of the same two are fed by the same merge.
    const more = edits.connect(merged, "w", "b.out", "d.y", palette).graph;
    const both = edits.connect(more, "w", "c.out", "d.y", palette).graph;
    expect(walkOf(both).merges).toEqual({ out: ["b.out", "c.out"] });
    expect(walkOf(both).edges!.at(-1)).toEqual(["@merge.out", "d.y"]);
    // Without branches the new edge takes the old one's place.
    expect(walkOf(edits.connect(merged, "w", "a.out", "d.x", palette).graph).edges!.at(-1)).toEqual(["a.out", "d.x"]);
  });

  it("is made for outputs and results too", () => {
    const sent = edits.connect(before, "w", "b.out", "@out.o", palette).graph;
    const both = edits.connect(sent, "w", "c.out", "@out.o", palette).graph;
    expect(walkOf(both).edges!.at(-1)).toEqual(["@merge.out", "@out.o"]);
    const kept = edits.joinResult(edits.setResult(before, "w", "r", "b.out"), "w", "r", "c.out");
    expect(walkOf(kept)).toMatchObject({ merges: { out: ["b.out", "c.out"] }, results: { r: "@merge.out" } });
    expect(walkOf(edits.joinResult(kept, "w", "r", "a.out")).results).toEqual({ r: "a.out" });
  });

  it("takes more sources, one of each branch", () => {
    const third = edits.addCase(merged, "w", "choose:0", "maybe");
    const use = edits.insertUse(third.graph, "w", "eye", { parent: third.id });
    const mixes = edits.insertUse(third.graph, "w", "a", { parent: third.id }).graph;
    expect(() => edits.addToMerge(use.graph, "w", "out", "eye.seen", palette)).toThrow(
      /not `?scalar|expected|features/i,
    );
    const made = edits.addToMerge(mixes, "w", "out", "a_2.out", palette);
    expect(walkOf(made).merges).toEqual({ out: ["b.out", "c.out", "a_2.out"] });
    const same = edits.addToMerge(made, "w", "out", "c.all", {
      ...palette,
      "test.mix": { ...mix, outputs: mix.outputs.map((port) => ({ ...port, type: "scalar: int[]" })) },
    });
    expect(walkOf(same).merges).toEqual({ out: ["b.out", "a_2.out", "c.all"] });
    expect(() => edits.addToMerge(merged, "w", "out", "d.out", palette)).toThrow(/no branch/);
    expect(() => edits.addToMerge(merged, "w", "out", "b.out", palette)).toThrow(/already/);
    expect(walkOf(edits.connect(mixes, "w", "a_2.out", "d.x", palette).graph).merges!["out"]).toHaveLength(3);
  });

  it("gives way to its last source, and goes with what reads it", () => {
    const placed = edits.place(merged, canvas, { "merge:out": [8, 8], "use:d": [9, 9] });
    const one = edits.removeFromMerge(placed, "w", "out", 0);
    expect(walkOf(one).merges).toBeUndefined();
    expect(walkOf(one).edges!.at(-1)).toEqual(["c.out", "d.x"]);
    expect(edits.canvasLayout(one, canvas).at).toEqual({ "use:d": [9, 9] });
    expect(walkOf(edits.removeItems(placed, "w", ["use:c"])).edges!.at(-1)).toEqual(["b.out", "d.x"]);
    const gone = edits.removeItems(placed, "w", ["choose:0"]);
    expect(walkOf(gone)).toEqual({ body: ["a", "d"] });
    const removed = edits.removeMerge(placed, "w", "out");
    expect(walkOf(removed)).toEqual({ body: walkOf(before).body, edges: walkOf(before).edges!.slice(0, 2) });
    expect(walkOf(edits.removeMerge(placed, "w", "out", "b.out"))).toEqual(walkOf(before));
    expect(walkOf(edits.unwrap(placed, "w", "choose:0"))).toEqual({
      body: ["a", "b", "c", "d"],
      edges: walkOf(before).edges,
    });
  });

  it("takes what fed a step that is deleted and joined", () => {
    const longer = graphOf({
      body: ["a", choice({ yes: ["b", { use: "b", as: "more" }], no: ["c"] }), "d"],
      merges: { m: ["more.out", "c.out"] },
      edges: [
        ["b.out", "more.x"],
        ["@merge.m", "d.x"],
      ],
    });
    const made = edits.removeItems(longer, "w", ["use:more"], { bridge: true, catalogue: palette });
    expect(walkOf(made).merges).toEqual({ m: ["b.out", "c.out"] });
  });

  it("is renamed, and its sources' steps", () => {
    const placed = edits.place(merged, canvas, { "merge:out": [8, 8] });
    const made = edits.setItem(edits.renameMerge(placed, "w", "out", "picture"), "w", "use:b", { as: "drawn" });
    expect(walkOf(made)).toMatchObject({ merges: { picture: ["drawn.out", "c.out"] } });
    expect(walkOf(made).edges!.at(-1)).toEqual(["@merge.picture", "d.x"]);
    expect(edits.canvasLayout(made, canvas).at).toEqual({ "merge:picture": [8, 8] });
    expect(() => edits.renameMerge(merged, "w", "out", "no name")).toThrow(/name/);
    expect(diff(merged, made).length).toBeGreaterThan(0);
    expect(walkOf(edits.renameNode(merged, "b", "bee")).merges).toEqual({ out: ["bee.out", "c.out"] });
    expect(walkOf(edits.replaceUse(merged, "w", "use:b", "eye", palette).graph).merges).toBeUndefined();
  });

  it("holds the order: what reads it comes after its choice", () => {
    const loops = graphOf({
      body: [{ loop: "l", times: "3", body: ["d", choice({ yes: ["b"], no: ["c"] }, { choose: "d.flag" })] }],
      edges: [["b.out", "d.x"]] as Link[],
    });
    const made = edits.connect(loops, "w", "c.out", "d.x", palette).graph;
    const route = facts(made).routes[0]!;
    expect([route.from, route.carried, route.common]).toEqual(["@merge.out", true, 1]);
    expect(edits.whyNot(made, "w", "@merge.out", "c.y", palette)).toBeNull();
    expect(edits.whyNot(merged, "w", "@merge.out", "c.y", palette)).toMatch(/in a branch/);
    const turned = graphOf({
      body: ["d", "a", choice({ yes: ["b"], no: ["c"] })],
      merges: { m: ["b.out", "c.out"] },
    });
    const drawn = edits.connect(turned, "w", "@merge.m", "d.x", palette).graph;
    expect(walkOf(drawn).body.at(-1)).toBe("d");
    expect(edits.insertOnEdge(drawn, "w", 0, "a", palette).id).toBe("use:a_2");
  });

  it("is told in differences, and spans all components", () => {
    expect(equal(before, merged)).toBe(false);
    expect(diff(before, merged).map(({ text }) => text)).toContain("Merge `out` was added");
    expect(union(merged).edges.map(({ from, to }) => `${from.node}.${from.port} ${to.node}.${to.port}`)).toEqual([
      "a.out b.x",
      "a.out c.x",
      "b.out d.x",
      "c.out d.x",
    ]);
  });
});

describe("a choice among steps", () => {
  const task = {
    outputs: [],
    inputs: { kind: { modality: "text" } },
    steps: [{ choose: "@task.kind", cases: { a: [{ walk: "w" }], b: [] }, otherwise: [{ walk: "w", as: "again" }] }],
  };
  const graph = frozen({ ...before, tasks: { t: task } }) as unknown as GraphDocument;
  const steps = (made: GraphDocument) => made.tasks!["t"]!.steps as object[];

  it("has cases that steps move between", () => {
    const moved = edits.moveStep(graph, "t", "/steps/0/cases/a/0", "/steps/0/cases/b/0");
    expect(steps(moved)[0]).toMatchObject({ cases: { a: [], b: [{ walk: "w" }] } });
    const out = edits.moveStep(graph, "t", "/steps/0/otherwise/0", "/steps/0");
    expect(steps(out)).toMatchObject([{ walk: "w", as: "again" }, { otherwise: [] }]);
    const named = edits.renameStepCase(graph, "t", "/steps/0", "a", "photo");
    expect(Object.keys((steps(named)[0] as { cases: object }).cases)).toEqual(["photo", "b"]);
    expect(() => edits.renameStepCase(graph, "t", "/steps/0", "a", "b")).toThrow(/already a case/);
    expect(steps(edits.removeStepCase(graph, "t", "/steps/0", "a"))[0]).toMatchObject({ cases: { b: [] } });
    expect(steps(edits.removeStepCase(graph, "t", "/steps/0", null))[0]).not.toHaveProperty("otherwise");
  });

  it("follows names", () => {
    expect(steps(edits.renameTaskInput(graph, "t", "kind", "what"))[0]).toMatchObject({ choose: "@task.what" });
    expect(steps(edits.removeTaskInput(graph, "t", "kind"))[0]).toMatchObject({ choose: "" });
    const renamed = edits.renameWalk(graph, "w", "v");
    expect(steps(renamed)[0]).toMatchObject({
      cases: { a: [{ walk: "v" }] },
      otherwise: [{ walk: "v", as: "again" }],
    });
    const bound = edits.setStep(edits.setResult(graph, "w", "r", "a.flag"), "t", "/steps/0", { choose: "w.r" });
    expect(steps(edits.renameResult(bound, "w", "r", "s"))[0]).toMatchObject({ choose: "w.s" });
    expect(steps(edits.renameWalk(bound, "w", "v"))[0]).toMatchObject({ choose: "v.r" });
    expect(steps(edits.removeWalk(graph, "w"))[0]).toMatchObject({ cases: { a: [], b: [] }, otherwise: [] });
  });
});

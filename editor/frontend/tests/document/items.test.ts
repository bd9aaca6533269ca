import { describe, expect, it } from "vitest";
import * as edits from "../../src/document/edits";
import { NEVER } from "../../src/document/expressions";
import { factsOf } from "../../src/document/routes";
import type { GraphDocument, Item, Link, Walk } from "../../src/document/types";
import { cases, graphOf, graphs, palette } from "./cases";

const canvas = { kind: "walk", walk: "w", inside: null } as const;
const walkOf = (graph: GraphDocument): Walk => graph.walks!["w"]!;
const bodyOf = (graph: GraphDocument): Item[] => walkOf(graph).body;
const loop = (body: Item[], more = {}): Item => ({ loop: "l", times: "3", ...more, body }) as Item;

describe("items", () => {
  it("are put in under fresh names, and taken out again", () => {
    const before = graphOf({ body: ["a", loop(["b"])] });
    const use = edits.insertUse(before, "w", "a", { parent: "loop:l", index: 0 });
    expect(bodyOf(use.graph)).toEqual(["a", loop([{ use: "a", as: "a_2" }, "b"])]);
    expect(use.id).toBe("use:a_2");
    expect(edits.removeItems(use.graph, "w", [use.id])).toEqual(before);
    expect(() => edits.insertUse(before, "w", "gone", { parent: null })).toThrow(/no node/);
    expect(() => edits.insertUse(before, "w", "a", { parent: "use:a" })).toThrow(/can't hold/);
    const more = edits.insertLoop(before, "w", { parent: null, index: 1 }, { times: "n", until: "b.stop" });
    expect(bodyOf(more.graph)[1]).toEqual({ loop: "loop", times: "n", until: "b.stop", body: [] });
    expect(() => edits.insertLoop(before, "w", { parent: null }, { loop: "l" })).toThrow(/already/);
    expect(edits.insertParallel(before, "w", { parent: null }).id).toBe("parallel:0");
    expect(edits.insertSequence(before, "w", { parent: "loop:l" }).id).toBe("sequence:0");
    const states = { s: { kind: "tensor" }, t: { kind: "tensor" } } as const;
    expect(edits.insertFork(graphOf({ body: ["a"] }, { states }), "w", "s", "t", { parent: null }).id).toBe("fork:0");
    expect(() => edits.insertFork(before, "w", "s", "t", { parent: null })).toThrow(/no state/);
  });

  it("move, in their order, and their containers' ids with the layout", () => {
    const before = graphOf(
      { body: ["a", { parallel: [["b"], "c"] }, loop([{ parallel: ["d"] }])] },
      { layout: { walks: { w: { at: { "parallel:1": [1, 1], "@in": [2, 2] }, closed: ["parallel:1"] } } } },
    );
    const made = edits.moveItems(before, "w", ["use:b", "use:a"], { parent: null, index: 3 });
    expect(bodyOf(made)).toEqual([{ parallel: ["c"] }, loop([{ parallel: ["d"] }]), "a", "b"]);
    const first = edits.moveItems(before, "w", ["loop:l"], { parent: null, index: 0 });
    expect(edits.canvasLayout(first, canvas)).toEqual({
      at: { "parallel:0": [1, 1], "@in": [2, 2] },
      closed: ["parallel:0"],
    });
    expect(edits.moveItems(before, "w", ["use:a"], { parent: null, index: 1 })).toBe(before);
    expect(() => edits.moveItems(before, "w", ["loop:l"], { parent: "loop:l" })).toThrow(/into itself/);
    expect(() => edits.moveItems(before, "w", ["use:gone"], { parent: null })).toThrow(/no longer/);
  });

  it("go with their edges, results and ends of loops", () => {
    const before = graphOf(
      {
        body: ["a", loop(["b", "c"], { until: "b.stop", drop_last: true })],
        edges: [
          ["a.out", "b.x"],
          ["b.out", "c.x"],
          ["c.out", "@out.o"],
        ],
        results: { r: "b.out", s: "c.out" },
      },
      { layout: { walks: { w: { at: { "use:b": [1, 1], "use:c": [2, 2] } } } } },
    );
    const made = edits.removeItems(before, "w", ["use:b"]);
    expect(walkOf(made)).toEqual({ body: ["a", loop(["c"])], edges: [["c.out", "@out.o"]], results: { s: "c.out" } });
    expect(edits.canvasLayout(made, canvas)).toEqual({ at: { "use:c": [2, 2] } });
    const joined = edits.removeItems(before, "w", ["use:b"], { bridge: true, catalogue: palette });
    expect(walkOf(joined).edges).toEqual([
      ["a.out", "c.x"],
      ["c.out", "@out.o"],
    ]);
    expect(walkOf(joined).results).toEqual({ r: "a.out", s: "c.out" });
    expect(walkOf(edits.removeItems(before, "w", ["loop:l"]))).toEqual({ body: ["a"] });
  });

  it("keep the form in which they were written", () => {
    const before = graphOf({ body: ["a", ["b", { use: "c" }]] });
    const when = edits.setItem(before, "w", "sequence:0", { when: "n > 1" });
    expect(bodyOf(when)).toEqual(["a", { sequence: ["b", { use: "c" }], when: "n > 1" }]);
    expect(edits.setItem(when, "w", "sequence:0", { when: null })).toEqual(before);
    const use = edits.setItem(before, "w", "use:b", { when: "n > 1" });
    expect(bodyOf(use)[1]).toEqual([{ use: "b", when: "n > 1" }, { use: "c" }]);
    expect(edits.setItem(use, "w", "use:b", { when: null })).toEqual(before);
    expect(edits.setItem(before, "w", "use:c", { when: null })).toBe(before);
  });
});

describe("wrap and unwrap", () => {
  const before = graphOf({
    body: ["a", "b", "c", "d"],
    edges: [
      ["a.out", "b.x"],
      ["a.out", "c.x"],
      ["c.out", "d.x"],
    ],
  });

  it("are inverse", () => {
    for (const kind of ["loop", "sequence"] as const) {
      const { graph, id } = edits.wrap(before, "w", ["use:b", "use:c"], kind);
      expect(bodyOf(graph)).toHaveLength(3);
      expect(edits.unwrap(graph, "w", id)).toEqual(before);
    }
    const { graph, id } = edits.wrap(before, "w", ["use:b", "use:c", "use:d"], "parallel");
    expect(bodyOf(graph)).toEqual(["a", { parallel: ["b", ["c", "d"]] }]);
    expect(edits.unwrap(graph, "w", id)).toEqual(before);
  });

  it("move what stands between out of the way", () => {
    const tied = graphOf({ body: ["a", "b", "c", "d"], edges: [["a.out", "b.x"]] });
    const made = (graph: GraphDocument) =>
      bodyOf(edits.wrap(graph, "w", ["use:a", "use:d"], "loop", { loop: "l" }).graph);
    expect(made(tied)).toEqual([loop(["a", "d"], { times: "1" }), "b", "c"]);
    const fed = graphOf({
      body: ["a", "b", "c", "d"],
      edges: [
        ["b.out", "c.x"],
        ["c.out", "d.x"],
      ],
    });
    expect(made(fed)).toEqual(["b", "c", loop(["a", "d"], { times: "1" })]);
    expect(() => edits.wrap(before, "w", ["use:a", "use:d"], "loop")).toThrow(/`c` stands between/);
  });

  it("refuse what makes no sense", () => {
    expect(() => edits.wrap(before, "w", ["use:c", "use:d"], "parallel")).toThrow(/feed one another/);
    expect(() => edits.wrap(before, "w", [], "loop")).toThrow(/Select/);
    const inside = graphOf({ body: ["a", loop(["b"])] });
    expect(() => edits.wrap(inside, "w", ["use:a", "use:b"], "loop")).toThrow(/one container/);
    expect(() => edits.unwrap(inside, "w", "use:a")).toThrow(/container/);
    const branches = graphOf({ body: [{ parallel: [["a", "b"], "c"] }], edges: [["a.out", "b.x"]] });
    expect(() => edits.unwrap(branches, "w", "sequence:0")).toThrow(/branches/);
    expect(edits.insertUse(before, "w", "a", { parent: null }).graph.walks!["w"]!.edges).toBe(walkOf(before).edges);
  });

  it("keep what a loop's index and a condition mean", () => {
    const indexed = graphOf({
      body: [loop(["a", { use: "b", when: "@loop.index > 0" }])],
      edges: [
        ["@loop.index", "b.x"],
        ["@loop.index", "a.x"],
      ],
    });
    const made = edits.wrap(indexed, "w", ["use:b"], "loop", { loop: "m" }).graph;
    expect(JSON.stringify(bodyOf(made))).toContain('"when":"@loop.l > 0"');
    expect(walkOf(made).edges).toEqual([
      ["@loop.l", "b.x"],
      ["@loop.index", "a.x"],
    ]);
    const guarded = graphOf({ body: [loop(["a", { use: "b", when: "m > 1" }], { when: "n > 1" })] });
    expect(bodyOf(edits.unwrap(guarded, "w", "loop:l"))).toEqual([
      { use: "a", when: "n > 1" },
      { use: "b", when: "(n > 1) and (m > 1)" },
    ]);
  });

  it("drop flags that say nothing without the loop", () => {
    const flagged = graphOf({
      body: ["a", loop(["b"]), "c"],
      edges: [
        { from: "a.all", to: "b.x", each: true },
        { from: "b.out", to: "c.many", collect: true },
      ],
    });
    expect(walkOf(edits.unwrap(flagged, "w", "loop:l")).edges).toEqual([
      ["a.all", "b.x"],
      ["b.out", "c.many"],
    ]);
  });
});

describe("mute and bypass", () => {
  const edges: Link[] = [
    ["a.out", "b.x"],
    ["b.out", "c.x"],
    ["b.out", "d.x"],
    ["c.out", "@out.o"],
  ];
  const before = graphOf({ body: ["a", "b", loop(["c"]), ["d"]], edges, results: { r: "b.out" } });

  it("of any item are taken back", () => {
    const ids = ["use:b", "loop:l", "sequence:0", "use:c"];
    const muted = edits.mute(before, "w", ids);
    expect([...edits.mutedOf(muted, "w")]).toEqual(
      [...factsOf(walkOf(muted)).list].filter(({ id }) => ids.includes(id)).map(({ id }) => [id, "muted"]),
    );
    expect(JSON.stringify(bodyOf(muted)).split(NEVER)).toHaveLength(5);
    expect(edits.mute(muted, "w", ids)).toBe(muted);
    expect(edits.unmute(muted, "w", ids)).toEqual(before);
    const guarded = edits.setItem(before, "w", "use:a", { when: "n > 1" });
    expect(edits.unmute(edits.mute(guarded, "w", ["use:a"]), "w", ["use:a"])).toEqual(guarded);
  });

  it("lead values around a use, and back", () => {
    const passed = edits.bypass(before, "w", ["use:b"], palette);
    expect(walkOf(passed).edges).toEqual([
      ["a.out", "b.x"],
      ["a.out", "c.x"],
      ["a.out", "d.x"],
      ["c.out", "@out.o"],
    ]);
    expect(walkOf(passed).results).toEqual({ r: "a.out" });
    expect(edits.mutedOf(passed, "w").get("use:b")).toBe("bypassed");
    expect(edits.unbypass(passed, "w", ["use:b"], palette)).toEqual(before);
    expect(edits.unmute(passed, "w", ["use:b"])).toEqual(before);
    expect(() => edits.bypass(before, "w", ["loop:l"], palette)).toThrow(/single uses/);
  });

  it("of neighbours are taken back in any order", () => {
    const row = graphOf({
      body: ["a", "b", "c", "d"],
      edges: [
        ["a.out", "b.x"],
        ["b.out", "c.x"],
        ["c.out", "d.x"],
      ],
    });
    for (const [first, second] of [
      ["use:b", "use:c"],
      ["use:c", "use:b"],
    ] as const) {
      const both = edits.bypass(edits.bypass(row, "w", [first], palette), "w", [second], palette);
      expect(walkOf(both).edges!.at(-1)).toEqual(["a.out", "d.x"]);
      const one = edits.unbypass(both, "w", ["use:b"], palette);
      expect(walkOf(one).edges).toEqual([
        ["a.out", "b.x"],
        ["b.out", "c.x"],
        ["b.out", "d.x"],
      ]);
      expect(edits.unbypass(one, "w", ["use:c"], palette)).toEqual(row);
    }
  });

  it("stay as they are while others are brought back that they have nothing to do with", () => {
    const passed = edits.bypass(before, "w", ["use:b"], palette);
    expect(edits.unbypass(passed, "w", ["use:a"], palette)).toBe(passed);
    expect(edits.unmute(edits.mute(passed, "w", ["use:d"]), "w", ["use:d"])).toEqual(passed);
  });

  it("keep a condition that they were given since, whatever else is brought back", () => {
    const both = edits.bypass(before, "w", ["use:b", "use:c"], palette);
    const given = edits.setItem(both, "w", "use:b", { when: "n > 1" });
    const made = edits.unbypass(given, "w", ["use:c"], palette);
    expect(made).toEqual(edits.setItem(before, "w", "use:b", { when: "n > 1" }));
  });

  it("are followed by new names, and leave edges alone whose types differ", () => {
    const passed = edits.renameNode(edits.bypass(before, "w", ["use:b"], palette), "a", "start");
    expect(edits.unbypass(passed, "w", ["use:b"], palette)).toEqual(edits.renameNode(before, "a", "start"));
    const typed = graphOf({
      inputs: { i: "image" },
      body: ["eye"],
      edges: [
        ["@in.i", "eye.image"],
        ["eye.seen", "@out.o"],
      ],
    });
    expect(walkOf(edits.bypass(typed, "w", ["use:eye"], palette)).edges).toBe(walkOf(typed).edges);
  });

  it("of each use of every bundled graph are taken back", () => {
    let changed = 0;
    for (const graph of Object.values(graphs()))
      for (const walk of Object.keys(graph.walks!)) {
        const uses = factsOf(graph.walks![walk]!)
          .list.filter(({ kind }) => kind === "use")
          .map(({ id }) => id);
        for (const id of [...uses, ...(uses.length ? [null] : [])]) {
          const ids = id === null ? uses : [id];
          const passed = edits.bypass(graph, walk, ids, cases.catalogue);
          if (passed.walks![walk]!.edges !== graph.walks![walk]!.edges) changed += 1;
          expect(edits.unbypass(passed, walk, ids, cases.catalogue)).toEqual(graph);
        }
      }
    expect(changed).toBeGreaterThan(20);
  });
});

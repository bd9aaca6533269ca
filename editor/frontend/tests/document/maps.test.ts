import { describe, expect, it } from "vitest";
import * as edits from "../../src/document/edits";
import { diff, equal } from "../../src/document/diff";
import { factsOf } from "../../src/document/routes";
import type { Catalogue } from "../../src/messages/answers";
import type { GraphDocument, Item, Link, Walk } from "../../src/document/types";
import { graphOf, palette as mixed } from "./cases";

const walkOf = (graph: GraphDocument): Walk => graph.walks!["w"]!;
const facts = (graph: GraphDocument) => factsOf(walkOf(graph));
const map = (list: string, body: Item[], more = {}): Item => ({ map: list, bound: "9", body, ...more }) as Item;

const mix = mixed["test.mix"]!;
const port = (name: string, type: string) => ({ name, type, optional: true, description: "" });
const palette: Catalogue = {
  ...mixed,
  "test.mix": {
    ...mix,
    inputs: [...mix.inputs, port("text", "text"), port("texts", "list of text")],
    outputs: [...mix.outputs, port("text", "text"), port("texts", "list of text"), port("flag", "flag")],
  },
};

/** a gives a list, b takes each of its items, c takes all that b gives. */
const before = graphOf({
  body: ["a", map("a.all", ["b"], { width: "3" }), "c"],
  edges: [
    { from: "a.all", to: "b.x", each: true },
    { from: "b.out", to: "c.many", collect: true },
  ],
});
const plain = graphOf({
  body: ["a", "b", "c"],
  edges: [
    ["a.all", "b.x"],
    ["b.out", "c.many"],
    ["b.text", "@out.o"],
  ],
  results: { kept: "b.out" },
});
const wrapped = edits.wrap(plain, "w", ["use:b"], "map");

describe("a map", () => {
  it("is a loop with a head that stands before what it holds", () => {
    const graph = graphOf({
      body: [
        map("@in.x", ["a", map("a.all", [], { as: "inner" })]),
        { loop: "l", times: "2", body: [map("", ["b"], { as: "last" })] },
      ],
    });
    expect(facts(graph).list.map(({ id, pointer, order, loops }) => [id, pointer, order, loops])).toEqual([
      ["map:items", "/body/0", 0, []],
      ["use:a", "/body/0/body/0", 1, ["items"]],
      ["map:inner", "/body/0/body/1", 2, ["items"]],
      ["loop:l", "/body/1", 3, []],
      ["map:last", "/body/1/body/0", 3, ["l"]],
      ["use:b", "/body/1/body/0/body/0", 4, ["l", "last"]],
    ]);
    expect(facts(graph).heads.map(({ from, to, pointer, left }) => [from, to, pointer, left])).toEqual([
      ["@in.x", "@map.map:items", "/body/0/map", []],
      ["a.all", "@map.map:inner", "/body/0/body/1/map", []],
    ]);
  });

  it("is put around steps: what leaves is collected, or sent one by one", () => {
    expect(wrapped.id).toBe("map:items");
    expect(walkOf(wrapped.graph)).toEqual({
      body: ["a", { map: "", bound: "100", body: ["b"] }, "c"],
      edges: [
        ["a.all", "b.x"],
        { from: "b.out", to: "c.many", collect: true },
        { from: "b.text", to: "@out.o", each: true },
      ],
      results: { kept: { from: "b.out", collect: true } },
    });
    expect(edits.unwrap(wrapped.graph, "w", wrapped.id)).toEqual(plain);
    const two = edits.wrap(wrapped.graph, "w", ["use:c"], "map", { bound: "n", width: "2" });
    expect(walkOf(two.graph).body[2]).toEqual({ map: "", as: "items_2", bound: "n", width: "2", body: ["c"] });
    expect(() => edits.wrap(plain, "w", ["use:b"], "map", { as: "no name" })).toThrow(/name/);
  });

  it("keeps what the index of the loop around it means", () => {
    const looped = graphOf({
      body: [{ loop: "l", times: "3", body: [{ use: "a", when: "@loop.index > 1" }] }] as Item[],
      edges: [["@loop.index", "a.x"]] as Link[],
    });
    const made = edits.wrap(looped, "w", ["use:a"], "map").graph;
    expect(walkOf(made)).toMatchObject({
      body: [{ loop: "l", body: [{ map: "", body: [{ use: "a", when: "@loop.l > 1" }] }] }],
      edges: [["@loop.l", "a.x"]],
    });
  });

  it("goes through a list that is there before it, item by item", () => {
    const set = (from: string | null) => edits.setHead(wrapped.graph, "w", "map:items", from, palette);
    expect(walkOf(set("a.all"))).toMatchObject({
      body: ["a", { map: "a.all", bound: "100", body: ["b"] }, "c"],
      edges: [{ from: "a.all", to: "b.x", each: true }, {}, {}],
    });
    expect(set(null)).toBe(wrapped.graph);
    expect(walkOf(edits.setHead(set("a.all"), "w", "map:items", null)).body[1]).toMatchObject({ map: "" });
    expect(() => set("b.all")).toThrow(/inside the map/);
    expect(() => set("a.text")).toThrow(/a list, or the slices of a tensor, this is one text/);
    expect(() => set("a.flag")).toThrow(/a list/);
    expect(() => set("a.out")).toThrow(/a list/);
    expect(() => set("@loop.index")).toThrow(/a step's output/);
    expect(() => set("gone.x")).toThrow(/no use/);
    expect(() => edits.setHead(wrapped.graph, "w", "use:a", "b.all", palette)).toThrow(/Only a choice or a map/);
    // What it takes comes before it.
    const turned = graphOf({ body: [map("", ["b"]), "a"] });
    expect(walkOf(edits.setHead(turned, "w", "map:items", "a.texts", palette)).body).toMatchObject([
      "a",
      { map: "a.texts" },
    ]);
  });

  it("brings what fits whole as a whole", () => {
    const both = graphOf({
      body: ["a", map("", ["b"])],
      edges: [
        ["a.all", "b.many"],
        ["a.all", "b.x"],
      ],
    });
    expect(walkOf(edits.setHead(both, "w", "map:items", "a.all", palette)).edges).toEqual([
      ["a.all", "b.many"],
      { from: "a.all", to: "b.x", each: true },
    ]);
  });

  it("gives each edge the flags that it needs", () => {
    const drawn = (from: string, to: string) => {
      const { graph, index } = edits.connect({ ...before }, "w", from, to, palette);
      const [link] = [walkOf(graph).edges![index]!];
      return Array.isArray(link) ? {} : { each: link.each, collect: link.collect };
    };
    expect(drawn("a.all", "b.y")).toEqual({ each: true });
    expect(drawn("a.out", "b.y")).toEqual({});
    expect(drawn("a.all", "b.many")).toEqual({});
    expect(drawn("a.texts", "b.text")).toEqual({ each: true });
    expect(drawn("b.out", "@out.o")).toEqual({ each: true });
    expect(drawn("b.out", "c.many")).toEqual({ collect: true });
    expect(drawn("b.text", "c.text")).toEqual({ collect: true });
    expect(drawn("b.text", "c.texts")).toEqual({ collect: "list" });
    expect(edits.whyNot(before, "w", "b.out", "c.x", palette)).toMatch(/axes|axis/);
    const kept = edits.setResult(before, "w", "kept", "b.out");
    expect(walkOf(kept).results).toEqual({ kept: { from: "b.out", collect: true } });
    expect(walkOf(edits.setResult(kept, "w", "kept", "b.text", "list")).results).toEqual({
      kept: { from: "b.text", collect: "list" },
    });
    expect(walkOf(edits.setResult(kept, "w", "kept", "a.out")).results).toEqual({ kept: "a.out" });
  });

  it("lets no value be the last one, nor go from item to item", () => {
    const sent = edits.connect(before, "w", "b.out", "@out.o", palette);
    expect(() => edits.setEdge(sent.graph, "w", sent.index, { each: false })).toThrow(
      /a value for every item of `items`/,
    );
    expect(walkOf(edits.setEdge(sent.graph, "w", sent.index, { each: false, collect: true })).edges!.at(-1)).toEqual({
      from: "b.out",
      to: "@out.o",
      collect: true,
    });
    expect(() => edits.setEdge(before, "w", 1, { collect: false })).toThrow(/a value for every item/);
    expect(edits.whyNot(before, "w", "b.out", "b.y", palette)).toMatch(/items of `items` are independent/);
    const two = graphOf({ body: ["a", map("a.all", ["b", "d"])], edges: [["b.out", "d.x"]] });
    expect(edits.whyNot(two, "w", "d.out", "b.y", palette)).toMatch(/independent/);
    expect(() => edits.makeCarried(two, "w", 0)).toThrow(/independent/);
    // A loop around the map or in it carries.
    const around = graphOf({ body: [{ loop: "l", times: "2", body: ["a", map("a.all", ["b"]), "c"] }] as Item[] });
    expect(edits.whyNot(around, "w", "c.out", "a.y", palette)).toBeNull();
    const inner = graphOf({
      body: [map("@in.x", [{ loop: "l", times: "2", body: ["b"] }])],
      inputs: { x: "list of text" },
    });
    expect(edits.whyNot(inner, "w", "b.out", "b.y", palette)).toBeNull();
  });

  it("hands its values on to heads and merges only once they are collected", () => {
    const later = graphOf({
      body: [
        "a",
        map("a.all", ["b"]),
        map("", ["c"], { as: "more" }),
        { choose: "", cases: { x: ["d"], y: [] } },
      ] as Item[],
    });
    const why = (from: string, to: string) => edits.whyNot(later, "w", from, to, palette);
    expect(why("b.all", "@map.map:more")).toMatch(/collect them in a step after/);
    expect(why("b.text", "@choice.choose:0")).toMatch(/collect them in a step after/);
    expect(why("a.text", "@choice.choose:0")).toBeNull();
    expect(why("a.all", "@map.map:gone")).toMatch(/no such map/);
    const inside = graphOf({ body: ["a", map("a.all", ["b", map("", ["c"], { as: "inner" })])] });
    expect(edits.whyNot(inside, "w", "b.all", "@map.map:inner", palette)).toBeNull();
    const branched = graphOf({
      body: ["a", { choose: "a.flag", cases: { true: [map("a.all", ["b"])], false: ["c", "d"] } }] as Item[],
      merges: { m: ["c.out", "d.out"] },
    });
    expect(edits.whyNot(branched, "w", "b.out", "@merge.m", palette)).toMatch(/collect them/);
  });

  it("lets a merge in it be sent one by one, but not collected", () => {
    const graph = graphOf({
      body: ["a", map("a.all", [{ choose: "a.flag", cases: { true: ["b"], false: ["d"] } }]), "c"] as Item[],
      merges: { m: ["b.out", "d.out"] },
    });
    const sent = edits.connect(graph, "w", "@merge.m", "@out.o", palette).graph;
    expect(walkOf(sent).edges).toEqual([{ from: "@merge.m", to: "@out.o", each: true }]);
    expect(edits.whyNot(graph, "w", "@merge.m", "c.many", palette)).toMatch(/a value for every item/);
    expect(() => edits.setResult(graph, "w", "r", "@merge.m")).toThrow(/collect them in a step after/);
  });

  it("is read by no stream", () => {
    const streams = [
      { name: "s", from: "a.out", walks: ["other"], chunks: { policy: "whole" } },
    ] as GraphDocument["streams"];
    const graph = graphOf({ body: [map("@in.x", ["b"]), "c"], inputs: { x: "list of text" } }, { streams: streams! });
    expect(edits.whyNot(graph, "w", "@stream.s", "b.x", palette)).toMatch(/read it before the map/);
    expect(edits.whyNot(graph, "w", "@stream.s", "c.x", palette)).toBeNull();
  });

  it("takes steps in and gives them back, with the flags of their edges", () => {
    const into = edits.moveItems(before, "w", ["use:c"], { parent: "map:items" });
    expect(walkOf(into)).toMatchObject({
      body: ["a", { body: ["b", "c"] }],
      edges: [{ each: true }, ["b.out", "c.many"]],
    });
    const sent = edits.connect(
      graphOf({ body: ["a", "b", map("a.all", [])], edges: [["b.out", "@out.o"]] }),
      "w",
      "a.out",
      "b.x",
      palette,
    ).graph;
    const moved = edits.moveItems(sent, "w", ["use:b"], { parent: "map:items" });
    expect(walkOf(moved).edges).toEqual([{ from: "b.out", to: "@out.o", each: true }, ["a.out", "b.x"]]);
    expect(edits.moveItems(moved, "w", ["use:b"], { parent: null, index: 1 })).toEqual(sent);
    expect(() => edits.moveItems(before, "w", ["map:items"], { parent: "map:items" })).toThrow(/into itself/);
    const made = edits.insertMap(before, "w", { parent: "map:items" }, { map: "b.all", width: "1" });
    expect(made.id).toBe("map:items_2");
    expect(edits.unwrap(made.graph, "w", made.id)).toEqual(before);
  });

  it("has fields that are set and taken away", () => {
    const set = (fields: edits.ItemFields) => walkOf(edits.setItem(before, "w", "map:items", fields)).body[1];
    expect(set({ bound: "n", width: "1" })).toEqual(map("a.all", ["b"], { bound: "n" }));
    expect(set({ width: null, when: "n > 1" })).toEqual(map("a.all", ["b"], { when: "n > 1" }));
    expect(() => set({ as: "index" })).toThrow(/index/);
    expect(edits.mute(before, "w", ["map:items"]).walks!["w"]!.body[1]).toHaveProperty("when");
  });

  it("follows other names, its own and its list's", () => {
    const read = graphOf({
      ...walkOf(before),
      body: [
        "a",
        map("a.all", [
          { use: "b", when: "@loop.items > 1" },
          map("b.all", ["d"], { as: "inner", bound: "@loop.items + 1", width: "@loop.items" }),
        ]),
      ],
      edges: [...walkOf(before).edges!, ["@loop.items", "b.y"]],
    });
    const named = edits.setItem(read, "w", "map:items", { as: "rows" });
    expect(walkOf(named).body[1]).toEqual(
      map(
        "a.all",
        [
          { use: "b", when: "@loop.rows > 1" },
          map("b.all", ["d"], { as: "inner", bound: "@loop.rows + 1", width: "@loop.rows" }),
        ],
        { as: "rows" },
      ),
    );
    expect(walkOf(named).edges!.at(-1)).toEqual(["@loop.rows", "b.y"]);
    expect(equal(edits.setItem(named, "w", "map:rows", { as: null }), read)).toBe(true);
    expect(() => edits.setItem(read, "w", "map:items", { as: "inner" })).toThrow(/already a loop/i);
    const list = (graph: GraphDocument) => facts(graph).list.find(({ kind }) => kind === "map")!.item;
    expect(list(edits.setItem(before, "w", "use:a", { as: "first" }))).toMatchObject({ map: "first.all" });
    expect(list(edits.removeItems(before, "w", ["use:a"]))).toMatchObject({ map: "" });
    expect(list(edits.replaceUse(before, "w", "use:a", "d", palette).graph)).toMatchObject({ map: "d.all" });
    const input = graphOf({ inputs: { x: "list of text" }, body: [map("@in.x", ["a"])] });
    const renamed = edits.renameInput(input, "w", "x", "y");
    expect(list(renamed)).toMatchObject({ map: "@in.y" });
    expect(list(edits.removeInput(renamed, "w", "y"))).toMatchObject({ map: "" });
  });

  it("is copied with its name and its list", () => {
    const clip = edits.copyItems(before, "w", ["use:a", "map:items"]);
    const { graph, ids } = edits.pasteItems(before, "w", clip);
    expect(walkOf(graph).body.slice(3)).toEqual([
      { use: "a", as: "a_2" },
      { map: "a_2.all", bound: "9", width: "3", as: "items_2", body: [{ use: "b", as: "b_2" }] },
    ]);
    expect(ids).toEqual(["use:a_2", "map:items_2"]);
    expect(edits.removeItems(graph, "w", ids)).toEqual(before);
  });

  it("is told in differences, where what is left out says nothing", () => {
    const texts = (made: GraphDocument) => diff(before, made).map(({ text }) => text);
    expect(texts(edits.setItem(before, "w", "map:items", { bound: "12" }))).toEqual(["Map `items`: bound 9 → 12"]);
    expect(texts(edits.removeItems(before, "w", ["map:items"]))).toContain("Map `items` was removed");
    expect(texts(edits.moveItems(before, "w", ["use:c"], { parent: "map:items" }))).toContain(
      "`c` moved to Map `items`",
    );
    const longer = graphOf({
      ...walkOf(plain),
      body: ["a", map("a.all", [{ use: "b" }], { width: "1", when: null }), "c"],
    });
    expect(equal(longer, graphOf({ ...walkOf(plain), body: ["a", map("a.all", ["b"]), "c"] }))).toBe(true);
  });
});

import { describe, expect, it } from "vitest";
import * as edits from "../../src/document/edits";
import type { GraphDocument, Item, Link, Walk } from "../../src/document/types";
import { cases, frozen, graphOf, palette } from "./cases";

const loop = (body: Item[], name = "l"): Item => ({ loop: name, times: "3", body });
const walkOf = (graph: GraphDocument): Walk => graph.walks!["w"]!;
const connect = (graph: GraphDocument, from: string, to: string, wish = {}) =>
  edits.connect(graph, "w", from, to, palette, wish);
const whyNot = (graph: GraphDocument, from: string, to: string) => edits.whyNot(graph, "w", from, to, palette);

describe("connect", () => {
  it("draws a forward edge", () => {
    const { graph, index } = connect(graphOf({ body: ["a", "b"] }), "a.out", "b.x");
    expect(walkOf(graph)).toEqual({ body: ["a", "b"], edges: [["a.out", "b.x"]] });
    expect(index).toBe(0);
    expect(connect(graph, "a.out", "b.x").graph).toBe(graph);
  });

  it("puts the target behind the source, with what needs it", () => {
    const before = graphOf({ body: ["b", "c", "a", "d"], edges: [["b.out", "c.x"]] });
    const { graph } = connect(before, "a.out", "b.x");
    expect(walkOf(graph)).toEqual({
      body: ["a", "b", "c", "d"],
      edges: [
        ["b.out", "c.x"],
        ["a.out", "b.x"],
      ],
    });
  });

  it("carries a value round a loop where the order must stay", () => {
    const before = graphOf({ body: [loop(["a", "b"])], edges: [["a.out", "b.x"]] });
    const { graph, index } = connect(before, "b.out", "a.x");
    expect(walkOf(graph).body).toEqual([loop(["a", "b"])]);
    expect(edits.makeCarried(graph, "w", index)).toBe(graph);
    expect(whyNot(before, "b.out", "a.x")).toBeNull();
  });

  it("changes the order inside a loop where it may, and carries where that is wished for", () => {
    const before = graphOf({ body: [loop(["b", "a"])] });
    expect(walkOf(connect(before, "a.out", "b.x").graph).body).toEqual([loop(["a", "b"])]);
    expect(walkOf(connect(before, "a.out", "b.x", { carried: true }).graph).body).toEqual([loop(["b", "a"])]);
  });

  it("refuses a way back outside of any loop", () => {
    const before = graphOf({ body: ["a", "b"], edges: [["a.out", "b.x"]] });
    expect(() => connect(before, "b.out", "a.x")).toThrow(edits.EditRefused);
    expect(whyNot(before, "b.out", "a.x")).toMatch(/`b` needs what comes from `a`.*loop/);
    expect(whyNot(before, "a.out", "a.x")).toMatch(/loop/);
  });

  it("refuses to reorder what shares a state", () => {
    const nodes = Object.fromEntries(["a", "b"].map((n) => [n, { component: "test.mix", states: { kv: "kept" } }]));
    const before = graphOf({ body: ["a", "b"] }, { nodes, states: { kept: { kind: "tensor" } } });
    expect(whyNot(before, "b.out", "a.x")).toMatch(/state `kept`/);
  });

  it("carries a value into its own use", () => {
    const before = graphOf({ body: [loop(["a"])] });
    expect(walkOf(connect(before, "a.out", "a.x").graph).edges).toEqual([["a.out", "a.x"]]);
  });

  it("keeps a first value beside a carried one, whichever comes first", () => {
    const first: Link = ["d.out", "a.x"];
    const before = graphOf({ body: ["d", loop(["a", "b"])], edges: [first] });
    const { graph } = connect(before, "b.out", "a.x");
    expect(walkOf(graph)).toEqual({ body: ["d", loop(["a", "b"])], edges: [first, ["b.out", "a.x"]] });
    const carried = graphOf({
      body: ["d", loop(["a", "b"])],
      edges: [
        ["a.out", "b.x"],
        ["b.out", "a.x"],
      ],
    });
    expect(walkOf(connect(carried, "d.out", "a.x").graph).edges).toHaveLength(3);
  });

  it("replaces a second writer in its place", () => {
    const before = graphOf({
      body: ["a", "b", "c"],
      edges: [
        ["a.out", "c.x"],
        ["a.out", "b.x"],
      ],
    });
    const { graph, index } = connect(before, "b.out", "c.x");
    expect([walkOf(graph).edges, index]).toEqual([
      [
        ["b.out", "c.x"],
        ["a.out", "b.x"],
      ],
      0,
    ]);
    const outs = connect(connect(before, "a.out", "@out.o").graph, "b.out", "@out.o").graph;
    expect(walkOf(outs).edges!.slice(2)).toEqual([["b.out", "@out.o"]]);
  });

  it("replaces a second carried writer of one loop", () => {
    const before = graphOf({
      body: [loop(["a", "b"])],
      edges: [
        ["a.out", "b.x"],
        ["b.out", "a.x"],
      ],
    });
    expect(walkOf(connect(before, "a.out", "a.x").graph).edges).toEqual([
      ["a.out", "b.x"],
      ["a.out", "a.x"],
    ]);
  });

  it("says why types don't fit", () => {
    const before = graphOf({ body: ["eye", "a"] });
    expect(whyNot(before, "eye.seen", "a.x")).toBe("`features` does not fit `scalar`.");
    expect(whyNot(before, "a.out", "eye.image")).toBe("`scalar` does not fit `image`.");
    expect(whyNot(before, "a.all", "a.x")).toMatch(/axes|loop/);
  });

  it("takes apart or stacks where only that fits", () => {
    const before = graphOf({ body: ["a", loop(["b"]), "c"] });
    expect(walkOf(connect(before, "a.all", "b.x").graph).edges).toEqual([{ from: "a.all", to: "b.x", each: true }]);
    expect(walkOf(connect(before, "a.all", "b.many").graph).edges).toEqual([["a.all", "b.many"]]);
    expect(walkOf(connect(before, "b.out", "c.many").graph).edges).toEqual([
      { from: "b.out", to: "c.many", collect: true },
    ]);
    expect(walkOf(connect(before, "b.out", "@out.o", { each: true }).graph).edges).toEqual([
      { from: "b.out", to: "@out.o", each: true },
    ]);
  });

  it("reads a loop's index inside of it only", () => {
    const before = graphOf({ body: ["a", loop(["b"])] });
    expect(whyNot(before, "@loop.index", "b.x")).toBeNull();
    expect(whyNot(before, "@loop.l", "b.x")).toBeNull();
    expect(whyNot(before, "@loop.other", "b.x")).toMatch(/isn't around/);
    expect(whyNot(before, "@loop.index", "a.x")).toMatch(/no loop around/);
    expect(whyNot(before, "@loop.index", "@out.o")).toMatch(/no loop around/);
  });

  it("knows the Walk's inputs and outputs", () => {
    const before = graphOf({ inputs: { n: "scalar: int", picture: "image" }, body: ["a"] });
    expect(whyNot(before, "@in.n", "a.x")).toBeNull();
    expect(whyNot(before, "@in.picture", "a.x")).toMatch(/does not fit/);
    expect(whyNot(before, "@in.gone", "a.x")).toMatch(/no input/);
    expect(whyNot(before, "@in.n", "@out.n")).toBeNull();
    expect(whyNot(before, "@in.n", "@out.not a name")).toMatch(/name of an output/);
    expect(whyNot(before, "@in.n", "@in.n")).toMatch(/takes no edge/);
    expect(whyNot(before, "@in.n", "a.out")).toMatch(/no input `out`/);
    expect(whyNot(before, "gone.out", "a.x")).toMatch(/no use `gone`/);
    expect(() => connect(frozen({ name: "g" }), "a.x", "b.x")).toThrow(/no Walk/);
  });

  it("reads a stream from other partitions only", () => {
    const walks = { w: { body: ["b", loop(["c"])] }, source: { body: ["a"] } };
    const streams = [{ name: "s", from: "a.out", walks: ["source"], chunks: { policy: "fixed" as const, size: 2 } }];
    const before = graphOf({ body: [] }, { walks, streams });
    expect(walkOf(connect(before, "@stream.s", "c.x").graph).edges).toEqual([
      { from: "@stream.s", to: "c.x", each: true },
    ]);
    expect(whyNot(before, "@stream.s", "b.x")).toBeNull();
    expect(whyNot(before, "@stream.gone", "b.x")).toMatch(/no stream/);
    const tied = graphOf({ body: [] }, { walks: { ...walks, both: { body: ["a", "b"] } }, streams });
    expect(whyNot(tied, "@stream.s", "b.x")).toMatch(/shares nodes with `source`/);
  });

  it("refuses edges between branches", () => {
    const before = graphOf({ body: [{ parallel: ["a", ["b", "c"]] }] });
    expect(whyNot(before, "a.out", "c.x")).toMatch(/side by side/);
    expect(whyNot(before, "b.out", "c.x")).toBeNull();
  });

  it("is judged alike for a wire that is dragged from either end", () => {
    const before = graphOf({
      inputs: { p: "image" },
      body: ["a", "eye", loop(["b", "c"])],
      edges: [["b.out", "c.x"]],
    });
    const sources = ["@in.p", "@loop.index", "@loop.l", "a.out", "a.all", "b.out", "c.out", "c.all", "eye.seen"];
    const targets = ["a.x", "a.many", "b.x", "b.y", "c.many", "eye.image", "@out.o"];
    for (const from of sources) {
      const to = edits.compatible(before, "w", "source", from, palette);
      for (const target of targets) {
        const reason = whyNot(before, from, target);
        expect([to(target), to(target)]).toEqual([reason, reason]);
        expect(edits.compatible(before, "w", "target", target, palette)(from)).toBe(reason);
        if (reason === null) expect(connect(before, from, target).graph).not.toBe(before);
        else expect(() => connect(before, from, target)).toThrow(reason);
      }
    }
  });
});

describe("edges", () => {
  const before = graphOf({
    body: ["a", loop(["b", "c"]), "d"],
    edges: [["a.out", "b.x"], ["b.out", "c.x"], { from: "c.out", to: "d.many", collect: true, note: 1 } as Link],
  });

  it("are led to other ends, with the flags that still say something", () => {
    const { graph, index } = edits.reconnect(before, "w", 2, { from: "b.out" }, palette);
    expect([walkOf(graph).edges![2], index]).toEqual([{ from: "b.out", to: "d.many", collect: true }, 2]);
    expect(() => edits.reconnect(before, "w", 0, { from: "d.out" }, palette)).toThrow(edits.EditRefused);
    expect(() => edits.reconnect(before, "w", 9, { from: "d.out" }, palette)).toThrow(/no longer/);
  });

  it("go, with their reroutes", () => {
    const canvas = { kind: "walk", walk: "w", inside: null } as const;
    const routed = edits.setReroutes(before, canvas, "a.out>b.x", [[1.4, 2]]);
    expect(edits.canvasLayout(routed, canvas).reroutes).toEqual({ "a.out>b.x": [[1, 2]] });
    const gone = edits.removeEdges(routed, "w", [0, 1, 2]);
    expect("edges" in walkOf(gone)).toBe(false);
    expect(JSON.stringify(gone)).not.toContain("a.out>b.x");
    expect(edits.removeEdges(before, "w", [7])).toBe(before);
  });

  it("have flags only where they mean something", () => {
    expect(walkOf(edits.setEdge(before, "w", 0, { each: true })).edges![0]).toEqual({
      from: "a.out",
      to: "b.x",
      each: true,
    });
    expect(walkOf(edits.setEdge(before, "w", 2, { collect: false })).edges![2]).toEqual({
      from: "c.out",
      to: "d.many",
      note: 1,
    });
    expect(() => edits.setEdge(before, "w", 0, { collect: true })).toThrow(/leaves no loop/);
    expect(() => edits.setEdge(before, "w", 1, { each: true })).toThrow(/enters no loop/);
    expect(edits.setEdge(before, "w", 2, { collect: true })).toBe(before);
  });

  it("are turned into carried ones and back", () => {
    const free = graphOf({ body: [loop(["b", "d", "c"])], edges: [["b.out", "c.x"]] });
    const carried = edits.makeCarried(free, "w", 0);
    expect(walkOf(carried).body).toEqual([loop(["c", "b", "d"])]);
    expect(walkOf(edits.makeForward(carried, "w", 0)).body).toEqual([loop(["b", "c", "d"])]);
    expect(edits.makeForward(free, "w", 0)).toBe(free);
    expect(() => edits.makeCarried(before, "w", 0)).toThrow(/No loop holds both/);
    const tied = graphOf({
      body: [loop(["b", "c"])],
      edges: [
        ["b.out", "c.x"],
        ["b.all", "c.many"],
      ],
    });
    expect(() => edits.makeCarried(tied, "w", 0)).toThrow(/can't come earlier/);
  });

  it("take a use in between, where it belongs", () => {
    const extra = graphOf(walkOf(before), { nodes: { ...before.nodes, n: { component: "test.mix" } } });
    const first = edits.insertOnEdge(extra, "w", 0, "n", palette);
    expect(first.id).toBe("use:n");
    expect(walkOf(first.graph).body).toEqual(["a", loop(["n", "b", "c"]), "d"]);
    expect(walkOf(first.graph).edges!.slice(0, 2)).toEqual([
      ["a.out", "n.x"],
      ["n.out", "b.x"],
    ]);
    const last = edits.insertOnEdge(extra, "w", 2, "n", palette);
    expect(walkOf(last.graph).body).toEqual(["a", loop(["b", "c", "n"]), "d"]);
    expect(walkOf(last.graph).edges!.slice(2)).toEqual([
      ["c.out", "n.x"],
      { from: "n.out", to: "d.many", collect: true },
    ]);
    expect(() => edits.insertOnEdge(extra, "w", 0, "eye", palette)).toThrow(/takes no output/);
    const branch = graphOf({ body: [{ parallel: ["a", "b"] }, "c"], edges: [["a.out", "c.x"]] });
    expect(walkOf(edits.insertOnEdge(branch, "w", 0, "d", palette).graph).body).toEqual([
      { parallel: [["a", "d"], "b"] },
      "c",
    ]);
  });

  it("stay with a use that plays another node, as far as ports fit", () => {
    const nodes = { ...before.nodes, n: { component: "test.mix" } };
    const made = edits.replaceUse(graphOf(walkOf(before), { nodes }), "w", "use:c", "n", palette);
    expect(made.id).toBe("use:n");
    expect(walkOf(made.graph).body).toEqual(["a", loop(["b", "n"]), "d"]);
    expect(walkOf(made.graph).edges!.slice(1)).toEqual([
      ["b.out", "n.x"],
      { from: "n.out", to: "d.many", collect: true, note: 1 },
    ]);
    const lost = edits.replaceUse(before, "w", "use:c", "eye", palette);
    expect(walkOf(lost.graph).edges).toEqual([["a.out", "b.x"]]);
  });
});

describe("speed", () => {
  it("grows with a Walk no faster than all pairs of its uses, while a wire is dragged and when it is let go", () => {
    const [small, large] = [costs(150), costs(600)];
    // Four times as many uses: 16 times the work for all pairs, 64 times for all triples.
    expect(large.dragged / small.dragged).toBeLessThan(40);
    expect(large.drawn / small.drawn).toBeLessThan(40);
  });
});

/** Microseconds of processor time: to judge all targets of a wire, and to connect it. */
function costs(uses: number): { dragged: number; drawn: number } {
  const names = Array.from({ length: uses }, (_, i) => `u${i}`);
  const nodes = Object.fromEntries(names.map((name) => [name, { component: "test.mix" }]));
  const third = uses / 3;
  const body: Item[] = [...names.slice(0, third), loop(names.slice(third, 2 * third)), ...names.slice(2 * third)];
  const edges: Link[] = names.slice(1).map((name, i) => [`${names[i]}.out`, `${name}.x`]);
  const graph = graphOf({ body, edges }, { nodes });
  const dragged = timed(graph, (fresh) => {
    const to = edits.compatible(fresh, "w", "source", `u${uses / 2}.out`, palette);
    for (const name of names) for (const port of ["x", "y", "many"]) to(`${name}.${port}`);
  });
  return { dragged, drawn: timed(graph, (fresh) => void connect(fresh, "u3.out", `u${uses - 5}.y`)) };
}

/** Mean of as many rounds as the clock of processor time, which ticks every few milliseconds, needs. */
function timed(graph: GraphDocument, run: (fresh: GraphDocument) => void): number {
  for (let rounds = 4; ; rounds *= 2) {
    const copies = Array.from({ length: rounds }, () => structuredClone(graph));
    const start = process.cpuUsage();
    for (const copy of copies) run(copy);
    const { user, system } = process.cpuUsage(start);
    if (user + system >= 200_000) return (user + system) / rounds;
  }
}

describe("values of a loop", () => {
  const graph = graphOf(
    { body: [loop(["a"]), "b"] },
    { nodes: { a: { component: "text.detokenizer" }, b: { component: "text.tokenizer" } } },
  );
  const join = (graph: GraphDocument, from: string, to: string, wish = {}) =>
    edits.connect(graph, "w", from, to, cases.catalogue, wish);
  const whole = { from: "a.text", to: "b.text", collect: true };

  it("joins a loop's text for a step behind the loop", () => {
    expect(walkOf(join(graph, "a.text", "b.text").graph).edges).toEqual([whole]);
  });

  it("keeps the last piece, or a list, where that is wished for and fits", () => {
    expect(walkOf(join(graph, "a.text", "b.text", { collect: false }).graph).edges).toEqual([["a.text", "b.text"]]);
    expect(() => join(graph, "a.text", "b.text", { collect: "list" })).toThrow("list");
  });

  it("writes and clears each way to collect", () => {
    const drawn = join(graph, "a.text", "b.text").graph;
    for (const collect of ["join", "list"] as const)
      expect(walkOf(edits.setEdge(drawn, "w", 0, { collect })).edges).toEqual([{ ...whole, collect }]);
    expect(walkOf(edits.setEdge(drawn, "w", 0, { collect: false })).edges).toEqual([["a.text", "b.text"]]);
    const kept = edits.setResult(graph, "w", "all", "a.text", "list");
    expect(walkOf(kept).results).toEqual({ all: { from: "a.text", collect: "list" } });
    expect(walkOf(edits.setResult(kept, "w", "all", "a.text")).results).toEqual({ all: "a.text" });
  });
});

import { expect, it } from "vitest";
import { portsOf, portType } from "../../src/document/ports";
import { accepts, parseType } from "../../src/document/typing";
import { union } from "../../src/document/union";
import { cases, graphOf, graphs, palette } from "./cases";

it("types fit where the backend says so, for the same reasons", () => {
  const { names, reasons, table } = cases.types;
  const found = names.map((target) => names.map((source) => accepts(target, source)));
  expect(found).toEqual(table.map((row) => row.map((number) => reasons[number])));
  expect(new Set(table.flat()).size).toBeGreaterThan(10);
});

it("a type is read, nonsense is not", () => {
  for (const name of cases.types.names) expect(parseType(name), name).not.toBeNull();
  for (const text of ["", "nothing", "scalar: complex", "scalar: int[N]", "scalar int"])
    expect(parseType(text)).toBeNull();
});

it("what can't be known fits", () => {
  expect(accepts("", "image")).toBeNull();
  expect(accepts("image", null)).toBeNull();
});

it("ports that only edges name are ghosts", () => {
  const graph = graphOf(
    {
      body: ["a", "lost"],
      edges: [
        ["a.nope", "lost.in"],
        ["lost.out", "a.x"],
      ],
    },
    { nodes: { a: { component: "test.mix" }, lost: { component: "gone.away" } } },
  );
  const { component, inputs, outputs } = portsOf(graph, palette, "lost");
  expect(component).toBeNull();
  expect([inputs, outputs].map((ports) => ports.map(({ name, ghost }) => [name, ghost]))).toEqual([
    [["in", true]],
    [["out", true]],
  ]);
  expect(portsOf(graph, palette, "a").outputs.map(({ name, ghost }) => [name, ghost ?? false])).toEqual([
    ["out", false],
    ["all", false],
    ["nope", true],
  ]);
});

it("a reference has the type of what it names", () => {
  const graph = graphOf(
    {
      inputs: { picture: "image" },
      body: ["eye", { loop: "l", times: "2", body: ["a"] }],
      edges: [
        ["@in.picture", "eye.image"],
        ["eye.seen", "@out.seen"],
        ["@stream.s", "a.x"],
      ],
    },
    { streams: [{ name: "s", from: "a.all", walks: ["w"], chunks: { policy: "whole" } }] },
  );
  const type = (reference: string, side?: "source" | "target") => portType(graph, palette, "w", reference, side);
  expect(type("@in.picture")).toBe("image");
  expect(type("@loop.index")).toBe("scalar: int");
  expect(type("@stream.s")).toBe("scalar: int[n]");
  expect(type("@out.seen")).toBe("features: float[n, 8]");
  expect(type("eye.image")).toBe("image");
  expect(type("eye.image", "source")).toBeNull();
  expect(type("eye.seen", "source")).toBe("features: float[n, 8]");
  expect(type("nobody.x")).toBeNull();
});

it("the union has every node and edge of every Walk once", () => {
  for (const graph of Object.values(graphs())) {
    const made = union(graph);
    expect(made.nodes).toEqual(Object.keys(graph.nodes!));
    const keys = made.edges.map(({ from, to }) => `${from.node}.${from.port}>${to.node}.${to.port}`);
    expect(new Set(keys).size).toBe(keys.length);
    expect(made.streams.map(({ name }) => name)).toEqual((graph.streams ?? []).map(({ name }) => name));
    for (const stream of made.streams)
      expect([stream.from.length, stream.to.length].every((count) => count > 0)).toBe(true);
  }
  const loops = union(graphs()["synthetic_loops"]!);
  const grown = loops.edges.find(({ from, to }) => from.node === "grow" && to.node === "grow")!;
  expect(grown).toMatchObject({ carried: true, walks: ["nested", "skip"] });
});

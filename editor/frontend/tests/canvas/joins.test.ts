// A wire between nodes on the components canvas.
import { expect, test } from "vitest";
import { joined, joinsOf } from "../../src/canvas/model/joins";
import type { GraphDocument } from "../../src/document/types";
import { portsCatalogue } from "./catalogue";

const graph: GraphDocument = {
  name: "g",
  nodes: {
    item: { component: "x.item" },
    sum: { component: "x.sum" },
    left: { component: "x.left" },
    alone: { component: "x.alone" },
  },
  walks: {
    make: {
      body: ["item", "sum"],
      edges: [
        ["item.items", "@out.items"],
        ["sum.sum", "@out.sum"],
      ],
    },
    again: { body: [{ use: "sum", as: "total" }, "item"], edges: [] },
    take: {
      body: [{ use: "left", as: "reader" }],
      edges: [["@in.items", "reader.items"]],
      inputs: { items: "tensor" },
    },
    takes: { body: ["left"], edges: [] },
  },
  tasks: {},
};
const catalogue = structuredClone(portsCatalogue(graph));
catalogue["x.sum"]!.inputs = [{ name: "items", type: "", optional: true, description: "" }];

test("nodes of one partition are joined in the Walks that use both", () => {
  expect(joinsOf(graph, "item.items", "sum.items")).toEqual([
    { kind: "edge", walk: "make", from: "item.items", to: "sum.items" },
    { kind: "edge", walk: "again", from: "item.items", to: "total.items" },
  ]);
  const [first] = joinsOf(graph, "item.items", "sum.items");
  expect(joined(graph, first!, catalogue).walks!["make"]!.edges).toContainEqual(["item.items", "sum.items"]);
});

test("nodes of two partitions are joined by a stream from a Walk to a Walk", () => {
  const joins = joinsOf(graph, "item.items", "left.items");
  expect(joins.map((join) => (join.kind === "stream" ? [join.producer, join.consumer, join.to] : join))).toEqual([
    ["make", "take", "reader.items"],
    ["make", "takes", "left.items"],
    ["again", "take", "reader.items"],
    ["again", "takes", "left.items"],
  ]);
  const made = joined(graph, joins[1]!, catalogue);
  expect(made.streams).toEqual([
    { name: "items", from: "item.items", walks: ["make"], chunks: { policy: "fixed", size: 1 } },
  ]);
  expect(made.walks!["takes"]!.edges).toEqual([["@stream.items", "left.items"]]);
  const [fresh, again] = joinsOf(made, "item.items", "left.items");
  expect([fresh, again]).toMatchObject([
    { stream: null, consumer: "take" },
    { stream: "items", consumer: "take" },
  ]);
  const both = joined(made, again!, catalogue);
  expect(both.streams).toHaveLength(1);
  expect(both.walks!["take"]!.edges).toContainEqual(["@stream.items", "reader.items"]);
});

test("nothing joins what no Walk uses", () => {
  expect(joinsOf(graph, "item.items", "alone.x")).toEqual([]);
});

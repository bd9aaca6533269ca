import { expect, test } from "vitest";
import { removeEdges } from "../../src/document/edits/edges";
import { insertLoop, removeItems } from "../../src/document/edits/items";
import { renameWalk } from "../../src/document/edits/walks";
import type { GraphDocument } from "../../src/document/types";
import { followed } from "../../src/session/followed";

const graph = {
  name: "g",
  nodes: { a: { component: "x.y" }, b: { component: "x.y" } },
  walks: {
    w: {
      body: ["a", { loop: "l", times: "2", body: ["b"] }],
      edges: [
        ["a.p", "b.p"],
        ["b.p", "@out.p"],
      ],
    },
  },
} as GraphDocument;

const of = (...pointers: string[]) =>
  pointers.map((pointer) => ({ code: "c", pointer, message: "m", severity: "error" as const }));
const places = (after: GraphDocument, ...pointers: string[]) =>
  followed(of(...pointers), graph, after).map((problem) => problem.pointer);

test("problems go with the steps and wires that they are of", () => {
  const { graph: later } = insertLoop(graph, "w", { parent: null, index: 0 });
  expect(places(later, "/walks/w/body/0", "/walks/w/body/1/body/0/when", "/walks/w/body/1/times")).toEqual([
    "/walks/w/body/1",
    "/walks/w/body/2/body/0/when",
    "/walks/w/body/2/times",
  ]);
  const fewer = removeEdges(graph, "w", [0]);
  expect(places(fewer, "/walks/w/edges/0", "/walks/w/edges/1/each")).toEqual(["/walks/w/edges/0/each"]);
});

test("what is gone takes its problems along; all else is left as it was", () => {
  const gone = removeItems(graph, "w", ["use:a"], {});
  expect(places(gone, "/walks/w/body/0", "/walks/w/body/1", "/walks/w", "/nodes/b", "/nodes/no", "")).toEqual([
    "/walks/w/body/0",
    "/walks/w",
    "/nodes/b",
    "/nodes/no",
    "",
  ]);
  expect(places(renameWalk(graph, "w", "v"), "/walks/w/body/0")).toEqual([]);
  const told = of("/walks/w/body/0", "/nodes/a/params/x");
  expect(followed(told, graph, { ...graph, description: "new" })).toBe(told);
});

// Going to an item opens the closed containers around it.
import { expect, it } from "vitest";
import * as edits from "../../src/document/edits";
import type { Canvas } from "../../src/store/types";
import { Editor } from "../../src/store/editor";
import { graphOf } from "./cases";

const canvas: Canvas = { kind: "walk", walk: "w", inside: null };
const graph = ["loop:outer", "loop:inner", "loop:other"].reduce(
  (made, id) => edits.setClosed(made, canvas, id, true),
  graphOf({
    body: [
      { loop: "outer", times: "2", body: ["a", { loop: "inner", times: "2", body: ["b", "c"] }] },
      { loop: "other", times: "2", body: ["d"] },
    ],
    edges: [
      ["a.out", "b.x"],
      ["b.out", "c.x"],
      ["a.out", "d.x"],
    ],
  }),
);
const closed = (selection: string[]) =>
  edits.canvasLayout(edits.revealed(graph, canvas, selection), canvas).closed ?? [];

it("all containers around it are opened, itself and others are not", () => {
  expect(closed(["use:b"])).toEqual(["loop:other"]);
  expect(closed(["loop:inner"])).toEqual(["loop:inner", "loop:other"]);
  expect(closed(["loop:outer"])).toHaveLength(3);
  expect(edits.revealed(graph, canvas, ["@in"])).toBe(graph);
});

it("an edge is drawn unless both its ends are in one closed container", () => {
  expect(closed(["edge:0"])).toEqual(["loop:inner", "loop:other"]);
  expect(closed(["edge:1"])).toEqual(["loop:other"]);
  expect(closed(["edge:2"])).toHaveLength(3);
});

it("going there is one step back from how it was", () => {
  const editor = new Editor("g", { graph, placement: null });
  editor.open(canvas, ["use:d"]);
  expect(edits.canvasLayout(editor.graph, canvas).closed).toEqual(["loop:outer", "loop:inner"]);
  editor.undo();
  expect(editor.graph).toBe(graph);
  editor.open(canvas, ["use:d"]);
  editor.open(canvas, ["use:d"]);
  expect(editor.state.past).toHaveLength(1);
});

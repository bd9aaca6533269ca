import { expect, it, vi } from "vitest";
import type { GraphDocument } from "../../src/document/types";
import { highlight, mark, selectedNodes } from "../../src/store/highlight";

const graph = {
  name: "g",
  nodes: {},
  walks: { w: { body: [{ use: "llm" }, { loop: "steps", body: [{ use: "llm", as: "again" }, { use: "vae" }] }] } },
} as unknown as GraphDocument;

it("nodes of what is selected are its own, or those that its uses call", () => {
  const components = { kind: "components" } as const;
  const walk = { kind: "walk", walk: "w", inside: null } as const;
  const selected = (canvas: typeof components | typeof walk, ...selection: string[]) =>
    selectedNodes(graph, { canvas, selection });
  expect(selected(components, "node:llm", "note:1", "stream:s")).toEqual(["llm"]);
  expect(selected(walk, "use:llm", "use:again", "use:vae", "edge:0")).toEqual(["llm", "vae"]);
  expect(selected(walk)).toEqual([]);
  expect(selectedNodes(graph, { canvas: { ...walk, walk: "gone" }, selection: ["use:llm"] })).toEqual([]);
});

it("marks are told once for the same nodes", () => {
  const told = vi.fn();
  const leave = highlight.subscribe(told);
  mark(["a", "b"]);
  mark(["b", "a"]);
  mark([]);
  mark([]);
  expect(told).toHaveBeenCalledTimes(2);
  leave();
});

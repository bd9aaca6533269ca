import { describe, expect, test } from "vitest";
import type { GraphDocument, Task } from "../../src/document/types";
import { renameTaskParam, removeTaskInput } from "../../src/document/edits/tasks";
import { removeWalk, renameResult, renameWalk } from "../../src/document/edits/walks";
import { endings, options, rebound, startable, startFor } from "../../src/tasks/model/bindings";
import { lanesOf, mayHold, neighbour, type LoopRow, type Row } from "../../src/tasks/model/rows";
import { stepsOf } from "../../src/telemetry/steps";
import { rowAt } from "./fixtures";

const task: Task = {
  outputs: ["image"],
  inputs: { prompt: { modality: "text" } },
  params: { most: { type: "integer", default: 3, min: 1, max: 9 } },
  steps: [
    {
      loop: [
        { walk: "draw", with: { text: "look.text" } },
        { walk: "look", with: { picture: "draw.picture" } },
      ],
      times: "most + 1",
      until: "look.good",
      start: { "look.text": "@task.prompt" },
    },
    { walk: "draw", as: "last", with: { text: "look.text" } },
  ],
};
const graph = {
  name: "g",
  nodes: { d: { component: "c.draw" }, l: { component: "c.look" } },
  walks: {
    draw: { inputs: { text: "text" }, body: ["d"], results: { picture: "d.picture" } },
    look: { inputs: { picture: "pixels" }, body: ["l"], results: { text: "l.text", good: "l.good" } },
  },
  tasks: { t: task },
} as unknown as GraphDocument;
const port = (name: string, type: string) => ({ name, type, optional: false, description: "" });
const component = (name: string, outputs: object[]) => ({
  name,
  inputs: [],
  outputs,
  params: {},
  states: [],
  families: [],
});
const catalogue = {
  "c.draw": component("c.draw", [port("picture", "pixels")]),
  "c.look": component("c.look", [port("text", "text"), port("good", "flag")]),
} as never;
const rows = lanesOf(task)[0]!.rows;
const at = (pointer: string): Row => rows.find((row) => row.pointer === pointer)!;
const loop = at("/steps/0") as LoopRow;
const stepOf = (made: GraphDocument) => (made.tasks!["t"]!.steps as Task["steps"] & unknown[])[0];

describe("a loop of steps", () => {
  test("is a block with its steps and an end in it", () => {
    expect(rows.map((row) => [row.pointer, row.kind, row.depth])).toEqual([
      ["/steps/0", "loop", 0],
      ["/steps/0/loop/0", "walk", 1],
      ["/steps/0/loop/1", "walk", 1],
      ["/steps/0/loop/-", "end", 1],
      ["/steps/1", "walk", 0],
      ["/steps/-", "end", 0],
    ]);
    expect(neighbour(rows, at("/steps/0/loop/1"), 1)).toEqual({ list: "/steps", index: 1 });
    expect(mayHold("/steps/0/loop", "loop")).toBe(true);
    expect(mayHold("/steps/0/first", "loop")).toBe(false);
  });

  test("offers results of the pass before, and its index", () => {
    const found = (pointer: string, type: string) =>
      options(graph, catalogue, task, rowAt(task, pointer), type).map(({ value, group }) => [value, group]);
    expect(found("/steps/0/loop/0", "text")).toContainEqual(["look.text", "The pass before"]);
    expect(found("/steps/0/loop/1", "pixels")).toContainEqual(["draw.picture", "Earlier steps"]);
    expect(found("/steps/0/loop/1", "scalar")).toContainEqual(["@loop.index", "This pass"]);
    expect(found("/steps/1", "scalar")).not.toContainEqual(["@loop.index", "This pass"]);
    expect(found("/steps/1", "text")).toContainEqual(["look.text", "Earlier steps"]);
  });

  test("ends by a flag, and starts what a step takes", () => {
    expect(endings(graph, catalogue, task, loop)).toEqual(["look.good"]);
    expect(startable(graph, catalogue, task, loop)).toEqual(["draw.picture"]);
  });

  test("what a step took first becomes the start of what it takes from the pass before", () => {
    const begun = (bound: object, value: string, start?: object) => {
      const steps = [{ loop: [{ walk: "draw", ...bound }, { walk: "look" }], times: "3", ...start }];
      return startFor(graph, catalogue, { ...task, steps } as Task, "/steps/0/loop/0", "text", value);
    };
    const first = { with: { text: "@task.prompt" } };
    expect(begun(first, "look.text")).toEqual({ pointer: "/steps/0", start: { "look.text": "@task.prompt" } });
    expect(begun({ with: { text: "a circle" } }, "look.text")?.start).toEqual({ "look.text": "a circle" });
    expect(begun({}, "look.text")).toBeNull();
    expect(begun(first, "@task.prompt")).toBeNull();
    expect(begun({ with: { text: "look.text" } }, "look.text")).toBeNull();
    expect(begun(first, "look.text", { start: { "look.text": "a square" } })).toBeNull();
    const start = { "look.good": true, "look.text": "@task.prompt" };
    expect(begun(first, "look.text", { start: { "look.good": true } })?.start).toEqual(start);
  });

  test("follows the names of its steps, Walks, results and parameters", () => {
    expect(rebound(task, rowAt(task, "/steps/0/loop/1"), "see")).toEqual([
      { pointer: "/steps/0", fields: { until: "see.good", start: { "see.text": "@task.prompt" } } },
      { pointer: "/steps/0/loop/0", fields: { with: { text: "see.text" } } },
      { pointer: "/steps/1", fields: { with: { text: "see.text" } } },
    ]);
    expect(stepOf(renameWalk(graph, "look", "see"))).toMatchObject({
      until: "see.good",
      start: { "see.text": "@task.prompt" },
      loop: [{ with: { text: "see.text" } }, { walk: "see" }],
    });
    expect(stepOf(renameResult(graph, "look", "text", "words"))).toMatchObject({
      start: { "look.words": "@task.prompt" },
    });
    expect(stepOf(renameTaskParam(graph, "t", "most", "passes"))).toMatchObject({ times: "passes + 1" });
  });

  test("loses what is gone", () => {
    expect(stepOf(removeTaskInput(graph, "t", "prompt"))).not.toHaveProperty("start");
    const without = removeWalk(removeWalk(graph, "look"), "draw");
    expect(without.tasks!["t"]!.steps).toEqual([]);
  });

  test("keeps its Walks going until it is over", () => {
    const stands = stepsOf(graph, "t").walks;
    expect([stands.get("draw")?.[0]?.first, stands.get("look")?.[0]?.first]).toEqual([0, 0]);
  });
});

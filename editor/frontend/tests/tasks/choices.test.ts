import { describe, expect, test } from "vitest";
import type { GraphDocument, Task } from "../../src/document/types";
import { choiceCases, choiceValues, options, rebound } from "../../src/tasks/model/bindings";
import {
  lanesOf,
  mayHold,
  neighbour,
  runsBefore,
  walkRows,
  type ChooseRow,
  type Row,
} from "../../src/tasks/model/rows";
import { litSteps, totals, type Simulated } from "../../src/tasks/model/simulate";
import { rowAt } from "./fixtures";

const task: Task = {
  outputs: ["image"],
  inputs: { prompt: { modality: "text" } },
  params: {
    style: { type: "string", choices: ["photo", "sketch"] },
    fast: { type: "boolean" },
    scale: { type: "number" },
  },
  steps: [
    { walk: "read" },
    {
      choose: "read.kind",
      cases: { "a/b": [{ walk: "draw" }], b: [{ choose: "@task.fast", cases: { true: [{ walk: "quick" }] } }] },
      otherwise: [{ walk: "draw", as: "plain" }],
    },
    { walk: "show" },
  ],
};
const walk = { body: [] };
const graph = {
  name: "g",
  nodes: { r: { component: "c.read" } },
  walks: {
    read: { body: ["r"], results: { kind: "r.kind", ready: "r.ready", size: "r.size" } },
    draw: walk,
    quick: walk,
    show: walk,
  },
} as unknown as GraphDocument;
const port = (name: string, type: string) => ({ name, type, optional: false, description: "" });
const outputs = [port("kind", "text"), port("ready", "flag"), port("size", "latents: float[n, 4]")];
const catalogue = {
  "c.read": { name: "c.read", inputs: [], outputs, params: {}, states: [], families: [] },
} as never;
const rows = lanesOf(task)[0]!.rows;
const at = (pointer: string): Row => rows.find((row) => row.pointer === pointer)!;

describe("a choice among steps", () => {
  test("is a block with a head for each branch, and an end in it", () => {
    expect(rows.map((row) => [row.pointer, row.kind, row.depth])).toEqual([
      ["/steps/0", "walk", 0],
      ["/steps/1", "choose", 0],
      ["/steps/1/cases/a~1b", "branch", 1],
      ["/steps/1/cases/a~1b/0", "walk", 2],
      ["/steps/1/cases/a~1b/-", "end", 2],
      ["/steps/1/cases/b", "branch", 1],
      ["/steps/1/cases/b/0", "choose", 2],
      ["/steps/1/cases/b/0/cases/true", "branch", 3],
      ["/steps/1/cases/b/0/cases/true/0", "walk", 4],
      ["/steps/1/cases/b/0/cases/true/-", "end", 4],
      ["/steps/1/cases/b/-", "end", 2],
      ["/steps/1/otherwise", "branch", 1],
      ["/steps/1/otherwise/0", "walk", 2],
      ["/steps/1/otherwise/-", "end", 2],
      ["/steps/2", "walk", 0],
      ["/steps/-", "end", 0],
    ]);
  });

  test("excludes the steps of its branches from each other", () => {
    const [read, draw, quick, plain, show] = walkRows(task);
    expect(runsBefore(read!, draw!)).toBe(true);
    expect(runsBefore(draw!, quick!)).toBe(false);
    expect(runsBefore(quick!, plain!)).toBe(false);
    expect(runsBefore(plain!, show!)).toBe(true);
    expect(options(graph, catalogue, task, show!, "text").map(({ value }) => value)).toContain("read.kind");
  });

  test("holds what a list of steps holds, but in `first`", () => {
    expect(mayHold("/steps/1/cases/first", "choose")).toBe(true);
    expect(mayHold("/steps/1/first", "choose")).toBe(false);
    expect(mayHold("/steps/0/text/1/cases/a", "for")).toBe(false);
    expect(mayHold("/steps/0/cases/text", "for")).toBe(true);
    expect(neighbour(rows, at("/steps/1/cases/b/0/cases/true/0"), 1)).toEqual({ list: "/steps/1/cases/b", index: 1 });
    expect(neighbour(rows, at("/steps/1/cases/b"), 1)).toBeNull();
  });

  test("goes by parameters and results that are a flag, a whole number or a text", () => {
    const row = at("/steps/1") as ChooseRow;
    expect(choiceValues(graph, catalogue, task, row).map(({ value }) => value)).toEqual([
      "@task.style",
      "@task.fast",
      "read.kind",
      "read.ready",
    ]);
    expect(choiceCases(graph, catalogue, task, "@task.style")).toEqual(["photo", "sketch"]);
    expect(choiceCases(graph, catalogue, task, "@task.fast")).toEqual(["true", "false"]);
    expect(choiceCases(graph, catalogue, task, "read.ready")).toEqual(["true", "false"]);
    expect(choiceCases(graph, catalogue, task, "read.kind")).toEqual([]);
  });

  test("follows the name of the step that it goes by", () => {
    expect(rebound(task, rowAt(task, "/steps/0"), "look")).toEqual([
      { pointer: "/steps/1", fields: { choose: "look.kind" } },
    ]);
  });

  test("shows in the simulation what a value of the run decides", () => {
    const step = (pointer: string, taken: boolean | null) => {
      return { pointer, walk: "draw", as: null, part: null, turn: null, taken, why: "w", loops: {}, uses: [] };
    };
    const steps = [step("/tasks/t/steps/0", true), step("/tasks/t/steps/1/cases/a~1b/0", null)];
    const simulated: Simulated = { ok: true, problems: [], params: {}, lanes: [{ lane: "", steps }] };
    expect(totals(simulated)).toEqual({ ran: 1, skipped: 0, open: 1 });
    expect(litSteps(simulated, "t").get("/steps/1/cases/a~1b/0")).toMatchObject({ ran: 0, open: 1 });
  });
});

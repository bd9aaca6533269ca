import { describe, expect, test } from "vitest";
import { removeStep, renameTaskInput } from "../../src/document/edits/tasks";
import { removeWalk, renameResult, renameWalk, setResult } from "../../src/document/edits/walks";
import type { GraphDocument, Step, Task } from "../../src/document/types";
import {
  choiceCases,
  choiceValues,
  endings,
  firstShown,
  options,
  rebound,
  showable,
  startable,
} from "../../src/tasks/model/bindings";
import { byPlace } from "../../src/tasks/model/problems";
import {
  lanesOf,
  mayHold,
  neighbour,
  runsBefore,
  type ApproveRow,
  type ChooseRow,
  type LoopRow,
  type Row,
} from "../../src/tasks/model/rows";
import { rowAt } from "./fixtures";

const task: Task = {
  outputs: ["image"],
  inputs: { prompt: { modality: "text" } },
  steps: [
    {
      loop: [
        { walk: "draw", with: { text: "said.note" } },
        { approve: ["draw.picture"], label: "Keep it?", within: 60, as: "said" },
      ],
      times: "3",
      until: "said.approved",
      start: { "said.note": "@task.prompt" },
    },
    { walk: "look", with: { picture: "draw.picture" } },
    { approve: ["draw.picture", "look.text"] },
    {
      choose: "said.approved",
      cases: { true: [{ walk: "draw", as: "last", with: { text: "said.note" } }], false: [] },
    },
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
const component = (name: string, outputs: object[]) => {
  return { name, inputs: [], outputs, params: {}, states: [], families: [] };
};
const catalogue = {
  "c.draw": component("c.draw", [port("picture", "pixels")]),
  "c.look": component("c.look", [port("text", "text"), port("good", "flag")]),
} as never;
const rows = lanesOf(task)[0]!.rows;
const at = (pointer: string): Row => rows.find((row) => row.pointer === pointer)!;
const [said, plain] = [at("/steps/0/loop/1") as ApproveRow, at("/steps/2") as ApproveRow];
const stepsOf = (made: GraphDocument) => made.tasks!["t"]!.steps as Step[];
const loopOf = (made: GraphDocument) => stepsOf(made)[0] as { loop: Step[] };

describe("a step that waits for approval", () => {
  test("is a row among the others, and moves with them", () => {
    expect(rows.map((row) => [row.pointer, row.kind, row.depth])).toEqual([
      ["/steps/0", "loop", 0],
      ["/steps/0/loop/0", "walk", 1],
      ["/steps/0/loop/1", "approve", 1],
      ["/steps/0/loop/-", "end", 1],
      ["/steps/1", "walk", 0],
      ["/steps/2", "approve", 0],
      ["/steps/3", "choose", 0],
      ["/steps/3/cases/true", "branch", 1],
      ["/steps/3/cases/true/0", "walk", 2],
      ["/steps/3/cases/true/-", "end", 2],
      ["/steps/3/cases/false", "branch", 1],
      ["/steps/3/cases/false/-", "end", 2],
      ["/steps/-", "end", 0],
    ]);
    expect(neighbour(rows, said, 1)).toEqual({ list: "/steps", index: 1 });
    expect(neighbour(rows, plain, -1)).toEqual({ list: "/steps", index: 1 });
    // Its neighbours keep their numbers.
    expect(rows.flatMap((row) => (row.kind === "walk" ? [row.number] : []))).toEqual([1, 2, 3]);
  });

  test("stands in loops and cases, not in `for` or `first`", () => {
    for (const list of ["/steps", "/steps/0/loop", "/steps/0/cases/text", "/steps/0/otherwise"])
      expect([list, mayHold(list, "approve")]).toEqual([list, true]);
    for (const list of ["/steps/0/first", "/steps/0/text", "/steps/0/user", "/steps/0/user/1/cases/a"])
      expect([list, mayHold(list, "approve")]).toEqual([list, false]);
  });

  test("runs after what stands before it, also where both are no Walk's step", () => {
    const choice = at("/steps/3") as ChooseRow;
    expect([runsBefore(said, plain), runsBefore(plain, said)]).toEqual([true, false]);
    expect([runsBefore(plain, choice), runsBefore(rowAt(task, "/steps/3/cases/true/0"), plain)]).toEqual([
      true,
      false,
    ]);
  });

  test("can show results of earlier steps, and in a loop of the pass before", () => {
    expect(showable(graph, catalogue, task, plain)).toEqual({
      earlier: ["said.approved", "said.note", "look.good"],
      before: [],
    });
    const looped = { ...task, steps: [{ loop: [{ approve: ["x.y"] }, { walk: "look" }], times: "2" }] } as Task;
    const first = lanesOf(looped)[0]!.rows[1] as ApproveRow;
    expect(showable(graph, catalogue, looped, first)).toEqual({ earlier: [], before: ["look.text", "look.good"] });
    // The pass before the first has none: the loop can say what it starts as.
    const shows = { ...task, steps: [{ loop: [{ approve: ["look.text"] }, { walk: "look" }], times: "2" }] } as Task;
    expect(startable(graph, catalogue, shows, lanesOf(shows)[0]!.rows[0] as LoopRow)).toEqual(["look.text"]);
    // A result of the same pass starts as nothing.
    expect(startable(graph, catalogue, task, at("/steps/0") as LoopRow)).toEqual([]);
  });

  test("shows at first a result of the step before it", () => {
    const shown = (list: string, index: number) => firstShown(graph, catalogue, task, { list, index });
    expect(shown("/steps", 0)).toEqual([]);
    expect(shown("/steps", 1)).toEqual(["draw.picture"]);
    expect(shown("/steps", 4)).toEqual(["look.text"]);
    expect(shown("/steps/0/loop", 1)).toEqual(["draw.picture"]);
    expect(shown("/steps/3/cases/false", 0)).toEqual(["look.text"]);
  });

  test("gives a named answer to bindings, choices and loops", () => {
    const found = (pointer: string, type: string) =>
      options(graph, catalogue, task, rowAt(task, pointer), type)
        .filter(({ refused }) => refused === null)
        .map(({ value, group }) => [value, group]);
    expect(found("/steps/0/loop/0", "text")).toContainEqual(["said.note", "The pass before"]);
    expect(found("/steps/1", "text")).toContainEqual(["said.note", "Earlier steps"]);
    expect(found("/steps/1", "flag")).toEqual([["said.approved", "Earlier steps"]]);
    const choice = at("/steps/3") as ChooseRow;
    expect(choiceValues(graph, catalogue, task, choice).map(({ value }) => value)).toEqual([
      "said.approved",
      "said.note",
      "look.text",
      "look.good",
    ]);
    expect(choiceCases(graph, catalogue, task, "said.approved")).toEqual(["true", "false"]);
    expect(choiceCases(graph, catalogue, task, "said.note")).toEqual([]);
    expect(endings(graph, catalogue, task, at("/steps/0") as LoopRow)).toEqual(["said.approved"]);
  });

  test("takes its name along to all that name its answer", () => {
    expect(rebound(task, said, "judge")).toEqual([
      { pointer: "/steps/0", fields: { until: "judge.approved", start: { "judge.note": "@task.prompt" } } },
      { pointer: "/steps/0/loop/0", fields: { with: { text: "judge.note" } } },
      { pointer: "/steps/3", fields: { choose: "judge.approved" } },
      { pointer: "/steps/3/cases/true/0", fields: { with: { text: "judge.note" } } },
    ]);
    // What had no name is named by nothing; and what loses its name leaves the others to the check.
    expect(rebound(task, plain, "judge")).toEqual([]);
    expect(rebound(task, said, "")).toEqual([]);
  });

  test("follows the names of steps, Walks and results that it shows", () => {
    expect(rebound(task, rowAt(task, "/steps/1"), "seen")).toEqual([
      { pointer: "/steps/2", fields: { approve: ["draw.picture", "seen.text"] } },
    ]);
    const renamed = renameWalk(graph, "draw", "paint");
    expect(loopOf(renamed).loop[1]).toMatchObject({ approve: ["paint.picture"], as: "said" });
    expect(stepsOf(renamed)[2]).toEqual({ approve: ["paint.picture", "look.text"] });
    expect(stepsOf(renameResult(graph, "look", "text", "words"))[2]).toEqual({
      approve: ["draw.picture", "look.words"],
    });
    expect(() => renameWalk(graph, "draw", "said")).toThrow(/`said`/);
    expect(stepsOf(renameTaskInput(graph, "t", "prompt", "idea"))[2]).toBe(stepsOf(graph)[2]);
  });

  test("no longer shows what is gone, as long as something is left", () => {
    expect(stepsOf(removeWalk(graph, "look"))[1]).toEqual({ approve: ["draw.picture"] });
    expect(stepsOf(setResult(graph, "draw", "picture", null))[2]).toEqual({ approve: ["look.text"] });
    const bare = removeWalk(removeWalk(graph, "look"), "draw");
    expect(stepsOf(bare)[1]).toEqual({ approve: ["draw.picture"] });
    // Another Walk's step gives a result of that name.
    const two = { ...task, steps: [...(task.steps as Step[]), { walk: "draw", as: "look" }] } as Task;
    expect(stepsOf(removeWalk({ ...graph, tasks: { t: two } }, "look"))[1]).toEqual(stepsOf(graph)[2]);
    expect(stepsOf(removeStep(graph, "t", "/steps/2"))).toHaveLength(3);
  });

  test("has the problems of its fields at its row", () => {
    const problem = (pointer: string) => ({ code: "c", pointer, message: "m", severity: "error" }) as never;
    const fields = ["/approve", "/approve/1", "/within", "/label", "/as"].map((field) => problem(`/steps/2${field}`));
    const pointers = rows.map((row) => row.pointer);
    expect([...byPlace(fields, pointers).keys()]).toEqual(["/steps/2"]);
  });
});

import { expect, test } from "vitest";
import type { TaskParam } from "../../src/document/types";
import * as lanes from "../../src/tasks/model/lanes";
import {
  bounds,
  firstChoice,
  fitting,
  litSteps,
  missing,
  placeOf,
  reason,
  requestOf,
  startValue,
  totals,
  whyNotMore,
  whyNotValue,
  type Simulated,
} from "../../src/tasks/model/simulate";
import { bundled, taskOf } from "./fixtures";

const bagel = bundled("bagel");
const edit = taskOf(bagel, "edit");

test("inputs that a for walks go as parts in their order, the rest by name", () => {
  const choice = { params: { steps: 8 }, given: ["instruction", "image", "instruction"] };
  expect(requestOf(bagel, "edit", edit, choice)).toMatchObject({
    task: "edit",
    params: { steps: 8 },
    inputs: {},
    parts: ["text", "image", "text"],
    turns: [],
  });
  const bound = { ...edit, steps: [{ walk: "read_image", with: { image: "@task.image" } }] };
  expect(requestOf(bagel, "edit", bound, firstChoice(bound))).toMatchObject({
    inputs: { image: 1, instruction: 1 },
    parts: [],
    turns: [],
  });
});

test("what the task no longer has is not asked for", () => {
  const choice = { params: { gone: 1, seed: 3, steps: 4 }, given: ["gone", "image"] };
  expect(fitting(choice, edit)).toEqual({ params: { seed: 3, steps: 4 }, given: ["image"] });
});

test("inputs: once where not many, missing where not optional", () => {
  expect(whyNotMore("a", { modality: "text" }, ["a"])).toMatch(/once/);
  expect(whyNotMore("a", { modality: "text", many: true }, ["a"])).toBeNull();
  expect(missing(edit, { params: {}, given: ["image"] })).toEqual(["instruction"]);
  expect(missing(taskOf(bagel, "image_to_text"), { params: {}, given: [] })).toEqual([]);
});

test("values start at the default, else at the least that is allowed", () => {
  expect(startValue({ type: "integer", default: 7 })).toBe(7);
  expect(startValue({ type: "integer", min: 3 })).toBe(3);
  expect(startValue({ type: "string", choices: ["a", "b"] })).toBe("a");
  expect(startValue({ type: "boolean", default: null })).toBe(false);
  expect(startValue({ type: "boolean", default: false })).toBe(false);
});

test("bounds are said and judged", () => {
  const param: TaskParam = { type: "integer", min: 2, max: 200 };
  expect(bounds(param)).toBe("2 to 200");
  expect(bounds({ type: "number", min: 0 })).toBe("at least 0");
  expect(bounds({ type: "string" })).toBe("");
  expect(whyNotValue(1, param)).toMatch(/at least 2/);
  expect(whyNotValue(201, param)).toMatch(/at most 200/);
  expect(whyNotValue(2.5, param)).toMatch(/whole/);
  expect(whyNotValue(2, param)).toBeNull();
  expect(whyNotValue("c", { type: "string", choices: ["a"] })).toMatch(/choices/);
});

test("a placement is told where it names hosts", () => {
  const placement = {
    format: "walkgraph/placement@1" as const,
    name: "p",
    groups: [{ nodes: ["*"], ranks: [0] }],
    ranks: [{ rank: 0, device: "cpu" }],
  };
  expect(placeOf(null, "")).toEqual({});
  expect(placeOf(placement, "2 hosts")).toEqual({});
  const far = { ...placement, groups: [{ ...placement.groups[0]!, host: "b" }] };
  expect(placeOf(far, "")).toEqual({ placement: far });
  const single = { ...placement, ranks: [{ ...placement.ranks[0]!, host: "b" }] };
  expect(placeOf(single, "cluster")).toEqual({ placement: single, hardware: "cluster" });
});

const simulated: Simulated = {
  ok: true,
  problems: [],
  params: {},
  lanes: [
    {
      lane: "",
      steps: [
        {
          pointer: "/steps/1/text/0",
          walk: "a",
          as: null,
          part: { modality: "text", index: 0 },
          turn: null,
          taken: true,
          why: "",
          loops: {},
          uses: [],
        },
        {
          pointer: "/tasks/t/steps/1/text/0",
          walk: "a",
          as: null,
          part: { modality: "text", index: 1 },
          turn: null,
          taken: true,
          why: "",
          loops: {},
          uses: [],
        },
        {
          pointer: "/steps/2",
          walk: "b",
          as: null,
          part: null,
          turn: null,
          taken: false,
          why: "`x` is false",
          loops: {},
          uses: [],
        },
      ],
    },
  ],
};

test("rows light up as often as their step runs, wherever its pointer begins", () => {
  const lit = litSteps(simulated, "t");
  expect(lit.get("/steps/1/text/0")).toEqual({ ran: 2, skipped: 0, open: 0, why: "" });
  expect(lit.get("/steps/2")).toEqual({ ran: 0, skipped: 1, open: 0, why: "`x` is false" });
  expect(totals(simulated)).toEqual({ ran: 2, skipped: 1, open: 0 });
});

test("lanes: split, renamed in place, joined again", () => {
  const step = { walk: "a" };
  const two = lanes.add([step]);
  expect(two).toEqual({ main: [step], lane: [] });
  expect(Object.keys(lanes.rename(two, "main", "thinker"))).toEqual(["thinker", "lane"]);
  expect(() => lanes.rename(two, "main", "lane")).toThrow(/already/);
  expect(() => lanes.rename(two, "main", "1")).toThrow(/name/);
  expect(lanes.remove(two, "lane")).toEqual([step]);
});

test("reasons leave out what is seen already", () => {
  expect(reason("think is false: think = false", "think")).toBe("think is false");
  expect(reason("a > 1 or b > 1 is false: a = 1, b = 1", "a>1 or b > 1")).toBe("a = 1, b = 1");
  expect(reason("a > 1 is false: a = 1", "a > 1 and b")).toBe("a > 1 is false: a = 1");
  expect(reason("an earlier choice is taken: `x`", "a")).toBe("an earlier choice is taken: `x`");
});

test("a conversation has a turn for every role that has steps, and ends with a question", () => {
  const task = taskOf(bundled("shapes"), "chat");
  const request = requestOf(bundled("shapes"), "chat", task, firstChoice(task));
  expect(request.inputs).toEqual({ messages: 1 });
  expect(request.parts).toEqual([]);
  expect(request.turns).toEqual([
    { role: "system", parts: ["text"] },
    { role: "user", parts: ["text", "image"] },
    { role: "assistant", parts: ["text"] },
    { role: "user", parts: ["text", "image"] },
  ]);
});

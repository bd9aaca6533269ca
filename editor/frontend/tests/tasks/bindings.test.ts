import { describe, expect, test } from "vitest";
import type { Task } from "../../src/document/types";
import { isReference, options, readLiteral, rebound, suggested } from "../../src/tasks/model/bindings";
import { finals, offers } from "../../src/tasks/model/outputs";
import { byPlace, ofTask } from "../../src/tasks/model/problems";
import { readChoices } from "../../src/tasks/model/values";
import { bundled, rowAt, taskOf } from "./fixtures";

const bagel = bundled("bagel");
const edit = taskOf(bagel, "edit");
const offered = (pointer: string, type: string) =>
  options(bagel, {}, edit, rowAt(edit, pointer), type).map((each) => [each.value, each.refused === null] as const);

describe("what an input can be bound to", () => {
  test("a text: the request's texts that are one, its text parameters", () => {
    const found = new Map(offered("/steps/0", "text"));
    expect(found.get("@task.system_prompt")).toBe(true);
    expect(found.get("@task.renorm")).toBe(true);
    expect(found.get("@task.instruction")).toBe(false);
    expect(found.get("@task.image")).toBe(false);
    expect(found.has("@task.steps")).toBe(false);
    expect(found.has("@part")).toBe(false);
  });

  test("inside a for: the part, where its modality fits", () => {
    expect(new Map(offered("/steps/1/image/0", "image")).get("@part")).toBe(true);
    expect(new Map(offered("/steps/1/image/0", "text")).get("@part")).toBe(false);
  });

  test("results of earlier steps only, by the name they have", () => {
    expect(offered("/steps/3", "tokens: int[1]")).toContainEqual(["decode.token", true]);
    expect(new Map(offered("/steps/2", "tokens")).has("decode.token")).toBe(false);
    const steps = Array.isArray(edit.steps) ? edit.steps : [];
    const renamed = {
      ...edit,
      steps: steps.map((step) => ("walk" in step && step.walk === "decode" ? { ...step, as: "plan" } : step)),
    };
    const values = options(bagel, {}, renamed, rowAt(renamed, "/steps/3"), "tokens").map((each) => each.value);
    expect(values).toContain("plan.token");
    expect(values).not.toContain("decode.token");
  });

  test("a scalar: numbers, the seed among them", () => {
    const values = offered("/steps/0", "scalar").map(([value]) => value);
    expect(values).toEqual(expect.arrayContaining(["@task.seed", "@task.steps", "@task.think"]));
    expect(values).not.toContain("@task.system_prompt");
  });
});

test("a new step takes what fits by itself", () => {
  expect(suggested(bagel, {}, edit, "/steps/1/image", "prefill_vae")).toEqual({ image: "@part" });
  expect(suggested(bagel, {}, edit, "/steps", "end_thought")).toEqual({ token: "decode.token" });
  const single = { ...edit, inputs: { image: { modality: "image" } } };
  expect(suggested(bagel, {}, single, "/steps", "read_image")).toEqual({ image: "@task.image" });
});

test("typed values", () => {
  expect(readLiteral("4", "scalar")).toBe(4);
  expect(readLiteral("true", "flag")).toBe(true);
  expect(readLiteral("4", "text")).toBe("4");
  expect(readLiteral("", "scalar")).toBe("");
  expect(isReference("@task.x")).toBe(true);
  expect(isReference("decode.token")).toBe(true);
  expect(isReference("Say hello.")).toBe(false);
  expect(isReference(4)).toBe(false);
  expect(readChoices("a, b ,, a", "string")).toEqual(["a", "b"]);
  expect(readChoices("1, 2.5, x", "number")).toEqual([1, 2.5, "x"]);
  expect(readChoices(" , ", "string")).toBeUndefined();
});

test("many values of a request are a list, for an input that takes one", () => {
  const several: Task = {
    ...edit,
    inputs: { pictures: { modality: "image", many: true }, one: { modality: "image" } },
  };
  const refused = (type: string) =>
    options(bagel, {}, several, rowAt(edit, "/steps/2"), type)
      .filter(({ value }) => value.startsWith("@task.p") || value === "@task.one")
      .map((option) => [option.value, option.refused !== null]);
  expect(refused("image")).toEqual([
    ["@task.pictures", true],
    ["@task.one", false],
  ]);
  expect(refused("list of image")).toEqual([
    ["@task.pictures", false],
    ["@task.one", true],
  ]);
});

test("outputs: who sends them, and the steps that are final", () => {
  const describe = taskOf(bagel, "image_to_text");
  const found = offers(bagel, {}, describe);
  expect(found[0]).toMatchObject({ name: "text", here: true, walks: ["decode"] });
  expect(found.find((offer) => offer.name === "image")).toMatchObject({ here: false });
  const names = (pointer: string) => finals(bagel, {}, edit, rowAt(edit, pointer)).map((sent) => sent.name);
  expect(names("/steps/4/first/0")).toEqual(["preview", "image"]);
  expect(names("/steps/2")).toEqual(["text"]);
  expect(names("/steps/0")).toEqual([]);
  const picture = { ...edit, outputs: ["image"] };
  expect(finals(bagel, {}, picture, rowAt(picture, "/steps/2"))).toMatchObject([{ name: "text", wanted: false }]);
  expect(finals(bagel, {}, picture, rowAt(picture, "/steps/4/first/0"))).toMatchObject([
    { name: "preview", wanted: false },
    { name: "image", wanted: true },
  ]);
});

test("a problem stands at the deepest row that holds it, of its own task only", () => {
  const problem = (pointer: string) => ({ code: "x", pointer, message: "m", severity: "error" as const });
  const all = [
    problem("/tasks/edit/steps/1/text/0/with/text"),
    problem("/tasks/edit/steps/1"),
    problem("/tasks/edit/outputs/0"),
    problem("/tasks/edit_2/steps/0"),
  ];
  const own = ofTask(all, "edit");
  expect(own.map((each) => each.pointer)).toEqual(["/steps/1/text/0/with/text", "/steps/1", "/outputs/0"]);
  const placed = byPlace(own, ["/steps/1", "/steps/1/text", "/steps/1/text/0", "/steps/10"]);
  expect(placed.get("/steps/1/text/0")?.length).toBe(1);
  expect(placed.get("/steps/1")?.length).toBe(1);
  expect(placed.get("")?.map((each) => each.pointer)).toEqual(["/outputs/0"]);
});

test("a step's new name is followed where its results are meant, and there only", () => {
  expect(rebound(edit, rowAt(edit, "/steps/2"), "plan")).toEqual([
    { pointer: "/steps/3", fields: { with: { token: "plan.token" } } },
  ]);
  const steps = Array.isArray(edit.steps) ? edit.steps : [];
  const twice = { ...edit, steps: [{ walk: "decode" }, ...steps] };
  expect(rebound(twice, rowAt(twice, "/steps/0"), "first")).toEqual([]);
  expect(rebound(twice, rowAt(twice, "/steps/3"), "plan")).toEqual([
    { pointer: "/steps/4", fields: { with: { token: "plan.token" } } },
  ]);
});

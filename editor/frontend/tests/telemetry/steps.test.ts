import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { GraphDocument } from "../../src/document/types";
import { isOver, loopsAround, loopTimes, paramsOf, stepsOf } from "../../src/telemetry/steps";
import { timesOf } from "../../src/telemetry/times";

const read = (name: string) =>
  JSON.parse(readFileSync(new URL(`../../../../graphs/${name}.json`, import.meta.url), "utf8")) as GraphDocument;

describe("steps of a task", () => {
  it("are read at any depth, and of tasks with a list a partition", () => {
    const walks = (graph: string, task: string) => [...stepsOf(read(graph), task).walks.keys()].sort();
    expect(walks("shapes", "text_to_image")).toEqual(["image_gen", "image_gen_cfg", "prefill_text"]);
    expect(walks("orpheus", "speak")).toEqual(["decode", "prefill", "vocode"]);
    expect([...stepsOf(read("orpheus"), "speak").nodes.keys()]).toContain("vocoder");
    expect([...stepsOf(read("shapes"), "image_to_text").nodes.keys()]).not.toContain("vae_decoder");
    expect(stepsOf({ tasks: {} } as unknown as GraphDocument, "none").nodes.size).toBe(0);
  });

  it("are over once a later one of their partition has come", () => {
    const steps = stepsOf(read("shapes"), "text_to_image");
    expect(isOver(steps, "prefill_text", "image_gen")).toBe(true);
    expect(isOver(steps, "image_gen_cfg", "image_gen")).toBe(true);
    expect(isOver(steps, "image_gen", "image_gen_cfg")).toBe(false);
    expect(isOver(steps, "image_gen", "image_gen")).toBe(false);
    expect(isOver(steps, "image_gen", "elsewhere")).toBe(false);
    const speak = stepsOf(read("orpheus"), "speak");
    expect([isOver(speak, "prefill", "decode"), isOver(speak, "prefill", "vocode")]).toEqual([true, false]);
  });

  it("of interleaved parts come again, and those named twice are over after the last", () => {
    const steps = [
      { for: "parts", text: [{ walk: "a" }], image: [{ walk: "b" }, { walk: "c" }] },
      { walk: "d" },
      { walk: "a" },
    ];
    const made = stepsOf({ tasks: { t: { steps } }, walks: {} } as unknown as GraphDocument, "t");
    expect([isOver(made, "b", "c"), isOver(made, "a", "b"), isOver(made, "a", "d")]).toEqual([false, false, false]);
    expect([isOver(made, "b", "d"), isOver(made, "c", "a")]).toEqual([true, false]);
  });
});

describe("loops", () => {
  const graph = {
    walks: {
      w: {
        body: [
          "a",
          { loop: "n", times: "steps - 1", body: ["c", { loop: "m", times: "2", body: ["b"] }] },
          { loop: "k", times: "min(4, steps)", body: [{ use: "a", as: "again" }] },
        ],
      },
    },
  } as unknown as GraphDocument;

  it("are those around a use, each by itself", () => {
    const names = ["a", "b", "again", "none"];
    expect(names.map((use) => loopsAround(graph, "w", use))).toEqual([[], ["n", "m"], ["k"], null]);
    expect(loopsAround(graph, "none", "a")).toBeNull();
  });

  it("have an end where the run's parameters tell it", () => {
    expect(loopTimes(graph, "w", "n", { steps: 50 })).toBe(49);
    expect(loopTimes(graph, "w", "n", {})).toBeNull();
    expect(loopTimes(graph, "w", "m", {})).toBe(2);
    expect(loopTimes(graph, "w", "k", { steps: 50 })).toBe(4);
    expect(loopTimes(graph, "w", "other", {})).toBeNull();
  });

  it("read the task's own parameters where the run was given none", () => {
    const shapes = read("shapes");
    const params = (given: Record<string, unknown>) => paramsOf(shapes, "text_to_image", given);
    expect(loopTimes(shapes, "image_gen", "denoise", params({}))).toBe(49);
    expect(loopTimes(shapes, "image_gen", "denoise", params({ steps: 8 }))).toBe(7);
    expect(paramsOf(shapes, "gone", { a: 1 })).toEqual({ a: 1 });
  });
});

describe("times", () => {
  it("are arithmetic as everybody writes it", () => {
    const values = { steps: 50, rows: 3, name: "x" };
    const cases: [string, number | null][] = [
      ["14", 14],
      ["steps - 1 - 1", 48],
      ["2 + rows * (steps - 2) / 4", 38],
      ["-rows + steps % 7 // 1", null],
      ["ceil(steps / rows)", 17],
      ["max(rows, 9, 2)", 9],
      ["steps // rows", 16],
      ["1e2", 100],
      ["2 - 3", null],
      ["steps / 0", null],
      ["steps if rows else 1", null],
      ["name", null],
      ["other", null],
      ["constructor", null],
      ["toString(1)", null],
      ["min(", null],
      ["(1", null],
      ["1 2", null],
      ["@loop.n", null],
      ["", null],
    ];
    expect(cases.map(([text]) => [text, timesOf(text, values)])).toEqual(cases);
  });
});

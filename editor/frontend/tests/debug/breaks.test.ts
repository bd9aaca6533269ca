import { describe, expect, it } from "vitest";
import { breaksAt, breakWords, dotWords, isLooped, readIteration, spotsOf } from "../../src/debug/model/breaks";
import { breakpoint, GRAPH } from "./fixtures";

describe("breakpoints", () => {
  it("of a node are at all of its uses, inside containers too", () => {
    expect(spotsOf(GRAPH, "llm").map(({ use }) => use)).toEqual(["llm", "next", "last"]);
    expect(spotsOf(GRAPH, "vae")).toEqual([{ walk: "decode", use: "vae" }]);
    expect(spotsOf(GRAPH, "gone")).toEqual([]);
  });

  it("are found by Walk and use", () => {
    const all = [breakpoint(), breakpoint({ id: "b2", use: "next" }), breakpoint({ id: "b3", walk: "other" })];
    const found = breaksAt(all, [
      { walk: "decode", use: "llm" },
      { walk: "other", use: "next" },
    ]);
    expect(found.map(({ id }) => id)).toEqual(["b1"]);
  });

  it("are told with iterations counted from 1", () => {
    expect(breakWords(breakpoint())).toBe("at every call");
    expect(breakWords(breakpoint({ iteration: 0, run: "r1" }))).toBe("in iteration 1 of one run");
    expect(dotWords([])).toContain("F9");
    expect(dotWords([breakpoint(), breakpoint({ id: "b2" })])).toBe("2 breakpoints");
    expect(dotWords([breakpoint({ inside: true })])).toContain("step by step");
  });

  it("take an iteration as it is typed", () => {
    expect(readIteration(" ")).toBeNull();
    expect(readIteration(" 3 ")).toBe(2);
    for (const wrong of ["0", "-1", "1.5", "x", "3x"]) expect(readIteration(wrong)).toBeUndefined();
  });

  it("have an iteration only in loops", () => {
    expect(isLooped(GRAPH, { walk: "decode", use: "vae" })).toBe(true);
    expect(isLooped(GRAPH, { walk: "decode", use: "last" })).toBe(false);
    expect(isLooped(GRAPH, { walk: "gone", use: "last" })).toBe(false);
  });
});

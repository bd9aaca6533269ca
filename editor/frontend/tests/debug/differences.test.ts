import { describe, expect, it } from "vitest";
import {
  aboutRow,
  firstWords,
  groupsOf,
  heightsOf,
  verdictOf,
  type Differences,
} from "../../src/debug/model/differences";
import { row } from "./fixtures";

function found(fields: Partial<Differences> = {}): Differences {
  const outputs = [{ name: "text", index: 0, equal: true, max_abs: 0 }];
  const missing = { a: 0, b: 0 };
  return { a: "a", b: "b", compared: 412, equal: 412, missing, outputs, first: null, rows: [], ...fields };
}

const WRONG = [{ name: "text", index: 0, equal: false, max_abs: null }];

describe("the verdict", () => {
  it("of equal runs names how much was compared", () => {
    const verdict = verdictOf(found());
    expect(verdict).toMatchObject({ kind: "good", title: "Identical: 412 values" });
    expect(verdict.detail).toBe("1 output identical, bit for bit.");
  });

  it("tells values on the way from outputs", () => {
    expect(verdictOf(found({ equal: 410 }))).toMatchObject({ kind: "warn" });
    expect(verdictOf(found({ equal: 410, outputs: WRONG }))).toMatchObject({ kind: "bad", title: "The runs differ" });
    expect(verdictOf(found({ equal: 410 })).detail).toContain("2 of 412 values differ.");
  });

  it("is never good where values are missing", () => {
    const verdict = verdictOf(found({ missing: { a: 1, b: 2 } }));
    expect(verdict.kind).toBe("warn");
    expect(verdict.detail).toContain("1 value only the second run has, 2 values only the first has.");
  });

  it("is of outputs alone where nothing was recorded", () => {
    const verdict = verdictOf(found({ recorded: false, compared: 0, equal: 0 }));
    expect(verdict).toMatchObject({ kind: "good", title: "The outputs are identical" });
    expect(verdict.detail).toContain("Neither run was recorded");
    expect(verdictOf(found({ recorded: false, outputs: WRONG })).title).toBe("The outputs differ");
    expect(verdictOf(found({ recorded: false, outputs: [] })).title).toBe("Nothing to compare");
  });
});

describe("a row", () => {
  it("says what differs most plainly", () => {
    expect(aboutRow(row({ dtype_b: "bfloat16" }))).toBe("float32 became bfloat16");
    expect(aboutRow(row({ shape_b: [1, 2] }))).toBe("[1] became [1, 2]");
    expect(aboutRow(row({ max_abs: null, max_rel: null }))).toBe("its content differs");
    expect(aboutRow(row({ max_abs: 0 }))).toContain("other bytes differ");
    expect(aboutRow(row())).toBe("differs by up to 0.5 (0.1 relative)");
  });

  it("names where the runs part", () => {
    const words = firstWords(row({ step: 2, iteration: [4] }));
    expect(words).toBe(
      "First different: `llm.token` in Walk decode, step 3, iteration 5: differs by up to 0.5 (0.1 relative).",
    );
  });
});

describe("groups", () => {
  it("hold all rows once, in the order of first differences, by iteration inside", () => {
    const rows = [
      row({ source: "b.x", iteration: [3], max_abs: 1 }),
      row({ source: "a.x", iteration: [1], max_abs: null }),
      row({ source: "b.x", iteration: [1], max_abs: 4 }),
      row({ walk: "other", source: "b.x", max_abs: 0 }),
      row({ source: "b.x", step: -1, iteration: [9], max_abs: 2 }),
    ];
    const groups = groupsOf(rows);
    expect(groups.map((group) => [group.walk, group.source, group.max_abs])).toEqual([
      ["decode", "b.x", 4],
      ["decode", "a.x", null],
      ["other", "b.x", 0],
    ]);
    expect(groups[0]!.rows.map((one) => one.max_abs)).toEqual([2, 4, 1]);
    expect(groups.flatMap((group) => group.rows)).toHaveLength(rows.length);
  });

  it("draw powers of ten evenly", () => {
    const heights = heightsOf([1e-6, 1e-4, 1e-2, 0, null].map((max_abs) => row({ max_abs })));
    expect(heights[0]).toBeCloseTo(0.2);
    expect(heights[1]).toBeCloseTo(0.6);
    expect(heights[2]).toBeCloseTo(1);
    expect(heights[3]).toBeLessThan(0.2);
    expect(heights[4]).toBe(1);
    expect(heightsOf([row({ max_abs: 3 })])).toEqual([0.6]);
    expect(heightsOf([row({ max_abs: null })])).toEqual([1]);
  });
});

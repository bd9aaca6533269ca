import { describe, expect, it } from "vitest";
import { factOf, isFact } from "../../src/play/outputs/Facts";
import type { OutputShown } from "../../src/play/model/types";

const came = (...values: unknown[]): OutputShown => ({
  name: "reached",
  text: "",
  made: values.map((value, index) => ({ index, iteration: null, value: { type: "flag", value }, at: 0 })),
  passes: [],
  left: 0,
});

describe("what one word says", () => {
  it("is yes, no, or a number without its rounding", () => {
    expect(factOf({ value: true })).toBe("yes");
    expect(factOf({ value: false })).toBe("no");
    expect(factOf({ value: 0 })).toBe("0");
    expect(factOf({ value: 0.1 + 0.2 })).toBe("0.3");
    expect(factOf({ value: [1] })).toBeNull();
    expect(factOf({ data: "" })).toBeNull();
  });

  it("is of an output that is nothing else", () => {
    expect(isFact(came(true))).toBe(true);
    expect(isFact(came(1, 2))).toBe(false);
    expect(isFact({ ...came(1), left: 3 })).toBe(false);
    expect(isFact(came())).toBe(false);
    expect(isFact(came([1, 2]))).toBe(false);
  });
});

import { describe, expect, it } from "vitest";
import { evaluate, FUNCTION_NAMES } from "../../src/document/evaluating";
import { FUNCTIONS } from "../../src/document/expressions";
import { cases } from "./cases";

describe("expressions", () => {
  const { params, loops, values } = cases.expressions;

  it("have the values that the service computes, or none", () => {
    const other = values.flatMap(([text, value]) => {
      const found = evaluate(text, params, loops);
      return found === value ? [] : [[text, value, found]];
    });
    expect(other).toEqual([]);
    expect(values.filter(([, value]) => value !== null).length).toBeGreaterThan(80);
    expect(values.filter(([, value]) => value === null).length).toBeGreaterThan(80);
  });

  it("know the functions that are told", () => {
    expect(FUNCTIONS.map(({ name }) => name)).toEqual(FUNCTION_NAMES);
  });
});

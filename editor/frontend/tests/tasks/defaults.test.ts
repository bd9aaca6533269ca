import { expect, it } from "vitest";
import { readDefault, writtenDefault } from "../../src/tasks/model/defaults";

it("reads what it has written", () => {
  for (const [value, modality] of [
    ["a red circle\na blue \\n square", "text"],
    ["12", "text"],
    [0.5, "scalar"],
    [true, "flag"],
    [[0.4, -0.8], "state"],
    [[7], "state"],
  ] as const)
    expect(readDefault(writtenDefault(value as never), modality)).toEqual(value);
});

it("takes numbers as they are typed, and leaves what is none to the check", () => {
  expect(readDefault("0.4 -0.8", "state")).toEqual([0.4, -0.8]);
  expect(readDefault("[1, 2]", "state")).toEqual([1, 2]);
  expect(readDefault("few", "state")).toBe("few");
  expect(readDefault("", "text")).toBeUndefined();
  expect(writtenDefault(undefined)).toBe("");
});

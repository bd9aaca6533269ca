import { describe, expect, it } from "vitest";
import { frameMs } from "../../src/play/model/pace";
import type { Made } from "../../src/play/model/types";

const film = (...at: number[]): Made[] =>
  at.map((each, index) => ({ index, iteration: [index], value: { type: "image", data: "" }, at: each }));

describe("the pace of a film", () => {
  it("is that at which its pictures came", () => {
    expect(frameMs(film(0, 100, 200, 300))).toBe(100);
  });
  it("is neither too slow nor too fast to watch", () => {
    expect(frameMs(film(0, 5000, 10_000))).toBe(250);
    expect(frameMs(film(0, 1, 2))).toBe(40);
  });
  it("is a fixed one where nobody knows when they came", () => {
    expect(frameMs(film(0, 0, 0))).toBe(120);
    expect(frameMs(film(700))).toBe(120);
    expect(frameMs([])).toBe(120);
  });
});

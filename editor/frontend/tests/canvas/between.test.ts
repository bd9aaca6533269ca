// What is proposed where a wire doesn't fit.
import { expect, test } from "vitest";
import { between } from "../../src/canvas/model/between";
import { accepts } from "../../src/document/typing";
import { cases } from "../document/cases";

const { catalogue } = cases;
const NONE = new Set<string>();
const names = (from: string, to: string, used: ReadonlySet<string> = NONE) =>
  between(catalogue, from, to, used).map((way) => way.map(({ component }) => component));

test("one component that takes the one type and gives the other", () => {
  expect(names("image", "pixels: float[3, h, w]")).toContainEqual(["media.picture_in"]);
  expect(names("pixels: float[3, h, w]", "image")).toContainEqual(["media.picture_out"]);
});

test("two where one isn't enough, those of the graph first", () => {
  const found = names("image", "embeddings: float[n, d]", new Set(["bagel.vit"]));
  expect(found[0]).toEqual(["media.picture_in", "bagel.vit"]);
});

test("every way fits port by port, and needs nothing else", () => {
  const types = ["text", "image", "audio", "ids: int[n]", "scalar: int[]", "pixels: float[3, h, w]", "list of text"];
  let ways = 0;
  for (const from of types)
    for (const to of types) {
      if (accepts(to, from) === null) continue;
      for (const way of between(catalogue, from, to, NONE)) {
        ways += 1;
        expect(way.length).toBeLessThanOrEqual(2);
        let have = from;
        for (const { component, input, output } of way) {
          const { inputs, outputs } = catalogue[component]!;
          const taken = inputs.find(({ name }) => name === input)!;
          expect(accepts(taken.type, have)).toBeNull();
          expect(inputs.filter((port) => !port.optional && port.name !== input)).toEqual([]);
          have = outputs.find(({ name }) => name === output)!.type;
        }
        expect(accepts(to, have)).toBeNull();
      }
    }
  expect(ways).toBeGreaterThan(5);
});

test("nothing where nothing fits", () => {
  expect(names("nothing: x", "image")).toEqual([]);
});

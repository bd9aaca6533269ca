import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import type { GraphDocument } from "../../src/document/types";
import { feeders } from "../../src/telemetry/previews";

const read = (name: string) =>
  JSON.parse(readFileSync(new URL(`../../../../graphs/${name}.json`, import.meta.url), "utf8")) as GraphDocument;

it("finds the component behind a use of another name", () => {
  const found = feeders(read("shapes"), "text_to_image");
  expect(Object.fromEntries(found)).toEqual({ preview: ["picture_out"], image: ["picture_out"] });
  expect(feeders(read("shapes"), "image_to_text").get("text")).toEqual(["detokenizer"]);
});

it("passes over what a half-written graph lacks", () => {
  const graph = { walks: { w: { body: ["a"], edges: [["a.x", "@out.y"], "no edge", ["b.x", "@out.z"]] } } };
  expect(Object.fromEntries(feeders(graph as unknown as GraphDocument))).toEqual({ y: ["a"] });
});

import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import type { GraphDocument } from "../../src/document/types";
import { feeders, nodesOf, walksOf } from "../../src/telemetry/previews";

const read = (name: string) =>
  JSON.parse(readFileSync(new URL(`../../../../graphs/${name}.json`, import.meta.url), "utf8")) as GraphDocument;

it("finds the component behind a use of another name", () => {
  const found = feeders(read("shapes"), "text_to_image");
  expect(Object.fromEntries(found)).toEqual({ preview: ["picture_out"], image: ["picture_out"] });
  expect(feeders(read("shapes"), "image_to_text").get("text")).toEqual(["detokenizer"]);
});

it("reads the steps of a task at any depth, and of tasks with a list a partition", () => {
  expect([...walksOf(read("shapes"), "text_to_image")].sort()).toEqual([
    "image_gen",
    "image_gen_cfg",
    "prefill_text",
  ]);
  expect([...walksOf(read("orpheus"), "speak")].sort()).toEqual(["decode", "prefill", "vocode"]);
  expect(nodesOf(read("orpheus"), "speak")).toContain("vocoder");
  expect(nodesOf(read("shapes"), "image_to_text")).not.toContain("vae_decoder");
});

it("passes over what a half-written graph lacks", () => {
  const graph = { walks: { w: { body: ["a"], edges: [["a.x", "@out.y"], "no edge", ["b.x", "@out.z"]] } } };
  expect(Object.fromEntries(feeders(graph as unknown as GraphDocument))).toEqual({ y: ["a"] });
});

import { expect, it } from "vitest";
import type { Component } from "../../src/messages/answers";
import { rowsOf } from "../../src/panels/common/Examples";

const ports = { optional: false, description: "" };
const resize = {
  name: "picture.caption",
  inputs: [
    { name: "image", type: "image: bytes", ...ports },
    { name: "size", type: "scalar: int", ...ports },
  ],
  outputs: [
    { name: "text", type: "text: str", ...ports },
    { name: "lines", type: "list of text", ...ports },
  ],
} as unknown as Component;

it("writes values as JSON and described ones as they are", () => {
  const rows = rowsOf(resize, {
    note: "",
    params: { mode: "short" },
    inputs: { image: "a photo", size: 4 },
    outputs: { text: "a cat", lines: ["a", "b"] },
  });
  expect(rows.map(({ side, name, value }) => `${side} ${name} ${value}`)).toEqual([
    'param mode "short"',
    "in image a photo",
    "in size 4",
    'out text "a cat"',
    'out lines ["a","b"]',
  ]);
});

import { expect, it } from "vitest";
import type { Component } from "../../src/messages/answers";
import { rowsOf } from "../../src/panels/common/Examples";

const ports = { optional: false, description: "" };
const resize = {
  name: "picture.caption",
  params: {},
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

it("knows the ports that follow from the example's parameters", () => {
  const gate = {
    name: "control.gate",
    params: { type: { type: "string", default: "text", gives: "type" } },
    inputs: [{ name: "value", type: "text", of: "type", ...ports }],
    outputs: [],
  } as unknown as Component;
  const values = (type: string) =>
    rowsOf(gate, { note: "", params: { type }, inputs: { value: "a photo" }, outputs: {} }).map(({ value }) => value);
  expect(values("image")).toEqual(['"image"', "a photo"]);
  expect(values("text")).toEqual(['"text"', '"a photo"']);
});

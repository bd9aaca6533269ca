import { expect, it } from "vitest";
import { parse, print } from "../../src/document/json";
import { setNodeParam } from "../../src/document/edits";
import type { GraphDocument } from "../../src/document/types";
import { cases, texts } from "./cases";

it("every bundled graph is written as Python writes it", () => {
  expect(Object.keys(texts)).toEqual(Object.keys(cases.texts));
  for (const [name, text] of Object.entries(texts)) {
    const { value, sources } = parse(text);
    expect(print(value, sources)).toBe(cases.texts[name]);
  }
});

it("numbers keep their spelling until they change", () => {
  const text =
    '{"name":"g","nodes":{"a":{"component":"x.y","params":{"scale":4.0,"tiny":1e-9,"big":12345678901234567890}}}}';
  const { value, sources } = parse(text);
  expect(print(value, sources)).toBe(text);
  const changed = setNodeParam(value as GraphDocument, "a", "scale", 4.5);
  expect(print(changed, sources)).toBe(text.replace("4.0", "4.5"));
  expect(print(setNodeParam(changed, "a", "scale", 4), sources)).toBe(text);
});

it("what this editor doesn't know is written back", () => {
  const text =
    '{"name":"g","future":{"a":[1,{"b":null}]},"nodes":{"n":{"component":"no.such","extra":[]}},"walks":{"w":{"body":[{"teleport":"n","to":[2.50]},"n",null],"edges":[["n.a","n.b","c"],{"from":"n.a","to":"n.b","via":7}],"odd":true}}}';
  const { value, sources } = parse(text);
  expect(print(value, sources)).toBe(text);
  const changed = setNodeParam(value as GraphDocument, "n", "x", 1);
  expect(print(changed, sources)).toBe(text.replace('"extra":[]', '"extra":[],"params":{"x":1}'));
});

import { expect, it } from "vitest";
import { shaped } from "../../src/document/shaping";
import { parseType } from "../../src/document/typing";
import type { Port } from "../../src/messages/answers";
import { cases } from "./cases";

it("ports follow from parameters as the backend says", () => {
  const { component, nodes } = cases.shaped;
  const read = (ports: readonly Port[]) => ports.map(({ name, type, optional }) => [name, parseType(type), optional]);
  for (const [param, value, inputs, outputs] of nodes) {
    const made = shaped(component, { [param]: value });
    const wanted = [inputs, outputs].map((side) =>
      side.map(([name, type, optional]) => [name, parseType(type), optional]),
    );
    expect([read(made.inputs), read(made.outputs)], `${param} = ${value}`).toEqual(wanted);
  }
  expect(nodes.length).toBeGreaterThan(25);
});

it("a node without such parameters has the declared component", () => {
  const plain = { ...cases.shaped.component, params: {} };
  expect(shaped(plain, { kind: "image" })).toBe(plain);
});

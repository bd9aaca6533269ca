// Cases that Python writes for these tests (`python -m tests.golden.editor_cases`), and the bundled graphs.
import type { Scalar } from "../../src/document/evaluating";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Catalogue, Component } from "../../src/messages/answers";
import type { GraphDocument, Walk } from "../../src/document/types";

const ROOT = join(import.meta.dirname, "../../../..");

type EndCase = [kind: string, name: string, port: string, order: number | null];
export type RouteCase = [
  source: EndCase,
  target: EndCase,
  common: number,
  carried: boolean,
  backward: boolean,
  leave: string,
  enter: string,
  left: string[],
  entered: string[],
  pointer: string,
];

/** The value of a choice or the list of a map, likewise, and the place of what takes it. */
export type HeadCase = [source: EndCase, order: number, carried: boolean, backward: boolean, left: string[]];

type PortCase = [name: string, type: string, optional: boolean];

export interface Cases {
  walks: Record<
    string,
    {
      walk: Walk;
      /** From a merge one for each of its sources. */
      routes: RouteCase[];
      results: RouteCase[];
      beside: [string, string][];
      /** Where the Walk has choices. */
      choices?: HeadCase[];
      apart?: [string, string][];
      /** Where it has maps. */
      maps?: HeadCase[];
    }
  >;
  types: { names: string[]; reasons: (string | null)[]; table: number[][] };
  texts: Record<string, string>;
  /** Walk -> what its uses and forks do with states; a fork has no name. Walks without any are left out. */
  accesses: Record<string, [use: string, state: string, writes: boolean][]>;
  catalogue: Catalogue;
  expressions: {
    params: Record<string, Scalar>;
    loops: Record<string, number>;
    /** null: the text has no value, or is no expression. */
    values: [text: string, value: Scalar | null][];
  };
  /** Parameter, value -> the ports that a node of the component has with it. */
  shaped: { component: Component; nodes: [param: string, value: string, inputs: PortCase[], outputs: PortCase[]][] };
}

export const cases = JSON.parse(readFileSync(join(ROOT, "tests/golden/editor_cases.json"), "utf8")) as Cases;

/** Name -> the text of each bundled graph. */
export const texts: Record<string, string> = Object.fromEntries(
  readdirSync(join(ROOT, "graphs"))
    .filter((file) => file.endsWith(".json"))
    .map((file) => [file.replace(/\.json$/, ""), readFileSync(join(ROOT, "graphs", file), "utf8")]),
);

/** Frozen all through, so that an edit that changes its input throws. */
export function graphs(): Record<string, GraphDocument> {
  return Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, frozen(JSON.parse(text))]));
}

export function frozen<T>(value: T): T {
  if (typeof value === "object" && value !== null) {
    Object.values(value).forEach(frozen);
    Object.freeze(value);
  }
  return value;
}

/** A graph of one Walk `w`, over the test components below. */
export function graphOf(walk: Walk, more: Partial<GraphDocument> = {}): GraphDocument {
  const nodes = Object.fromEntries(["a", "b", "c", "d"].map((name) => [name, { component: "test.mix" }]));
  return frozen({ name: "g", nodes: { ...nodes, eye: { component: "test.see" } }, walks: { w: walk }, ...more });
}

const shared = { description: "", cost: "compute", weights: null, families: [], host: false, available: true };
const port = (name: string, type: string, optional = false) => ({ name, type, optional, description: "" });

export const palette: Catalogue = {
  "test.mix": {
    ...shared,
    name: "test.mix",
    inputs: [port("x", "scalar: int[]"), port("y", "scalar: int[]", true), port("many", "scalar: int[n]", true)],
    outputs: [port("out", "scalar: int[]"), port("all", "scalar: int[n]")],
    params: {},
    states: [],
  },
  "test.see": {
    ...shared,
    name: "test.see",
    inputs: [port("image", "image")],
    outputs: [port("seen", "features: float[n, 8]")],
    params: {},
    states: [],
  },
};

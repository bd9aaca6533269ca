import { describe, expect, it } from "vitest";
import { found, offers } from "../../src/canvas/quick/quick";
import { suiting } from "../../src/catalogue/suits";
import { paletteOf, searched } from "../../src/panels/palette/search";
import type { GraphDocument } from "../../src/document/types";
import { cases } from "../document/cases";
import { graph } from "../panels/fixtures";

const { catalogue } = cases;
const empty: GraphDocument = {
  format: "walkgraph/graph@1",
  name: "g",
  nodes: {},
  walks: { w: { body: [] } },
  tasks: {},
};
const canvas = { kind: "walk", walk: "w", inside: null } as const;
const quick = (of: GraphDocument, words: string) =>
  found(offers(of, catalogue, canvas, null), words).map(({ key }) => key);
const palette = (of: GraphDocument, words: string) =>
  searched(paletteOf(catalogue, of, "components"), words).flatMap(({ entries }) => entries.map(({ key }) => key));

describe("what suits a graph", () => {
  it("is used in it, or of a family that it has, or of no model", () => {
    const suits = suiting(graph("bagel"), catalogue);
    const of = (name: string) => suits(catalogue[name]!);
    expect(of("flow.noise")).toBe(1);
    expect(of("bagel.vae_decoder")).toBe(1);
    expect(of("text.trim")).toBeLessThan(1);
    expect(of("pi05.noise")).toBeLessThan(of("text.trim"));
    expect(suiting(graph("pi05"), catalogue)(catalogue["pi05.noise"]!)).toBe(1);
  });

  it.each(["bagel", "shapes"])("comes first in %s, in the palette and the quick list", (name) => {
    for (const search of [quick, palette]) {
      const all = search(graph(name), "noise").filter((key) => key.endsWith(".noise"));
      expect(all[0]).toBe("flow.noise");
      expect(all.indexOf("pi05.noise")).toBeGreaterThan(0);
    }
  });

  it("doesn't hide what a person names in full", () => {
    expect(palette(graph("bagel"), "pi05.noise")[0]).toBe("pi05.noise");
    expect(quick(empty, "pi05.noise")[0]).toBe("pi05.noise");
    expect(quick(graph("pi05"), "noise").find((key) => key.endsWith(".noise"))).toBe("pi05.noise");
  });
});

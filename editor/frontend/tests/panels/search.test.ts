import { describe, expect, it } from "vitest";
import { AGAIN, FLOW, paletteOf, readQuery, searched } from "../../src/panels/palette/search";
import { byOrder, CATEGORY_ICONS } from "../../src/catalogue/icons";
import { cases } from "../document/cases";
import { catalogue } from "./components";
import { graph } from "./fixtures";

const all = paletteOf(catalogue, graph("bagel"), "walk");
const found = (text: string) => searched(all, text).flatMap((group) => group.entries.map((entry) => entry.key));

describe("the palette", () => {
  it("groups by family, those with a network first", () => {
    const titles = searched(all, "").map((group) => group.title);
    expect(titles).toEqual([FLOW, AGAIN, "bagel", "flow", "text", "pi05", "On the canvas"]);
    const bagel = searched(all, "")[2]!.entries.map((entry) => entry.key);
    expect(bagel.at(-1)).toBe("bagel.later");
  });

  it("groups by what components do, where they say so", () => {
    const does = (name: string, category: string | undefined) => ({ [name]: { ...catalogue[name]!, category } });
    const said = {
      ...catalogue,
      ...does("bagel.vae_decoder", "Image decoders"),
      ...does("flow.noise", "Sampling"),
      ...does("text.tokenizer", undefined),
    };
    const entries = paletteOf(said, graph("bagel"), "components");
    const groups = searched(entries, "");
    expect(groups.map((group) => group.title)).toEqual([
      "bagel",
      "Image decoders",
      "Sampling",
      "text",
      "pi05",
      "On the canvas",
    ]);
    expect(groups[1]!.entries.map(({ key, family }) => [key, family])).toEqual([["bagel.vae_decoder", "bagel"]]);
    const keys = (text: string) => searched(entries, text).flatMap((group) => group.entries.map(({ key }) => key));
    expect(keys("image decoders")[0]).toBe("bagel.vae_decoder");
    expect(keys("bagel")).toContain("bagel.vae_decoder");
  });

  it("lists categories in their order, and small parts before those of models", () => {
    const entries = paletteOf(cases.catalogue, graph("bagel"), "components");
    const groups = searched(entries, "");
    const titles = groups.map((group) => group.title).filter((title) => title in CATEGORY_ICONS);
    expect(titles).toEqual(
      Object.keys(CATEGORY_ICONS)
        .filter((title) => titles.includes(title))
        .toSorted(byOrder),
    );
    expect(titles.slice(0, 4)).toEqual(["Text", "Picture", "Sound", "Video"]);
    const pictures = groups.find((group) => group.title === "Picture")!.entries.filter((entry) => entry.available);
    const families = [...new Set(pictures.map((entry) => entry.family))];
    expect(families.slice(0, 3)).toEqual(["media", "picture", "bagel"]);
  });

  it("finds lists by what they hold", () => {
    const entries = paletteOf(cases.catalogue, graph("bagel"), "components");
    const keys = searched(entries, "<pixels").flatMap((group) => group.entries.map(({ key }) => key));
    expect(keys).toContain("picture.grid");
    expect(keys).not.toContain("text.trim");
  });

  it("offers containers and nodes of the graph in Walks only", () => {
    const components = paletteOf(catalogue, graph("bagel"), "components");
    expect(components.some((entry) => entry.group === FLOW || entry.group === AGAIN)).toBe(false);
    expect(found("").filter((key) => key.startsWith("node:"))).toHaveLength(16);
  });

  it("offers a Walk the streams that others feed", () => {
    const offered = (walk: string) =>
      paletteOf(catalogue, graph("synthetic_streams"), "walk", walk)
        .filter((entry) => entry.group === "Streams")
        .map((entry) => entry.title);
    expect(offered("produce")).toEqual(["sums"]);
    expect(offered("windows")).toEqual(["batches", "windows", "contexts", "whole", "padded"]);
  });

  it("finds by name, abbreviation and purpose", () => {
    expect(found("vae decoder")[0]).toBe("bagel.vae_decoder");
    expect(found("flow.noise").slice(0, 2)).toEqual(["flow.noise", "node:noise"]);
    expect(found("tokenzer")).toEqual([]);
    expect(found("vaedec")).toContain("bagel.vae_decoder");
    expect(found("paints")).toContain("bagel.vae_decoder");
    expect(found("loop")[0]).toBe("loop");
  });

  it("finds by port type, and by who makes or takes it", () => {
    expect(found("latents")).toEqual(
      expect.arrayContaining(["bagel.vae_decoder", "bagel.vae_encoder", "flow.noise"]),
    );
    expect(found("latents")).not.toContain("text.tokenizer");
    const makes = found(">latents").filter((key) => !key.startsWith("node:"));
    expect(makes.sort()).toEqual(["bagel.later", "bagel.vae_encoder", "flow.noise"]);
    const takes = found("<latents").filter((key) => !key.startsWith("node:"));
    expect(takes.sort()).toEqual(["bagel.later", "bagel.vae_decoder"]);
    expect(found("<latents >pixels").filter((key) => !key.startsWith("node:"))).toEqual(["bagel.vae_decoder"]);
  });

  it("ranks what can't be deployed below what can", () => {
    const order = found("bagel").filter((key) => key.startsWith("bagel."));
    expect(order.at(-1)).toBe("bagel.later");
  });

  it("reads filters beside words", () => {
    expect(readQuery(" vae >pixels <latents ")).toEqual({ words: "vae", makes: ["pixels"], takes: ["latents"] });
    expect(readQuery(">")).toEqual({ words: "", makes: [], takes: [] });
  });
});

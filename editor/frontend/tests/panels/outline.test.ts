import { describe, expect, it } from "vitest";
import { moveItems } from "../../src/document/edits/items";
import { entries, flat } from "../../src/document/tree";
import type { GraphDocument } from "../../src/document/types";
import { above, dropOf, isSelected, problemsByRow, rowsOf, stepOf, visible } from "../../src/panels/outline/outline";
import type { View } from "../../src/store/types";
import { graph, names } from "./fixtures";

const bagel = graph("bagel");
const order = (document: GraphDocument, walk: string) =>
  flat(entries(document.walks![walk]!)).map((entry) => "  ".repeat(depth(entry)) + entry.id);
const depth = (entry: { parent: unknown }): number =>
  entry.parent ? 1 + depth(entry.parent as { parent: unknown }) : 0;

describe("rows", () => {
  it.each(names)("of %s have one key each and stand below their parents", (name) => {
    const rows = rowsOf(graph(name));
    expect(new Set(rows.map((row) => row.key)).size).toBe(rows.length);
    const seen = new Set<string | null>([null]);
    for (const row of rows) {
      expect(seen.has(row.parent)).toBe(true);
      seen.add(row.key);
    }
  });

  it("show times and conditions", () => {
    const rows = rowsOf(bagel);
    expect(rows.find((row) => row.key === "walk:image_gen/loop:denoise")).toMatchObject({
      times: "steps - 1",
      level: 3,
    });
    expect(rows.find((row) => row.key === "walk:prefill_vit/fork:0")).toMatchObject({
      label: "main → cfg_text",
      when: "cfg_text_scale > 1",
    });
    expect(rows.find((row) => row.key === "walk:decode/@out")).toMatchObject({ detail: "text, token", id: "@out" });
  });

  it("hide what is in closed ones", () => {
    const rows = rowsOf(bagel);
    const shown = visible(rows, new Set(["walks", "walk:decode"])).map((row) => row.key);
    expect(shown).toContain("walk:decode/loop:tokens");
    expect(shown).not.toContain("walk:decode/use:llm");
    expect(above(rows, "walk:decode/use:llm")).toEqual(["walk:decode/loop:tokens", "walk:decode", "walks"]);
  });

  it("are selected as the canvas is", () => {
    const view: View = {
      tab: "graph",
      canvas: { kind: "walk", walk: "decode", inside: null },
      selection: ["use:llm"],
      lit: null,
      lens: "kind",
    };
    const selected = rowsOf(bagel).filter((row) => isSelected(row, view));
    expect(selected.map((row) => row.key)).toEqual(["walk:decode/use:llm"]);
    const none = rowsOf(bagel).filter((row) => isSelected(row, { ...view, selection: [] }));
    expect(none.map((row) => row.key)).toEqual(["walk:decode"]);
  });

  it("carry problems of what they hide", () => {
    const problem = {
      code: "x",
      pointer: "/walks/decode/body/1/body/0/when",
      message: "m",
      severity: "error",
    } as const;
    const rows = rowsOf(bagel);
    const at = (open: string[]) => [...problemsByRow(visible(rows, new Set(open)), [problem]).keys()];
    expect(at([])).toEqual(["walks"]);
    expect(at(["walks"])).toEqual(["walk:decode"]);
    expect(at(["walks", "walk:decode"])).toEqual(["walk:decode/loop:tokens"]);
    expect(at(["walks", "walk:decode", "walk:decode/loop:tokens"])).toEqual(["walk:decode/use:llm"]);
  });
});

describe("moves", () => {
  const walk = bagel.walks!["image_gen"]!;
  const moved = (id: string, direction: Parameters<typeof stepOf>[2]) => {
    const place = stepOf(walk, id, direction);
    return place && order(moveItems(bagel, "image_gen", [id], place), "image_gen");
  };

  it("go up and down in the container", () => {
    expect(moved("use:combine_cfg", "up")?.slice(1, 4)).toEqual(["loop:denoise", "  use:combine_cfg", "  use:llm"]);
    expect(moved("use:llm", "down")?.slice(1, 4)).toEqual(["loop:denoise", "  use:combine_cfg", "  use:llm"]);
    expect(stepOf(walk, "use:llm", "up")).toBeNull();
    expect(stepOf(walk, "use:picture_out", "down")).toBeNull();
  });

  it("go out behind the container, and into the one before or after", () => {
    expect(moved("use:combine_cfg", "out")).toContain("use:combine_cfg");
    expect(moved("use:vae_decoder", "in")).toContain("  use:vae_decoder");
    expect(moved("use:noise", "in")?.slice(0, 2)).toEqual(["loop:denoise", "  use:noise"]);
    expect(stepOf(walk, "use:noise", "out")).toBeNull();
    expect(stepOf(walk, "use:picture_out", "in")).toBeNull();
  });

  it("land where they are dropped", () => {
    expect(dropOf(walk, "loop:denoise", "inside")).toEqual({ parent: "loop:denoise", index: 0 });
    expect(dropOf(walk, "use:llm", "after")).toEqual({ parent: "loop:denoise", index: 1 });
    expect(dropOf(walk, "use:noise", "before")).toEqual({ parent: null, index: 0 });
  });
});

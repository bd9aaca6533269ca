import { expect, it } from "vitest";
import { color, glyph, itemOf, MODALITIES, modalityOf } from "../../src/ui/modality";
import { MODALITIES as DECLARED } from "../../src/document/typing";

it("gives every modality a look, and a list that of its items", () => {
  expect(MODALITIES.toSorted()).toEqual([...DECLARED].toSorted());
  expect(new Set(MODALITIES.map(glyph)).size).toBe(MODALITIES.length);
  for (const modality of DECLARED) {
    expect(glyph(`list of ${modality}: float[n]`)).toBe(glyph(modality));
    expect(color(`list  of ${modality}`)).toBe(`var(--m-${modality})`);
  }
  expect([itemOf("list of pixels: float[3, h, w]"), modalityOf("list of pixels")]).toEqual([
    "pixels",
    "list of pixels",
  ]);
  expect([glyph("strange"), color("list of strange")]).toEqual(["?", "var(--bad)"]);
});

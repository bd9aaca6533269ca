import { describe, expect, it } from "vitest";
import { byOrder, CATEGORY_ICONS, COMPONENT_ICONS, iconOf, toneOf } from "../../src/catalogue/icons";
import { familyOf, groupOf } from "../../src/catalogue/catalogue";
import { MODALITIES } from "../../src/document/typing";
import { Package } from "lucide-react";
import { cases } from "../document/cases";

const COMPONENTS = Object.values(cases.catalogue);
/** Families of small parts, which lie beside each other in the palette: each part has a picture of its own. */
const SMALL = "agent control http json media numbers openai picture sound text video".split(" ");

describe("the picture of a component", () => {
  it("is there for each, of its own or of its category", () => {
    const without = COMPONENTS.filter((component) => iconOf(component) === Package);
    expect(without.map((component) => component.name)).toEqual([]);
  });

  it("is its own in the families of small parts, and no two of a category look the same", () => {
    const small = COMPONENTS.filter((component) => SMALL.includes(familyOf(component)));
    expect(small.map((one) => one.name).filter((name) => !(name in COMPONENT_ICONS))).toEqual([]);
    for (const category of new Set(small.map(groupOf))) {
      const names = small.filter((one) => groupOf(one) === category).map((one) => one.name);
      expect(new Set(names.map((name) => COMPONENT_ICONS[name])).size, category).toBe(names.length);
    }
  });

  it("belongs to a component that is declared", () => {
    expect(Object.keys(COMPONENT_ICONS).filter((name) => !(name in cases.catalogue))).toEqual([]);
  });

  it("has a colour of the theme", () => {
    for (const category of [...Object.keys(CATEGORY_ICONS), "edges"])
      expect(MODALITIES.map((modality) => `var(--m-${modality})`)).toContain(toneOf(category));
  });
});

it("puts what pipelines are made of first, plug-ins after models, and what is for tests last", () => {
  const found = ["Testing", "edges", "World", "Model", "Text", "Video", "acme", "Numbers"].toSorted(byOrder);
  expect(found).toEqual(["Text", "Video", "Numbers", "Model", "World", "acme", "edges", "Testing"]);
});

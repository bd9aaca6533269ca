import { describe, expect, it } from "vitest";
import { addNode, setNodeComponent, setNodeKept } from "../../src/document/edits/nodes";
import { entries, find } from "../../src/document/tree";
import { flagsIn } from "../../src/panels/inspector/forms/ItemForms";
import { arrange } from "../../src/panels/inspector/forms/align";
import { between } from "../../src/panels/inspector/forms/EdgeForm";
import { whyNotNumber } from "../../src/panels/inspector/fields/fields";
import { summary } from "../../src/panels/inspector/forms/ManyForm";
import { weightsOptions } from "../../src/panels/inspector/forms/NodeForm";
import { subjectOf } from "../../src/panels/inspector/subject";
import { scopeOfNode, scopeOfWalk, tasksOfWalk } from "../../src/panels/common/scope";
import type { Canvas } from "../../src/store/types";
import { catalogue } from "./components";
import { graph } from "./fixtures";

const bagel = graph("bagel");
const components: Canvas = { kind: "components" };
const decode: Canvas = { kind: "walk", walk: "decode", inside: null };

describe("what the inspector is about", () => {
  it.each([
    [components, [], { kind: "graph" }],
    [decode, [], { kind: "walk", walk: "decode" }],
    [components, ["node:llm"], { kind: "node", node: "llm" }],
    [components, ["stream:x"], { kind: "stream", stream: "x" }],
    [decode, ["@stream.x"], { kind: "stream", stream: "x" }],
    [decode, ["@in"], { kind: "inputs", walk: "decode" }],
    [decode, ["edge:2"], { kind: "edge", walk: "decode", index: 2 }],
    [decode, ["note:n1"], { kind: "note", id: "n1", canvas: decode }],
    [decode, ["use:llm", "edge:1"], { kind: "many", walk: "decode", ids: ["use:llm", "edge:1"] }],
    [decode, ["use:gone"], { kind: "walk", walk: "decode" }],
    [components, ["node:gone"], { kind: "graph" }],
  ] as const)("%j %j", (canvas, selection, subject) => {
    expect(subjectOf(bagel, { canvas, selection })).toEqual(subject);
  });

  it("is the item with its place", () => {
    const subject = subjectOf(bagel, { canvas: decode, selection: ["use:llm"] });
    expect(subject).toMatchObject({ kind: "item", entry: { id: "use:llm", loops: ["tokens"] } });
  });

  it("says what is selected", () => {
    expect(summary(["use:a", "use:b", "loop:c", "@in"])).toBe("2 uses, 1 loop, 1 of the boundary selected.");
  });
});

describe("names in scope", () => {
  it("are the loops around and the parameters of the tasks that get there", () => {
    expect(tasksOfWalk(bagel, "decode")).toEqual(["text_to_image", "edit", "image_to_text"]);
    const names = scopeOfWalk(bagel, "read_text", []).map(({ name }) => name);
    expect(names).toContain("max_tokens");
    expect(names).not.toContain("steps");
    expect(names.some((name) => name.startsWith("@"))).toBe(false);
  });

  it("of a node are those of all its uses, with the tasks that have them", () => {
    const names = new Map(scopeOfNode(bagel, "llm").map(({ name, about }) => [name, about]));
    expect([...names.keys()]).toEqual(
      expect.arrayContaining(["@loop.denoise", "@loop.tokens", "@loop.index", "seed"]),
    );
    expect(names.get("steps")).toContain("text_to_image, edit");
    expect(names.get("think")).toContain("every task here");
  });
});

describe("weights of a node that reads the tokenizer of any of some families", () => {
  const reader = { ...catalogue["text.tokenizer"]!, weights: "any", families: ["bagel", "orpheus"] };
  const mixed = {
    ...bagel,
    weights: {
      painter: { family: "world", source: "starter:world" },
      voice: { family: "orpheus", source: "random:orpheus-3b:0" },
    },
  };

  it("are all entries of these families, and new ones of each", () => {
    expect(weightsOptions(mixed, undefined, reader).map(({ label }) => label)).toEqual([
      "none",
      "voice (random:orpheus-3b:0)",
      "New weights of bagel",
      "New weights of orpheus",
    ]);
  });

  it("show what is chosen, also where it doesn't fit or isn't there", () => {
    const labels = (chosen: string) => weightsOptions(mixed, chosen, reader).map(({ label }) => label);
    expect(labels("painter")).toContain("painter (starter:world)");
    expect(labels("gone")).toContain("gone (not in the graph)");
    expect(labels("voice")).toHaveLength(4);
  });

  it("are bound at once where one entry fits, and kept where a component is changed", () => {
    const known = { ...catalogue, "text.tokenizer": reader };
    const { graph: made, name } = addNode(mixed, "text.tokenizer", { catalogue: known });
    expect(made.nodes![name]!.weights).toBe("voice");
    const other = { ...reader, name: "text.detokenizer" };
    const kept = setNodeComponent(made, name, "text.detokenizer", { ...known, "text.detokenizer": other });
    expect(kept.nodes![name]!.weights).toBe("voice");
    const lost = setNodeComponent(made, name, "flow.noise", known);
    expect(lost.nodes![name]!.weights).toBeUndefined();
  });

  it("keep results only while the component is deterministic", () => {
    const steady = { ...reader, name: "text.tokenizer", deterministic: true };
    const known = { ...catalogue, "text.tokenizer": steady, "text.other": { ...steady, name: "text.other" } };
    const { graph: made, name } = addNode(mixed, "text.tokenizer", { catalogue: known });
    const kept = setNodeKept(made, name, "own");
    expect(kept.nodes![name]!.kept).toBe("own");
    expect(setNodeKept(kept, name, null)).toEqual(made);
    expect(setNodeComponent(kept, name, "text.other", known).nodes![name]!.kept).toBe("own");
    expect(setNodeComponent(kept, name, "flow.noise", known).nodes![name]!.kept).toBeUndefined();
  });
});

describe("what forms offer", () => {
  it("flags inside a loop", () => {
    const loop = find(entries(bagel.walks!["decode"]!), "loop:tokens")!;
    expect(flagsIn(bagel, catalogue, loop)).toEqual(["llm.stop"]);
  });

  it("what fits between two ports", () => {
    const found = between(bagel, catalogue, "latents: float[h, w, c]", "pixels: float[3, h, w]").map(
      (one) => one.value,
    );
    expect(found).toEqual(["node:vae_decoder", "component:bagel.vae_decoder"]);
    expect(between(bagel, catalogue, null, null)).toEqual([]);
  });

  it("numbers in their bounds only", () => {
    const whole = { integer: true, min: 1, max: 8 };
    expect(whyNotNumber("3", whole)).toBeNull();
    expect(whyNotNumber("3.5", whole)).toContain("whole");
    expect(whyNotNumber("0", whole)).toContain("at least 1");
    expect(whyNotNumber("9", whole)).toContain("at most 8");
    expect(whyNotNumber("many", whole)).toContain("not a number");
    expect(whyNotNumber("1e999", { ...whole, max: null })).toContain("not a number");
  });
});

describe("lining up", () => {
  it("moves whole containers, and nothing that is inside of what moves", () => {
    const canvas: Canvas = { kind: "walk", walk: "image_gen", inside: null };
    const ids = ["use:noise", "loop:denoise", "use:llm"];
    const at = arrange(bagel, canvas, catalogue, ids, "left").layout as {
      walks: Record<string, { at: Record<string, [number, number]> }>;
    };
    const places = at.walks["image_gen"]!.at;
    expect(Object.keys(places)).toEqual(expect.arrayContaining(["use:noise", "use:llm", "use:combine_cfg"]));
    expect(places["use:picture_out"]).toBeUndefined();
    const again = arrange(arrange(bagel, canvas, catalogue, ids, "left"), canvas, catalogue, ids, "left");
    expect(again.layout).toEqual(at);
  });

  it("needs two", () => {
    expect(arrange(bagel, components, catalogue, ["node:llm"], "top")).toBe(bagel);
  });
});

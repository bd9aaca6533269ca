import { describe, expect, it } from "vitest";
import * as edits from "../../src/document/edits";
import { readsLoop, renameLoop, renameParam } from "../../src/document/expressions";
import { canBeNamed, freshName, isName } from "../../src/document/names";
import type { GraphDocument } from "../../src/document/types";
import { frozen, graphs } from "./cases";

const canvas = { kind: "walk", walk: "w", inside: null } as const;

/** Names in every place that can hold one. */
const graph: GraphDocument = frozen<GraphDocument>({
  name: "g",
  weights: { big: { family: "f", source: "starter:f" } },
  states: { kept: { kind: "tensor" }, copy: { kind: "tensor" } },
  nodes: {
    llm: { component: "x.llm", weights: "big", states: { slot: "kept" }, params: { at: "=@loop.step + steps" } },
    eye: { component: "x.eye" },
  },
  walks: {
    w: {
      inputs: { prompt: "text" },
      body: [
        "eye",
        { fork: "kept", into: "copy" },
        {
          loop: "step",
          times: "steps",
          until: "llm.stop",
          body: [{ use: "llm", when: "@loop.step > 0 and 'llm' == kind" }],
        },
        { use: "llm", as: "again" },
      ],
      edges: [
        ["@in.prompt", "eye.text"],
        ["eye.seen", "llm.seen"],
        ["llm.seen", "llm.seen"],
        ["@loop.step", "llm.step"],
        { from: "llm.token", to: "@out.token", each: true },
        ["@stream.heard", "again.seen"],
      ],
      results: { all: { from: "llm.token", collect: true }, last: "llm.token" },
    },
    v: {
      body: ["eye", { use: "llm", as: "other" }],
      edges: [
        ["eye.seen", "other.seen"],
        ["other.token", "@out.token"],
      ],
    },
  },
  streams: [{ name: "heard", from: "eye.seen", walks: ["v"], chunks: { policy: "whole" } }],
  tasks: {
    t: {
      inputs: { said: { modality: "text" } },
      outputs: ["token"],
      params: { steps: { type: "integer", default: 2 }, kind: { type: "string", default: "x" } },
      steps: [
        { walk: "w", as: "first", with: { prompt: "@task.said" }, when: "steps > 1" },
        {
          for: "parts",
          text: [
            {
              first: [
                { walk: "w", with: { prompt: "@part" } },
                { walk: "v", with: { x: "w.last", y: "first.last" } },
              ],
            },
          ],
        },
      ],
    },
  },
  layout: {
    components: { at: { llm: [1, 2], eye: [3, 4] } },
    walks: {
      w: {
        at: { "use:llm": [5, 6], "loop:step": [7, 8], "@stream.heard": [9, 9] },
        closed: ["loop:step"],
        reroutes: { "eye.seen>llm.seen": [[1, 1]] },
      },
    },
  },
});

const text = (made: unknown) => JSON.stringify(made);
/** How often a word stands in the document by itself. */
const count = (made: GraphDocument, word: string) => text(made).match(new RegExp(`\\b${word}\\b`, "g"))?.length ?? 0;

describe("a new name reaches every place", () => {
  it("of a node", () => {
    const made = edits.renameNode(graph, "llm", "brain");
    expect(text(made)).toBe(text(graph).replaceAll(/(?<!x\.)\bllm\b(?!')/g, "brain"));
    expect(text(edits.renameNode(made, "brain", "llm"))).toBe(text(graph));
    const eyes = edits.renameNode(graph, "eye", "sight");
    expect(text(eyes)).toBe(text(graph).replaceAll(/(?<!x\.)\beye\b/g, "sight"));
  });

  it("of a node, except where a use keeps its own", () => {
    const taken = edits.setItem(graph, "w", "use:again", { as: "brain" });
    const made = edits.renameNode(taken, "llm", "brain");
    expect(made.walks!["w"]!.body.at(-1)).toEqual({ use: "brain" });
    expect(text(made.walks!["w"]!.body)).toContain(
      '{"use":"brain","when":"@loop.step > 0 and \'llm\' == kind","as":"llm"}',
    );
    expect(made.walks!["w"]!.edges).toBe(taken.walks!["w"]!.edges);
  });

  it("of a use", () => {
    const made = edits.setItem(graph, "w", "use:llm", { as: "core" });
    expect(made.walks!["w"]!.results).toEqual({ all: { from: "core.token", collect: true }, last: "core.token" });
    expect(text(made)).toContain('"until":"core.stop"');
    expect(edits.canvasLayout(made, canvas).reroutes).toEqual({ "eye.seen>core.seen": [[1, 1]] });
    expect(edits.canvasLayout(made, canvas).at).toMatchObject({ "use:core": [5, 6] });
    expect(text(edits.setItem(made, "w", "use:core", { as: null }))).toBe(text(graph));
    expect(() => edits.setItem(graph, "w", "use:llm", { as: "again" })).toThrow(/already/);
    expect(() => edits.setItem(graph, "w", "use:llm", { as: "no name" })).toThrow(/can't be a name/);
    const streamed = edits.setItem(graph, "v", "use:eye", { as: "ear" });
    expect(streamed.streams![0]!.from).toBe("ear.seen");
    const both = edits.setStream(graph, "heard", { walks: ["v", "w"] });
    expect(() => edits.setItem(both, "v", "use:eye", { as: "ear" })).toThrow(/stream `heard`/i);
  });

  it("of a loop", () => {
    const made = edits.setItem(graph, "w", "loop:step", { loop: "turn", times: "steps" });
    expect(text(made)).toBe(
      text(graph)
        .replaceAll("@loop.step", "@loop.turn")
        .replace('"loop":"step"', '"loop":"turn"')
        .replaceAll("loop:step", "loop:turn"),
    );
    expect(() => edits.setItem(graph, "w", "loop:step", { loop: "index" })).toThrow(/reads otherwise/);
    expect(() => edits.setItem(graph, "w", "loop:step", { loop: "a-b" })).toThrow(/reads otherwise/);
    const shared = edits.wrap(graph, "v", ["use:other"], "loop", { loop: "step" }).graph;
    expect(() => edits.setItem(shared, "w", "loop:step", { loop: "turn" })).toThrow(/Walk `v` too/);
  });

  it("of a Walk", () => {
    const made = edits.renameWalk(graph, "w", "talk");
    expect(count(made, "w")).toBe(0);
    expect(text(made)).toContain('"x":"talk.last","y":"first.last"');
    expect(text(edits.renameWalk(made, "talk", "w"))).toBe(text(graph));
    expect(edits.renameWalk(graph, "v", "hear").streams![0]!.walks).toEqual(["hear"]);
    expect(() => edits.renameWalk(graph, "v", "first")).toThrow(/`first`/);
  });

  it("of inputs, outputs and results of a Walk", () => {
    const input = edits.renameInput(graph, "w", "prompt", "ask");
    expect([count(input, "prompt"), count(input, "ask")]).toEqual([0, 4]);
    const result = edits.renameResult(graph, "w", "last", "end");
    expect(text(result)).toContain('"x":"w.end","y":"first.end"');
    const one = edits.renameOutput(graph, "w", "token", "word");
    expect(one.tasks!["t"]!.outputs).toEqual(["token", "word"]);
    const both = edits.renameOutput(one, "v", "token", "word");
    expect(both.tasks!["t"]!.outputs).toEqual(["word"]);
    expect(count(both, "@out.token")).toBe(0);
  });

  it("of a stream, a state, weights, and a task's parts", () => {
    const stream = edits.renameStream(graph, "heard", "sound");
    expect([count(stream, "heard"), count(stream, "sound")]).toEqual([0, 3]);
    const state = edits.renameState(graph, "kept", "memory");
    expect([count(state, "kept"), count(state, "memory")]).toEqual([0, 3]);
    const weights = edits.renameWeights(graph, "big", "huge");
    expect([count(weights, "big"), count(weights, "huge")]).toEqual([0, 2]);
    const input = edits.renameTaskInput(graph, "t", "said", "spoken");
    expect([count(input, "said"), count(input, "spoken")]).toEqual([0, 2]);
    const param = edits.renameTaskParam(graph, "t", "steps", "rounds").tasks!["t"]!;
    expect(JSON.stringify(param)).toContain('"when":"rounds > 1"');
    expect(param.params).toHaveProperty("rounds");
    expect(() => edits.renameTaskParam(graph, "t", "steps", "said")).toThrow(/already/);
    expect(() => edits.renameTaskParam(graph, "t", "steps", "not")).toThrow(/can't be used in expressions/);
  });

  it("and is refused where there is nothing of the old one", () => {
    expect(() => edits.renameNode(graph, "gone", "x")).toThrow(edits.EditRefused);
    expect(() => edits.renameStream(graph, "gone", "x")).toThrow(edits.EditRefused);
    expect(() => edits.renameNode(graph, "toString", "x")).toThrow(edits.EditRefused);
    expect(edits.renameNode(graph, "llm", "llm")).toBe(graph);
  });
});

it("renames of every node of every bundled graph can be taken back", () => {
  for (const before of Object.values(graphs()))
    for (const node of Object.keys(before.nodes!)) {
      const made = edits.renameNode(before, node, "something_else");
      expect(JSON.stringify(Object.values(made.walks!).map(({ body }) => body))).not.toMatch(
        new RegExp(`"use":"${node}"`),
      );
      expect(edits.renameNode(made, "something_else", node)).toEqual(before);
    }
});

it("expressions are read part by part", () => {
  expect(renameLoop("@loop.i + '@loop.i' + @loop.it", "i", "j")).toBe("@loop.j + '@loop.i' + @loop.it");
  expect(renameParam("max(max, 1e-3) + 'max' + @loop.max + e", "max", "most")).toBe(
    "max(most, 1e-3) + 'max' + @loop.max + e",
  );
  expect(renameParam("float32(float32) < low", "float32", "single")).toBe("float32(single) < low");
  expect([readsLoop("@loop.i > 1", "i"), readsLoop("'@loop.i'", "i")]).toEqual([true, false]);
});

it("names are told from what is none", () => {
  expect(["a", "A-b_9", "a".repeat(64)].every(isName)).toBe(true);
  expect(["", "1a", "ä", "a b", "_a", "a".repeat(65), "a\n"].some(isName)).toBe(false);
  expect(["a_b", "a-b", "and"].map(canBeNamed)).toEqual([true, false, false]);
  expect(freshName("llm", [])).toBe("llm");
  expect(freshName("llm", ["llm", "llm_2"])).toBe("llm_3");
  expect(freshName("llm_2", ["llm_2"])).toBe("llm_3");
  expect(freshName("9 lives!", [])).toBe("lives_");
  expect(freshName("", [])).toBe("item");
  const long = freshName("x".repeat(70), ["x".repeat(64)]);
  expect([isName(long), long.length]).toEqual([true, 64]);
});

// Broken graphs with the backend's problems (`python -m tests.golden.editor_repairs`), and what mends them. The mended
// graphs are kept for the backend, which finds the problem gone and no other in its place.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { byName } from "../../src/catalogue/catalogue";
import type { GraphDocument } from "../../src/document/types";
import type { Problem } from "../../src/messages/answers";
import { MENDED, repairsOf } from "../../src/panels/problems/repairs";
import { cases, frozen } from "../document/cases";

const GOLDEN = join(import.meta.dirname, "../../../../tests/golden");
const broken = JSON.parse(readFileSync(join(GOLDEN, "editor_broken.json"), "utf8")) as Record<
  string,
  { graph: GraphDocument; problems: Problem[] }
>;
const catalogue = byName(Object.values(cases.catalogue));

const mended = Object.fromEntries(
  Object.entries(broken).map(([name, { graph, problems }]) => {
    const whole = frozen(graph);
    const made = problems.flatMap((problem, index) =>
      repairsOf(whole, catalogue, problem).map(({ label, edit }) => ({ problem: index, label, graph: edit(whole) })),
    );
    return [name, made];
  }),
);
const labels = Object.fromEntries(Object.entries(mended).map(([name, made]) => [name, made.map((one) => one.label)]));

describe("repairs", () => {
  it("are kept as they are for the backend to judge", async () => {
    const lines = Object.entries(mended).map(([name, made]) => `  ${JSON.stringify(name)}: ${JSON.stringify(made)}`);
    await expect(`{\n${lines.join(",\n")}\n}\n`).toMatchFileSnapshot(join(GOLDEN, "editor_mended.json"));
  });

  it("change something, for every kind of problem that they are for", () => {
    for (const [name, made] of Object.entries(mended))
      for (const { graph } of made) expect([name, graph === broken[name]!.graph]).toEqual([name, false]);
    const met = Object.entries(mended).flatMap(([name, made]) =>
      made.map(({ problem }) => broken[name]!.problems[problem]!.code),
    );
    expect([...new Set(met)].sort()).toEqual([...MENDED].sort());
  });

  it("say what they do", () => {
    expect(labels["a cache isn't bound"]).toEqual(["Keep it in main", "Remove main"]);
    expect(labels["a state isn't bound, and there is none"]).toEqual(["Add a state for detokenizer"]);
    expect(labels["no weights are named"]).toEqual(["Read shapes"]);
    expect(labels["no entry of weights"]).toContain("Add the weights bagel");
    expect(labels["nothing feeds the tokenizer"]).toEqual([
      "Connect the input text to tokenizer.text",
      "Add the input text_2",
    ]);
    expect(labels["a spare Walk"]).toEqual(["Add a task that runs alone", "Remove alone and what only it uses"]);
    expect(labels["a spare node with things of its own"]).toEqual(["Remove spare and what only it uses"]);
  });

  it("give two slots of a node a state each", () => {
    const slot = (name: string) => ({ slot: name, kind: "random", optional: false });
    const component = { ...Object.values(catalogue)[0]!, name: "two.slots", states: [slot("one"), slot("other")] };
    const graph = {
      format: "walkgraph/graph@1",
      name: "two",
      nodes: { node: { component: "two.slots" } },
      states: { chance: { kind: "random" } },
    } as unknown as GraphDocument;
    const problem = { code: "missing_state", pointer: "/nodes/node", message: "", severity: "error" as const };
    const [repair, ...others] = repairsOf(graph, { "two.slots": component as never }, problem);
    expect(others).toEqual([]);
    const { nodes, states } = repair!.edit(graph);
    expect(nodes!.node!.states).toEqual({ one: "chance", other: "node" });
    expect(Object.keys(states!)).toEqual(["chance", "node"]);
  });

  it("are none where two things fit", () => {
    const { graph } = broken["a cache isn't bound"]!;
    const two = { ...graph, states: { ...graph.states, other: { kind: "paged_kv" as const, capacity: "8" } } };
    const problem = { code: "missing_state", pointer: "/nodes/llm", message: "", severity: "error" as const };
    expect(repairsOf(two, catalogue, problem)).toEqual([]);
    const weights = { ...graph.weights, more: { family: "bagel", source: "starter:shapes" } };
    const unread = { ...problem, code: "missing_weights" };
    expect(repairsOf({ ...graph, weights }, catalogue, unread)).toEqual([]);
    expect(repairsOf(graph, catalogue, { ...problem, code: "bad_times" })).toEqual([]);
  });
});

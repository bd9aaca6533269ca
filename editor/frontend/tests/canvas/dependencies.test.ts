import { describe, expect, test } from "vitest";
import { elkLayout } from "../../src/canvas/layout/elk";
import { agreeing } from "../../src/canvas/layout/layered";
import { accessesOf, dependenciesAmong, dependenciesIn } from "../../src/canvas/model/dependencies";
import { drawn, ModelMaker } from "../../src/canvas/model/model";
import { boxesOf } from "../../src/canvas/shapes/geometry";
import type { Model } from "../../src/canvas/shapes/types";
import { factsOf, sideBySide } from "../../src/document/routes";
import { flat, isBranch, type Entry } from "../../src/document/tree";
import type { GraphDocument, State, Task, Walk } from "../../src/document/types";
import type { Component } from "../../src/messages/answers";
import { cases, graphs } from "../document/cases";

const bundled = Object.entries(graphs());
const { catalogue } = cases;

test("uses read and write states as the backend says", () => {
  const found: typeof cases.accesses = {};
  for (const [name, graph] of bundled)
    for (const [walk, body] of Object.entries(graph.walks ?? {})) {
      const facts = factsOf(body);
      const all = facts.list.flatMap((entry) =>
        accessesOf(graph, catalogue, facts, entry).map(({ state, writes }): [string, string, boolean] => [
          entry.kind === "fork" ? "" : entry.name,
          state,
          writes,
        ]),
      );
      if (all.length) found[`${name}/${walk}`] = all;
    }
  expect(found).toEqual(cases.accesses);
  expect(Object.values(found).flat()).toContainEqual(["llm", "main", false]);
  expect(Object.values(found).flat()).toContainEqual(["llm", "main", true]);
});

// ── a Walk ──────────────────────────────────────────────────────────────────────────────────────

function keeper(name: string, access: "read" | "write"): Component {
  const states = [{ slot: "kept", kind: "tensor" as const, access, appends: [], optional: false }];
  const rest = { params: {}, cost: "launch", weights: null, families: [], host: false, available: true };
  return { name, description: "", inputs: [], outputs: [], states, ...rest };
}

const KEEPERS = { "x.write": keeper("x.write", "write"), "x.read": keeper("x.read", "read") };

function keeping(nodes: Record<string, [kind: "write" | "read", state: string]>, more: Partial<GraphDocument>) {
  return {
    format: "walkgraph/graph@1",
    name: "keeping",
    nodes: Object.fromEntries(
      Object.entries(nodes).map(([name, [kind, kept]]) => [name, { component: `x.${kind}`, states: { kept } }]),
    ),
    ...more,
  } as GraphDocument;
}

/** The uses and forks that run, in order, for every choice of branches and of what is skipped. */
function* runs(items: readonly Entry[]): Generator<Entry[]> {
  const [first, ...rest] = items;
  if (!first) return yield [];
  for (const head of ways(first)) for (const tail of runs(rest)) yield [...head, ...tail];
}

function* ways(entry: Entry): Generator<Entry[]> {
  if ((entry.item as { when?: unknown }).when != null) yield [];
  if (entry.kind === "choose") {
    yield [];
    for (const branch of entry.children) yield* runs(branch.children);
  } else if (entry.children.length) yield* runs(entry.children);
  else yield [entry];
}

/** The pairs of all runs: each reader with what wrote its state last. */
function naive(graph: GraphDocument, walk: Walk): Set<string> {
  const facts = factsOf(walk);
  const found = new Set<string>();
  for (const run of runs(facts.tree)) {
    const written = new Map<string, Entry[]>();
    for (const entry of run) {
      const accesses = accessesOf(graph, KEEPERS, facts, entry);
      for (const { state, reads } of accesses) {
        const last = (written.get(state) ?? []).findLast((writer) => !sideBySide(writer, entry));
        if (reads && last) found.add(`${last.id}>${entry.id}`);
      }
      for (const { state, writes } of accesses)
        if (writes) written.set(state, [...(written.get(state) ?? []), entry]);
    }
  }
  return found;
}

function branching(walk: Walk): number {
  return factsOf(walk).list.filter(({ kind, item }) => isBranch(kind) || (item as { when?: unknown }).when != null)
    .length;
}

const NODES = { a: "write", b: "read", c: "write", d: "read", e: "write" } as const;
const random = Object.entries(cases.walks).filter(
  ([name, { walk }]) => /^(random|by hand)/.test(name) && branching(walk) <= 12,
);

test("a step depends on what wrote its state last, in whichever run", () => {
  let pairs = 0;
  for (const [name, { walk }] of random) {
    const states = { a: "one", b: "one", c: "two", d: "two", e: "one" } as const;
    const nodes = Object.fromEntries(
      Object.entries(NODES).map(([node, kind]) => [node, [kind, states[node as "a"]] as ["write" | "read", string]]),
    );
    const graph = keeping(nodes, { walks: { w: walk } });
    const seen = new Map(flat(factsOf(walk).tree).map(({ id }) => [id, id]));
    const made = dependenciesIn(graph, KEEPERS, "w", seen).map(({ id }) => id);
    expect([name, made.sort()]).toEqual([name, [...naive(graph, walk)].sort()]);
    pairs += made.length;
  }
  expect(random.length).toBeGreaterThan(60);
  expect(pairs).toBeGreaterThan(200);
});

test("a fork stands between those who wrote what it copies and those who read the copy", () => {
  const body = ["a", { fork: "one", into: "two" }, "c"];
  const graph = keeping({ a: ["write", "one"], c: ["read", "two"] }, { walks: { w: { body } } });
  const seen = new Map(["use:a", "fork:0", "use:c"].map((id) => [id, id]));
  expect(dependenciesIn(graph, KEEPERS, "w", seen)).toEqual([
    { id: "use:a>fork:0", source: "use:a", target: "fork:0", states: ["one"] },
    { id: "fork:0>use:c", source: "fork:0", target: "use:c", states: ["two"] },
  ]);
});

test("what a closed container holds is shown by it, and what is out of sight isn't", () => {
  const body = ["a", { loop: "l", times: "2", body: ["b", "c"] }];
  const graph = keeping(
    { a: ["write", "one"], b: ["read", "one"], c: ["write", "one"] },
    { walks: { w: { body } as Walk } },
  );
  const closed = new Map([
    ["use:a", "use:a"],
    ["use:b", "loop:l"],
    ["use:c", "loop:l"],
  ]);
  const ids = dependenciesIn(graph, KEEPERS, "w", closed).map(({ id }) => id);
  expect(ids).toEqual(["use:a>loop:l"]);
  expect(dependenciesIn(graph, KEEPERS, "w", new Map([["use:a", "use:a"]]))).toEqual([]);
});

// ── components ──────────────────────────────────────────────────────────────────────────────────

describe("from Walk to Walk", () => {
  const nodes = { read: ["read", "one"], write: ["write", "one"], copy: ["read", "two"] } as const;
  const walks = {
    use: { body: ["read"] },
    fill: { body: ["write"] },
    branch: { body: [{ fork: "one", into: "two" }, "copy"] },
  } as Record<string, Walk>;
  const among = (tasks: Record<string, unknown[]>, scope: State["scope"] = "run") =>
    dependenciesAmong(
      keeping(nodes as never, {
        walks,
        states: { one: { kind: "tensor", scope }, two: { kind: "tensor", scope } },
        tasks: Object.fromEntries(Object.entries(tasks).map(([name, steps]) => [name, { steps } as unknown as Task])),
      }),
      KEEPERS,
    ).map(({ id, states }) => `${id} ${states.join()}`);

  test("tasks give the order", () => {
    expect(among({ t: [{ walk: "fill" }, { walk: "use" }] })).toEqual(["node:write>node:read one"]);
    expect(among({ t: [{ walk: "use" }, { walk: "fill" }] })).toEqual([]);
    expect(among({})).toEqual([]);
  });

  test("a copy has what its source had", () => {
    expect(among({ t: [{ walk: "fill" }, { walk: "branch" }] })).toEqual(["node:write>node:copy two"]);
  });

  test("of steps that exclude each other none follows another", () => {
    expect(among({ t: [{ first: [{ walk: "fill", when: "n > 1" }, { walk: "use" }] }] })).toEqual([]);
    expect(among({ t: [{ first: [{ walk: "fill", when: "n > 1" }] }, { walk: "use" }] })).toEqual([
      "node:write>node:read one",
    ]);
    const parts = { for: "parts", text: [{ walk: "fill" }], image: [{ walk: "use" }] };
    expect(among({ t: [parts, { walk: "branch" }] })).toEqual(["node:write>node:copy two"]);
  });

  test("a session keeps its states from task to task, a run doesn't", () => {
    const tasks = { open: [{ walk: "fill" }], ask: [{ walk: "use" }] };
    expect(among(tasks)).toEqual([]);
    expect(among(tasks, "session")).toEqual(["node:write>node:read one"]);
    expect(among({ t: [{ walk: "fill" }, { walk: "use" }] }, "walk")).toEqual([]);
  });
});

// ── layout ──────────────────────────────────────────────────────────────────────────────────────

const canvases = bundled.flatMap(([, graph]) => [
  { graph, canvas: { kind: "components" } as const },
  ...Object.keys(graph.walks ?? {}).map((walk) => ({ graph, canvas: { kind: "walk", walk, inside: null } as const })),
]);

function inputOf(graph: GraphDocument, canvas: (typeof canvases)[number]["canvas"]) {
  return { graph: { ...graph, layout: {} }, canvas, catalogue, problems: [], lit: null, ranks: new Map() };
}

/** Graphs laid out by the careful layout too, which takes its time. */
const WITH_CARE = ["shapes", "synthetic_states", "vjepa2_ac"];

test("no reader stands left of what filled its state, unless a wire goes from the reader to it", async () => {
  let count = 0;
  for (const { graph, canvas } of canvases) {
    const input = inputOf(graph, canvas);
    const model = new ModelMaker().make(input);
    const wires = model.edges
      .filter((edge) => !edge.data?.carried)
      .map(({ source, target }) => [source, target] as const);
    const after = agreeing(
      wires,
      model.dependencies.map(({ source, target }) => [source, target] as const),
    );
    if (!after.length) continue;
    const layouts: Model["boxes"][] = [model.boxes];
    if (WITH_CARE.includes(graph.name)) {
      const places = await elkLayout(model, canvas, null);
      layouts.push(boxesOf(drawn(input).pieces, new Map([...model.places, ...places])));
    }
    for (const boxes of layouts)
      for (const [source, target] of after) {
        const [from, to] = [boxes.get(source)!, boxes.get(target)!];
        const where = [graph.name, canvas.kind === "walk" ? canvas.walk : "", source, target];
        expect([...where, to.x >= from.x + from.w]).toEqual([...where, true]);
      }
    count += after.length;
  }
  expect(count).toBeGreaterThan(20);
});

test("without a wire, the writer comes first though its reader was added first", () => {
  const nodes = { read: ["read", "one"], write: ["write", "one"] } as never;
  const graph = keeping(nodes, {
    walks: { w: { body: ["write", "read"] } },
    states: { one: { kind: "tensor", scope: "run" } },
  });
  const canvas = { kind: "components" } as const;
  const input = { graph, canvas, catalogue: KEEPERS, problems: [], lit: null, ranks: new Map() };
  const { boxes } = new ModelMaker().make(input);
  expect(boxes.get("node:read")!.x).toBeGreaterThan(boxes.get("node:write")!.x);
});

test("wires outweigh states, and of states the first", () => {
  const wires = [["a", "b"]] as const;
  const after = [
    ["b", "a"],
    ["b", "c"],
    ["c", "a"],
    ["c", "d"],
    ["d", "d"],
  ] as const;
  expect(agreeing(wires, after)).toEqual([
    ["b", "c"],
    ["c", "d"],
  ]);
});

// Random edits on the bundled graphs, from fixed seeds: whatever a user does in whatever order.
import { expect, it } from "vitest";
import * as edits from "../../src/document/edits";
import { diff, equal } from "../../src/document/diff";
import { exclusive, factsOf, isInside, mapCarrying, mapLeft, sideBySide } from "../../src/document/routes";
import { portsOf } from "../../src/document/ports";
import { accepts, parseType } from "../../src/document/typing";
import { flat, isLoop, takesItems } from "../../src/document/tree";
import { union } from "../../src/document/union";
import type { GraphDocument } from "../../src/document/types";
import { cases, frozen, graphs } from "./cases";

const SEQUENCES = 400;
/** As long as an edit has changed nothing: which graphs they begin with depends on how many are bundled. */
const MOST_SEQUENCES = 1600;
const LENGTH = 25;
const palette = cases.catalogue;

/** Small, fast and the same everywhere (mulberry32). */
function random(seed: number) {
  let state = seed;
  const next = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
  const below = (count: number) => Math.floor(next() * count);
  const pick = <T>(list: readonly T[]): T => list[below(list.length)]!;
  const some = <T>(list: readonly T[], most: number): T[] =>
    Array.from({ length: 1 + below(most) }, () => pick(list));
  return { next, below, pick, some };
}
type Random = ReturnType<typeof random>;
type Edit = (graph: GraphDocument, walk: string, at: Random) => GraphDocument;

const list = (graph: GraphDocument, walk: string) => factsOf(graph.walks![walk]!).list;
const ids = (graph: GraphDocument, walk: string) => [...list(graph, walk).map(({ id }) => id), "use:gone"];
const uses = (graph: GraphDocument, walk: string) => list(graph, walk).filter(({ kind }) => kind === "use");
const edgeCount = (graph: GraphDocument, walk: string) => (graph.walks![walk]!.edges ?? []).length;
const keys = (record: object | undefined) => [...Object.keys(record ?? {}), "gone"];
const name = (at: Random) => at.pick(["alpha", "beta", "llm", "x_1", "index", "no name", "gamma-1", "seed"]);

function place(graph: GraphDocument, walk: string, at: Random): edits.Place {
  const holders = list(graph, walk).filter(({ kind }) => takesItems(kind));
  const parent = at.next() < 0.5 || !holders.length ? null : at.pick(holders).id;
  return at.next() < 0.3 ? { parent } : { parent, index: at.below(6) };
}

function ends(graph: GraphDocument, walk: string, at: Random): [from: string, to: string] {
  const all = uses(graph, walk);
  if (!all.length) return ["@in.x", "@out.x"];
  const [source, target] = [at.pick(all), at.pick(all)];
  const outputs = [...portsOf(graph, palette, source.node).outputs.map((port) => port.name), "nope"];
  const inputs = [...portsOf(graph, palette, target.node).inputs.map((port) => port.name), "nope"];
  const others = [
    ...keys(graph.walks![walk]!.inputs).map((key) => `@in.${key}`),
    "@loop.index",
    ...(graph.streams ?? []).map((stream) => `@stream.${stream.name}`),
    ...keys(graph.walks![walk]!.merges).map((key) => `@merge.${key}`),
  ];
  const from = at.next() < 0.8 ? `${source.name}.${at.pick(outputs)}` : at.pick(others);
  return [from, at.next() < 0.9 ? `${target.name}.${at.pick(inputs)}` : "@out.o"];
}

const EDITS: Record<string, Edit> = {
  connect: (g, w, at) => connected(g, w, at),
  connectAgain: (g, w, at) => connected(g, w, at),
  reconnect: (g, w, at) => {
    const [from, to] = ends(g, w, at);
    return edits.reconnect(g, w, at.below(edgeCount(g, w) + 1), at.next() < 0.5 ? { from } : { to }, palette).graph;
  },
  removeEdges: (g, w, at) => edits.removeEdges(g, w, [at.below(edgeCount(g, w) + 1)]),
  setEdge: (g, w, at) =>
    edits.setEdge(g, w, at.below(edgeCount(g, w) + 1), { each: at.next() < 0.5, collect: at.next() < 0.5 }),
  makeCarried: (g, w, at) => edits.makeCarried(g, w, at.below(edgeCount(g, w) + 1)),
  makeForward: (g, w, at) => edits.makeForward(g, w, carried(g, w, at)),
  insertOnEdge: (g, w, at) =>
    edits.insertOnEdge(g, w, at.below(edgeCount(g, w) + 1), at.pick(keys(g.nodes)), palette).graph,
  insertUse: (g, w, at) => edits.insertUse(g, w, at.pick(keys(g.nodes)), place(g, w, at)).graph,
  insertLoop: (g, w, at) => edits.insertLoop(g, w, place(g, w, at)).graph,
  insertParallel: (g, w, at) => edits.insertParallel(g, w, place(g, w, at)).graph,
  insertSequence: (g, w, at) => edits.insertSequence(g, w, place(g, w, at)).graph,
  insertChoice: (g, w, at) => edits.insertChoice(g, w, place(g, w, at)).graph,
  chooseAround: (g, w, at) => edits.wrap(g, w, at.some(ids(g, w), 4), "choose").graph,
  setHead: (g, w, at) => edits.setHead(g, w, choice(g, w, at), value(g, w, at), palette),
  addCase: (g, w, at) => edits.addCase(g, w, choice(g, w, at), at.pick([undefined, "7", "yes/no", "b"])).graph,
  addOtherwise: (g, w, at) => edits.addOtherwise(g, w, choice(g, w, at)).graph,
  renameCase: (g, w, at) => edits.renameCase(g, w, branch(g, w, at), at.pick(["7", "12", "b", "a.b", ""])).graph,
  removeBranch: (g, w, at) => edits.removeBranch(g, w, branch(g, w, at)),
  intoBranch: (g, w, at) => edits.moveItems(g, w, at.some(ids(g, w), 2), { parent: branch(g, w, at) }),
  joinBranches: (g, w, at) => joinedBranches(g, w, at),
  joinBranchesAgain: (g, w, at) => joinedBranches(g, w, at),
  addToMerge: (g, w, at) => {
    const name = merge(g, w, at);
    return edits.addToMerge(g, w, name, at.next() < 0.3 ? output(g, w, at) : besides(g, w, name, at), palette);
  },
  removeFromMerge: (g, w, at) => edits.removeFromMerge(g, w, merge(g, w, at), at.below(3)),
  renameMerge: (g, w, at) => edits.renameMerge(g, w, merge(g, w, at), name(at)),
  removeMerge: (g, w, at) => edits.removeMerge(g, w, merge(g, w, at)),
  insertMap: (g, w, at) => edits.insertMap(g, w, place(g, w, at)).graph,
  mapAround: (g, w, at) => edits.wrap(g, w, at.some(ids(g, w), 3), "map").graph,
  setList: (g, w, at) => edits.setHead(g, w, map(g, w, at), at.next() < 0.2 ? null : listed(g, w, at), palette),
  intoMap: (g, w, at) => edits.moveItems(g, w, at.some(ids(g, w), 2), { parent: map(g, w, at) }),
  outOfMap: (g, w, at) => edits.moveItems(g, w, [inMap(g, w, at)], { parent: null }),
  connectOut: (g, w, at) => connected(g, w, at, outOfMap(g, w, at)),
  setMap: (g, w, at) =>
    edits.setItem(g, w, map(g, w, at), {
      as: at.pick([null, name(at)]),
      bound: at.pick(["9", "@loop.index + 2"]),
      width: at.pick([null, "1", "4"]),
    }),
  insertFork: (g, w, at) =>
    edits.insertFork(g, w, at.pick(keys(g.states)), at.pick(keys(g.states)), place(g, w, at)).graph,
  moveItems: (g, w, at) => edits.moveItems(g, w, at.some(ids(g, w), 3), place(g, w, at)),
  removeItems: (g, w, at) =>
    edits.removeItems(g, w, at.some(ids(g, w), 2), { bridge: at.next() < 0.5, catalogue: palette }),
  wrap: (g, w, at) =>
    edits.wrap(g, w, at.some(ids(g, w), 3), at.pick(["loop", "map", "parallel", "sequence", "choose"])).graph,
  unwrap: (g, w, at) => edits.unwrap(g, w, at.pick(ids(g, w))),
  setItem: (g, w, at) => edits.setItem(g, w, at.pick(ids(g, w)), { when: at.pick([null, "@loop.index > 1"]) }),
  renameItem: (g, w, at) => {
    const entry = at.pick(list(g, w));
    const field = entry?.kind === "loop" ? { loop: name(at) } : { as: at.pick([null, name(at)]) };
    const named = ["loop", "map", "use"].includes(entry?.kind ?? "");
    return edits.setItem(g, w, entry?.id ?? "use:gone", named ? field : {});
  },
  replaceUse: (g, w, at) => edits.replaceUse(g, w, at.pick(ids(g, w)), at.pick(keys(g.nodes)), palette).graph,
  mute: (g, w, at) => edits.mute(g, w, at.some(ids(g, w), 2)),
  unmute: (g, w, at) => edits.unmute(g, w, at.some([...edits.mutedOf(g, w).keys(), ...ids(g, w)], 4)),
  bypass: (g, w, at) => edits.bypass(g, w, at.some(ids(g, w), 2), palette),
  unbypass: (g, w, at) => edits.unbypass(g, w, at.some(ids(g, w), 4), palette),
  paste: (g, w, at) => {
    const from = at.pick(Object.keys(g.walks!));
    const clip = edits.copyItems(g, from, at.some(ids(g, from), 3));
    return edits.pasteItems(g, w, clip, { keepIncoming: at.next() < 0.5, place: place(g, w, at) }).graph;
  },
  addNode: (g, _, at) => edits.addNode(g, at.pick(Object.keys(palette)), { catalogue: palette }).graph,
  removeNode: (g, _, at) => edits.removeNode(g, at.pick(keys(g.nodes))),
  renameNode: (g, _, at) => edits.renameNode(g, at.pick(keys(g.nodes)), name(at)),
  setNodeComponent: (g, _, at) =>
    edits.setNodeComponent(g, at.pick(keys(g.nodes)), at.pick(Object.keys(palette)), palette),
  renameState: (g, _, at) => edits.renameState(g, at.pick(keys(g.states)), name(at)),
  removeState: (g, _, at) => edits.removeState(g, at.pick(keys(g.states))),
  renameWeights: (g, _, at) => edits.renameWeights(g, at.pick(keys(g.weights)), name(at)),
  addWalk: (g) => edits.addWalk(g).graph,
  duplicateWalk: (g, w) => edits.duplicateWalk(g, w).graph,
  renameWalk: (g, w, at) => edits.renameWalk(g, w, name(at)),
  removeWalk: (g, w) => (Object.keys(g.walks!).length > 1 ? edits.removeWalk(g, w) : g),
  renameInput: (g, w, at) => edits.renameInput(g, w, at.pick(keys(g.walks![w]!.inputs)), name(at)),
  removeInput: (g, w, at) => edits.removeInput(g, w, at.pick(keys(g.walks![w]!.inputs))),
  renameOutput: (g, w, at) => edits.renameOutput(g, w, at.pick([...edits.outputsOf(g.walks![w]!), "gone"]), name(at)),
  renameResult: (g, w, at) => edits.renameResult(g, w, at.pick(keys(g.walks![w]!.results)), name(at)),
  setResult: (g, w, at) => edits.setResult(g, w, name(at), at.pick([null, ends(g, w, at)[0]]), at.next() < 0.3),
  renameStream: (g, _, at) =>
    edits.renameStream(g, at.pick([...(g.streams ?? []).map((s) => s.name), "gone"]), name(at)),
  removeStream: (g, _, at) => edits.removeStream(g, at.pick([...(g.streams ?? []).map((s) => s.name), "gone"])),
  moveStep: (g, _, at) => {
    const pointer = () =>
      at.pick(["/steps/0", "/steps/1", "/steps/2", "/steps/0/text/0", "/steps/1/first/0", "/steps/-"]);
    return edits.moveStep(g, at.pick(keys(g.tasks)), pointer(), pointer());
  },
  renameTaskParam: (g, _, at) => {
    const task = at.pick(keys(g.tasks));
    return edits.renameTaskParam(g, task, at.pick(keys(g.tasks?.[task]?.params)), name(at));
  },
  place: (g, w, at) =>
    edits.place(g, edits.walkCanvas(w), { [at.pick(ids(g, w).slice(0, -1)) ?? "@in"]: [at.below(99), at.below(99)] }),
};

const choice = (graph: GraphDocument, walk: string, at: Random) =>
  at.pick(list(graph, walk).filter(({ kind }) => kind === "choose"))?.id ?? "choose:9";
const map = (graph: GraphDocument, walk: string, at: Random) =>
  at.pick(list(graph, walk).filter(({ kind }) => kind === "map"))?.id ?? "map:gone";
const inMap = (graph: GraphDocument, walk: string, at: Random) => {
  const { maps } = factsOf(graph.walks![walk]!);
  return at.pick(uses(graph, walk).filter(({ loops }) => loops.some((loop) => maps.has(loop))))?.id ?? "use:gone";
};
const branch = (graph: GraphDocument, walk: string, at: Random) =>
  at.pick(list(graph, walk).filter(({ kind }) => kind === "case" || kind === "otherwise"))?.id ?? "case:gone";
const merge = (graph: GraphDocument, walk: string, at: Random) => at.pick(keys(graph.walks![walk]!.merges));

function outputs(graph: GraphDocument, walk: string): { reference: string; type: string }[] {
  return uses(graph, walk).flatMap(({ name: use, node }) =>
    portsOf(graph, palette, node).outputs.map(({ name: port, type }) => ({ reference: `${use}.${port}`, type })),
  );
}
const output = (graph: GraphDocument, walk: string, at: Random) =>
  at.pick(outputs(graph, walk))?.reference ?? "gone.x";
/** An output in the choice that a merge comes out of. */
const besides = (graph: GraphDocument, walk: string, name: string, at: Random) => {
  const { merges, uses: byName } = factsOf(graph.walks![walk]!);
  const around = merges.get(name)?.choice;
  const all = outputs(graph, walk).filter(({ reference }) => {
    const entry = byName.get(reference.split(".")[0]!);
    return around && entry && isInside(entry, around);
  });
  return at.pick(all)?.reference ?? "gone.x";
};
const value = (graph: GraphDocument, walk: string, at: Random) => {
  const inputs = Object.entries(graph.walks![walk]!.inputs ?? {}).map(([key, type]) => ({
    reference: `@in.${key}`,
    type,
  }));
  const all = [...outputs(graph, walk), ...inputs].filter(({ type }) => /^(flag|scalar|text)/.test(type));
  return at.pick(all)?.reference ?? "gone.x";
};
/** From a step in a map to one outside, or to the client. */
function outOfMap(graph: GraphDocument, walk: string, at: Random): [from: string, to: string] {
  const entry = list(graph, walk).find(({ id }) => id === inMap(graph, walk, at));
  const port = entry && at.pick(portsOf(graph, palette, entry.node).outputs)?.name;
  const [, to] = ends(graph, walk, at);
  return [`${entry?.name ?? "gone"}.${port ?? "x"}`, at.next() < 0.6 ? "@out.mapped" : to];
}

/** Anything that may have items, and some things that have none. */
const listed = (graph: GraphDocument, walk: string, at: Random) => {
  const all = outputs(graph, walk).filter(({ type }) => /^list|\[.+\]/.test(type) || at.next() < 0.1);
  return at.pick(all)?.reference ?? "gone.x";
};
const carried = (graph: GraphDocument, walk: string, at: Random) =>
  at.pick(factsOf(graph.walks![walk]!).routes.filter((route) => route.carried))?.index ?? edgeCount(graph, walk);

/** An output of each of two branches to one output of the Walk. */
function joinedBranches(graph: GraphDocument, walk: string, at: Random): GraphDocument {
  const all = uses(graph, walk);
  const pairs = all.flatMap((a) => all.filter((b) => exclusive(a, b)).map((b) => [a, b] as const));
  if (!pairs.length) return graph;
  const ports = at.pick(pairs).flatMap(({ name: use, node }) => {
    const port = portsOf(graph, palette, node).outputs.find(({ ghost }) => !ghost);
    return port ? [`${use}.${port.name}`] : [];
  });
  const drawn = ports.reduce((made, from) => edits.connect(made, walk, from, "@out.both", palette).graph, graph);
  if (ports.length > 1) expect(Object.keys(drawn.walks![walk]!.merges ?? {})).not.toEqual([]);
  return drawn;
}

/** An edge that was drawn goes a way that the checks accept, and puts no other edge the wrong way round. */
function connected(graph: GraphDocument, walk: string, at: Random, given = ends(graph, walk, at)): GraphDocument {
  const [from, to] = given;
  const reason = edits.whyNot(graph, walk, from, to, palette);
  const before = factsOf(graph.walks![walk]!).routes;
  const { graph: made, index } = edits.connect(graph, walk, from, to, palette);
  expect(reason).toBeNull();
  const facts = factsOf(made.walks![walk]!);
  const { routes } = facts;
  const drawn = routes[index]!;
  expect(drawn.to).toBe(to);
  // One of another branch is fed by a merge of both.
  const merged = before.some((route) => route.to === to) && drawn.source.kind === "merge";
  if (merged && drawn.from !== from) {
    const joined = from.startsWith("@merge.") ? facts.merges.get(from.slice(7))!.sources : [from];
    expect(facts.merges.get(drawn.source.name)!.sources).toEqual(expect.arrayContaining([...joined]));
  } else expect(drawn.from).toBe(from);
  expect(drawn.backward && !drawn.carried).toBe(false);
  if (drawn.source.entry && drawn.target.entry)
    expect(sideBySide(drawn.source.entry, drawn.target.entry)).toBe(false);
  expect(drawn.carried && mapCarrying(facts, drawn)).toBeFalsy();
  if (mapLeft(facts, drawn) !== null) expect(drawn.leave).not.toBe("last");
  const broken = (all: typeof before) => all.filter((route) => route.backward && !route.carried).length;
  expect(broken(routes)).toBeLessThanOrEqual(broken(before));
  return made;
}

/** A graph with a choice and a merge of two of its branches, over a component that can feed itself. */
function choosing(): GraphDocument {
  const fitting = Object.values(palette).flatMap(({ name: component, inputs, outputs }) =>
    inputs.flatMap((input) => {
      const output = outputs.find(({ type }) => accepts(input.type, type) === null);
      return output ? [{ component, input: input.name, output: output.name }] : [];
    }),
  );
  const { component, input, output } = fitting[0]!;
  const body = ["p", { choose: `p.${output}`, cases: { a: ["q"], b: ["r"], c: [{ use: "q", as: "q_2" }] } }, "s"];
  const edges = [
    [`@merge.m`, `s.${input}`],
    [`p.${output}`, `q.${input}`],
    [`q.${output}`, "@out.both"],
  ];
  const nodes = Object.fromEntries(["p", "q", "r", "s"].map((each) => [each, { component }]));
  const merges = { m: [`q.${output}`, `r.${output}`] };
  return frozen({ name: "choosing", nodes, walks: { w: { body, edges, merges } } }) as unknown as GraphDocument;
}

/** A graph with a map over the slices of a tensor, over components that give one and take a slice of it. */
function mapping(): GraphDocument {
  const all = Object.values(palette);
  const sliced = (type: string) => {
    const read = parseType(type);
    return read?.shape?.length ? { ...read, shape: read.shape.slice(1) } : null;
  };
  const [fitting] = all.flatMap((giver) =>
    giver.outputs.flatMap((output) =>
      all.flatMap((taker) => {
        const slice = sliced(output.type);
        const input = taker.inputs.find(
          ({ type }) => slice && parseType(type)?.shape && accepts(type, slice) === null,
        );
        return input && taker.outputs.length ? [{ giver, taker, from: output.name, to: input.name }] : [];
      }),
    ),
  );
  const { giver, taker, from, to } = fitting!;
  const nodes = { p: { component: giver.name }, q: { component: taker.name }, r: { component: taker.name } };
  const body = [
    "p",
    { map: `p.${from}`, bound: "9", width: "3", body: ["q"] },
    { loop: "l", times: "2", body: ["r"] },
  ];
  const out = `q.${taker.outputs[0]!.name}`;
  const edges = [
    { from: `p.${from}`, to: `q.${to}`, each: true },
    { from: `p.${from}`, to: `r.${to}`, each: true },
    { from: out, to: "@out.each", each: true },
  ];
  const walk = { body, edges, results: { kept: { from: out, collect: true } } };
  return frozen({ name: "mapping", nodes, walks: { w: walk } }) as unknown as GraphDocument;
}

function judge(before: GraphDocument, made: GraphDocument): void {
  if (made === before) return;
  const text = JSON.stringify(made);
  expect(text).not.toBe(JSON.stringify(before));
  expect(holes(made, "")).toEqual([]);
  for (const [walk, body] of Object.entries(made.walks!)) {
    if (before.walks![walk] === body && before.layout === made.layout && before.nodes === made.nodes) continue;
    const facts = factsOf(body);
    const names = facts.list
      .filter(({ kind, name: called }) => called && kind !== "case")
      .map(({ kind, name: called }) => `${kind} ${called}`);
    const loops = facts.list.flatMap(({ kind, name: called }) => (isLoop(kind) ? called : []));
    const layout = edits.canvasLayout(made, edits.walkCanvas(walk));
    const placed = [...Object.keys(layout.at ?? {}), ...Object.keys(layout.muted ?? {}), ...(layout.closed ?? [])];
    const faults = [
      facts.byId.size === facts.list.length ? [] : ["two items have one id"],
      new Set(names).size === names.length ? [] : ["two items have one name"],
      loops.length === new Set(loops).size ? [] : ["a loop and a map have one name"],
      uses(made, walk).filter(({ node }) => !Object.hasOwn(made.nodes ?? {}, node)),
      placed.filter(
        (id) => !id.startsWith("@") && !facts.byId.has(id) && !facts.merges.has(id.replace("merge:", "")),
      ),
      Object.values(body.merges ?? {}).filter((sources) => sources.length < 2),
    ];
    expect(faults.flat()).toEqual([]);
  }
  expect(diff(before, made).length === 0).toBe(equal(before, made));
}

/** Where a value can't be written as JSON. */
function holes(value: unknown, pointer: string): string[] {
  if (typeof value === "object" && value !== null)
    return Object.entries(value).flatMap(([key, child]) => holes(child, `${pointer}/${key}`));
  return value === null || ["string", "boolean"].includes(typeof value) || Number.isFinite(value) ? [] : [pointer];
}

it(`${SEQUENCES} sequences of random edits, or more, keep the document whole`, () => {
  const all = [...Object.values(graphs()), ...Array(8).fill(choosing()), ...Array(8).fill(mapping())];
  const names = Object.keys(EDITS);
  const done = new Map<string, number>();
  const isMissing = () => names.some((edit) => !done.has(edit));
  for (let seed = 0; seed < SEQUENCES || (seed < MOST_SEQUENCES && isMissing()); seed += 1) {
    const at = random(seed);
    let graph = at.pick(all);
    for (let step = 0; step < LENGTH; step += 1) {
      const edit = at.pick(names);
      const walk = at.pick(Object.keys(graph.walks!));
      let made: GraphDocument;
      try {
        made = frozen(EDITS[edit]!(graph, walk, at));
        judge(graph, made);
      } catch (error) {
        if (error instanceof edits.EditRefused) {
          expect(error.message).toMatch(/^[A-Z`].*\.$/s);
          continue;
        }
        throw new Error(`seed ${seed}, step ${step}: ${edit} of Walk ${walk}`, { cause: error });
      }
      if (made !== graph) done.set(edit, (done.get(edit) ?? 0) + 1);
      graph = made;
      union(graph);
    }
  }
  // Every edit has really changed something.
  expect(names.filter((edit) => !done.has(edit))).toEqual([]);
});

it("what is put in and taken out again leaves no trace", () => {
  const all = Object.values(graphs());
  for (let seed = 0; seed < SEQUENCES; seed += 1) {
    const at = random(seed);
    const graph = at.pick(all);
    const walk = at.pick(Object.keys(graph.walks!));
    const use = edits.insertUse(graph, walk, at.pick(Object.keys(graph.nodes!)), place(graph, walk, at));
    expect(edits.removeItems(use.graph, walk, [use.id])).toEqual(graph);
    const loop = edits.insertLoop(graph, walk, place(graph, walk, at));
    expect(edits.unwrap(loop.graph, walk, loop.id)).toEqual(graph);
    const mapped = edits.insertMap(graph, walk, place(graph, walk, at));
    expect(edits.unwrap(mapped.graph, walk, mapped.id)).toEqual(graph);
    const one = at.pick(list(graph, walk));
    if (one.loops.length === 0) {
      // A map around a loop has edges send or collect all of its values: what they sent before isn't known any more.
      const kinds = [
        "loop",
        "parallel",
        "sequence",
        ...(flat([one]).some(({ kind }) => isLoop(kind)) ? [] : ["map"]),
      ];
      const wrapped = edits.wrap(graph, walk, [one.id], at.pick(kinds) as edits.WrapKind);
      expect(equal(edits.unwrap(wrapped.graph, walk, wrapped.id), graph)).toBe(true);
    }
    const node = edits.addNode(graph, at.pick(Object.keys(palette)));
    expect(edits.removeNode(node.graph, node.name)).toEqual(graph);
    const clip = edits.copyItems(graph, walk, [one.id]);
    const pasted = edits.pasteItems(graph, walk, clip, { keepIncoming: true });
    expect(edits.removeItems(pasted.graph, walk, pasted.ids)).toEqual(graph);
  }
});

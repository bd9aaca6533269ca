import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { GraphDocument } from "../../src/document/types";
import {
  addRank,
  assign,
  explicit,
  removeRank,
  renameNode,
  renameWalk,
  setDevice,
  resizeGroup,
  setGroup,
  tidy,
} from "../../src/document/placement/edits";
import { rankColor, ranksOf } from "../../src/placement/model/ranks";
import { followGraph } from "../../src/document/placement/follow";
import { groupOf, isReadable, ranksOfNode, walksOfNodes, whereabouts } from "../../src/document/placement/resolve";
import type { Group, PlacementDocument } from "../../src/document/placement/schema.generated";
import { fieldsOf, widthOf } from "../../src/document/placement/width";

const ROOT = join(import.meta.dirname, "../../../..");
const read = (path: string) => JSON.parse(readFileSync(join(ROOT, path), "utf8"));
const stored = readdirSync(join(ROOT, "placements"))
  .filter((name) => name.endsWith(".json"))
  .map((name) => read(`placements/${name}`) as PlacementDocument);
const graphOf = (placement: PlacementDocument): GraphDocument => read(`graphs/${placement.graph}.json`);

/** A small generator with a seed, so that a failure can be had again. */
function random(seed: number) {
  let state = seed;
  const next = (below: number) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const some = <T>(items: readonly T[]): T[] => {
    const found = items.filter(() => next(2) === 0);
    return found.length > 0 ? found : [items[next(items.length)] as T];
  };
  return { next, some };
}

const NODES = ["a", "b", "c", "d"];
const WALKS = ["one", "two", "three"];
const GRAPH: GraphDocument = {
  name: "g",
  nodes: Object.fromEntries(NODES.map((name) => [name, { component: "x" }])),
  walks: {
    one: { body: ["a", "b"] },
    two: { body: [{ loop: "l", times: "3", body: ["b", { use: "c", as: "again" }] }] },
    three: { body: ["a"] },
  },
};

function randomPlacement(seed: number): PlacementDocument {
  const { next, some } = random(seed);
  const groups: Group[] = Array.from({ length: next(5) }, () => ({
    nodes: next(3) === 0 ? ["*"] : some(NODES),
    ranks: [next(3)],
    ...(next(2) === 0 ? { walks: some(WALKS) } : {}),
    ...(next(2) === 0 ? { memory: `${1 + next(3)}GiB` } : {}),
  }));
  return {
    format: "walkgraph/placement@1",
    name: "p",
    groups,
    ranks: [0, 1, 2].map((rank) => ({ rank, device: "cpu" })),
  };
}

/** The rule as its sentence says it: go through the groups, the last that speaks of the pair wins. */
function twin(placement: PlacementDocument, node: string, walk: string | null): Group | null {
  let found: Group | null = null;
  for (const group of placement.groups) {
    const named = group.nodes.some((name) => name === "*" || name === node);
    const here = !group.walks || group.walks.some((name) => name === walk);
    if (named && here) found = group;
  }
  return found;
}

const NOT_PLANNED = { plan: null, of: null, hardware: "", problem: null, placing: true };
const USERS: Record<string, string[]> = { a: ["one", "three"], b: ["one", "two"], c: ["two"], d: [] };
const PAIRS = NODES.flatMap((node) => [null, ...WALKS].map((walk) => [node, walk] as const));

describe("where nodes are", () => {
  it("is told as the naive rule tells it", () => {
    for (let seed = 0; seed < 400; seed += 1) {
      const placement = randomPlacement(seed);
      for (const [node, walk] of PAIRS)
        expect(ranksOfNode(placement, node, walk)).toEqual(twin(placement, node, walk)?.ranks ?? []);
    }
  });

  it("knows which Walks use a node, inside loops and under other names", () => {
    expect(Object.fromEntries(walksOfNodes(GRAPH))).toEqual(USERS);
  });

  it("gathers Walks by rank", () => {
    const placement = assign(explicit(GRAPH), GRAPH, ["b"], [1], ["two"]);
    expect(whereabouts(placement, GRAPH, "b")).toEqual([
      { ranks: [0], walks: ["one"] },
      { ranks: [1], walks: ["two"] },
    ]);
    expect(whereabouts(placement, GRAPH, "d")).toEqual([{ ranks: [0], walks: [] }]);
  });
});

describe("assign", () => {
  it("moves what is meant and nothing else, for random placements", () => {
    for (let seed = 0; seed < 1500; seed += 1) {
      const before = randomPlacement(seed);
      const { next, some } = random(seed + 10_000);
      const nodes = some(NODES);
      const walks = next(2) === 0 ? null : some(WALKS);
      const rank = next(3);
      const after = assign(before, GRAPH, nodes, [rank], walks);
      const everywhere = walks === null || walks.length === WALKS.length;
      for (const [node, walk] of PAIRS) {
        const now = twin(after, node, walk);
        const used = USERS[node] ?? [];
        const meant = everywhere ? used.length === 0 || used.includes(String(walk)) : walks.includes(String(walk));
        if (nodes.includes(node) && meant) expect(now?.ranks, `seed ${seed}`).toEqual([rank]);
        else if (!nodes.includes(node) || !everywhere) {
          const then = twin(before, node, walk);
          expect([now?.ranks, now?.memory], `seed ${seed}: ${node} in ${walk}`).toEqual([then?.ranks, then?.memory]);
        }
      }
      expect(assign(after, GRAPH, nodes, [rank], walks), "a second time changes nothing").toBe(after);
      expect(after.groups.every((group) => group.nodes.length > 0 && group.walks?.length !== 0)).toBe(true);
    }
  });

  it("joins the group that is there, and leaves it again without a trace", () => {
    const bagel = stored.find((placement) => placement.name === "bagel_cfg3") as PlacementDocument;
    const graph = graphOf(bagel);
    const moved = assign(bagel, graph, ["vae_decoder"], [2], null);
    expect(moved.groups).toEqual([
      bagel.groups[0],
      bagel.groups[1],
      { nodes: ["llm_cfg_img", "vae_decoder"], ranks: [2], memory: "90%" },
    ]);
    expect(assign(moved, graph, ["vae_decoder"], [0], null)).toEqual(bagel);
  });

  it("brings a node back to the default by dropping its group", () => {
    const bagel = stored.find((placement) => placement.name === "bagel_cfg3") as PlacementDocument;
    const back = assign(bagel, graphOf(bagel), ["llm_cfg_text", "llm_cfg_img"], [0], null);
    expect(back.groups).toEqual([bagel.groups[0]]);
  });

  it("widens the Walks of a group, and names none once all are meant", () => {
    const one = assign(explicit(GRAPH), GRAPH, ["b", "c"], [1], ["one"]);
    const two = assign(one, GRAPH, ["b", "c"], [1], ["two"]);
    expect(two.groups).toEqual([
      { nodes: ["*"], ranks: [0] },
      { nodes: ["b", "c"], ranks: [1], walks: ["one", "two"] },
    ]);
    expect(assign(two, GRAPH, ["b", "c"], [0], ["one"]).groups[1]).toEqual({
      nodes: ["b", "c"],
      ranks: [1],
      walks: ["two"],
    });
    const all = assign(explicit(GRAPH), GRAPH, ["b"], [1], [...WALKS]);
    expect(all.groups[1]).toEqual({ nodes: ["b"], ranks: [1] });
  });

  it("gives the default to the largest group when nothing follows it any more", () => {
    const moved = assign(explicit(GRAPH), GRAPH, NODES, [1], null);
    expect(moved.groups).toEqual([{ nodes: ["*"], ranks: [1] }]);
  });

  it("keeps a group that never mattered, as its author may want to mend it", () => {
    const odd: PlacementDocument = {
      ...explicit(GRAPH),
      groups: [
        { nodes: ["*"], ranks: [0] },
        { nodes: ["gone"], ranks: [2] },
      ],
    };
    expect(assign(odd, GRAPH, ["a"], [1], null).groups).toContainEqual(odd.groups[1]);
  });

  it("starts from one rank for all where nothing was said, and has a replica on each of many ranks", () => {
    expect(assign(null, GRAPH, ["a"], [0, 1], null).groups).toEqual([
      { nodes: ["*"], ranks: [0] },
      { nodes: ["a"], ranks: [0, 1], replicas: 2 },
    ]);
  });

  it.each(stored.map((placement) => [placement.name, placement] as const))(
    "leaves %s as it is when every node is put where it is",
    (_name, placement) => {
      const graph = graphOf(placement);
      for (const node of Object.keys(graph.nodes ?? {}))
        for (const { ranks, walks } of whereabouts(placement, graph, node)) {
          if (walks.length > 0) expect(assign(placement, graph, [node], ranks, walks)).toBe(placement);
        }
      expect(tidy(placement, graph)).toBe(placement);
    },
  );

  it.each(
    stored.filter((placement) => placement.ranks.length > 1).map((placement) => [placement.name, placement] as const),
  )("can take a node of %s away and back", (_name, placement) => {
    const graph = graphOf(placement);
    const node = Object.keys(graph.nodes ?? {}).find(
      (name) => whereabouts(placement, graph, name).length === 1,
    ) as string;
    const home = ranksOfNode(placement, node, (walksOfNodes(graph).get(node) ?? [])[0] ?? null);
    const away = assign(placement, graph, [node], [home[0] === 0 ? 1 : 0], null);
    const back = assign(away, graph, [node], home, null);
    for (const name of Object.keys(graph.nodes ?? {}))
      expect(whereabouts(back, graph, name)).toEqual(whereabouts(placement, graph, name));
    expect(back.groups.length).toBeLessThanOrEqual(placement.groups.length);
  });
});

describe("ranks, groups and names", () => {
  const base = assign(addRank(explicit(GRAPH), "cpu").placement, GRAPH, ["b"], [1], null);

  it("adds the lowest free rank", () => {
    expect(addRank(base, "cuda:0")).toMatchObject({
      rank: 2,
      placement: { ranks: [{}, {}, { rank: 2, device: "cuda:0" }] },
    });
  });

  it("removes a rank, moving its nodes and closing the gap", () => {
    const three = assign(addRank(base, "cpu").placement, GRAPH, ["c"], [2], null);
    const two = removeRank(three, GRAPH, 1);
    expect(two.ranks.map((entry) => entry.rank)).toEqual([0, 1]);
    expect(two.groups).toEqual([
      { nodes: ["*"], ranks: [0] },
      { nodes: ["c"], ranks: [1] },
    ]);
    expect(ranksOfNode(removeRank(three, GRAPH, 0, 2), "a", "one")).toEqual([1]);
    expect(removeRank(explicit(GRAPH), GRAPH, 0)).toEqual(explicit(GRAPH));
  });

  it("keeps every node placed when any rank of any stored placement goes", () => {
    for (const placement of stored.filter((entry) => entry.ranks.length > 1))
      for (const { rank } of placement.ranks) {
        const graph = graphOf(placement);
        const less = removeRank(placement, graph, rank);
        const known = new Set(less.ranks.map((entry) => entry.rank));
        expect(known.size).toBe(placement.ranks.length - 1);
        for (const node of Object.keys(graph.nodes ?? {}))
          for (const { ranks } of whereabouts(less, graph, node)) {
            expect(new Set(ranks).size).toBe(ranks.length);
            expect(ranks.length).toBeGreaterThan(0);
            expect(ranks.every((number) => known.has(number))).toBe(true);
          }
      }
  });

  it("sets a device", () => {
    expect(setDevice(base, 1, "cuda:3").ranks[1]).toEqual({ rank: 1, device: "cuda:3" });
    expect(setDevice(base, 1, "cpu")).toBe(base);
  });

  it("sets what a node's group has, and leaves defaults out", () => {
    const given = setGroup(base, 1, { memory: "2GiB" });
    expect(given.groups[1]).toEqual({ nodes: ["b"], ranks: [1], memory: "2GiB" });
    expect(given.groups[0]).toBe(base.groups[0]);
    expect(setGroup(given, 1, { memory: null })).toEqual(base);
    expect(setGroup(base, 1, { memory: null })).toBe(base);
    const wide = resizeGroup(base, 1, "width", 2);
    expect(wide.groups[1]).toEqual({ nodes: ["b"], ranks: [1, 0], tensor_parallel: 2 });
    expect(resizeGroup(wide, 1, "width", 1)).toEqual(base);
    const many = resizeGroup(wide, 1, "replicas", 2);
    expect(many.groups[1]).toMatchObject({ ranks: [1, 0, 2, 3], tensor_parallel: 2, replicas: 2 });
    expect(many.ranks.length).toBe(4);
  });

  it("keeps what a group divides at every width, until that is chosen anew", () => {
    const wide = resizeGroup(base, 1, "width", 2);
    const tokens = setGroup(wide, 1, fieldsOf({ field: "sequence_parallel", count: 2, redundant: null }));
    expect(tokens.groups[1]).toEqual({ nodes: ["b"], ranks: [1, 0], sequence_parallel: 2 });
    const three = resizeGroup(tokens, 1, "width", 3);
    expect(three.groups[1]).toEqual({ nodes: ["b"], ranks: [1, 0, 2], sequence_parallel: 3 });
    expect(removeRank(three, GRAPH, 2).groups[1]).toEqual(tokens.groups[1]);
    expect(resizeGroup(tokens, 1, "replicas", 2).groups[1]).toMatchObject({ ranks: [1, 0, 2, 3], replicas: 2 });
    expect(resizeGroup(tokens, 1, "width", 1)).toEqual(base);
    expect(setGroup(tokens, 1, fieldsOf({ field: "tensor_parallel", count: 2, redundant: null }))).toEqual(wide);
  });

  it("keeps whole experts of a group for as long as it divides weights", () => {
    const wide = resizeGroup(base, 1, "width", 2);
    const whole = setGroup(wide, 1, fieldsOf({ field: "tensor_parallel", count: 2, redundant: 0 }));
    expect(whole.groups[1]).toEqual({ nodes: ["b"], ranks: [1, 0], tensor_parallel: 2, expert_parallel: true });
    const spread = setGroup(whole, 1, fieldsOf({ field: "tensor_parallel", count: 2, redundant: 8 }));
    expect(spread.groups[1]).toEqual({ ...whole.groups[1], redundant_experts: 8 });
    expect(setGroup(spread, 1, fieldsOf({ ...widthOf(spread.groups[1]), redundant: null }))).toEqual(wide);
    const three = resizeGroup(spread, 1, "width", 3);
    expect(three.groups[1]).toEqual({ ...spread.groups[1], ranks: [1, 0, 2], tensor_parallel: 3 });
    expect(removeRank(three, GRAPH, 2).groups[1]).toEqual(spread.groups[1]);
    expect(removeRank(spread, GRAPH, 0).groups).toEqual([{ nodes: ["*"], ranks: [0] }]);
    expect(resizeGroup(spread, 1, "replicas", 2).groups[1]).toMatchObject({ replicas: 2, redundant_experts: 8 });
    expect(setGroup(spread, 1, { memory: "2GiB" }).groups[1]).toEqual({ ...spread.groups[1], memory: "2GiB" });
    expect(resizeGroup(spread, 1, "width", 1)).toEqual(base);
    const tokens = setGroup(spread, 1, fieldsOf({ ...widthOf(spread.groups[1]), field: "sequence_parallel" }));
    expect(tokens.groups[1]).toEqual({ nodes: ["b"], ranks: [1, 0], sequence_parallel: 2 });
  });

  it("moves nothing that is on these ranks, unless its experts are to be whole", () => {
    const parts = resizeGroup(base, 1, "width", 2);
    const assigned = (redundant: number | null) =>
      assign(parts, GRAPH, ["b"], [1, 0], null, { field: "tensor_parallel", count: 2, redundant });
    expect(assigned(null)).toBe(parts);
    expect(assigned(2).groups[1]).toEqual({ ...parts.groups[1], expert_parallel: true, redundant_experts: 2 });
  });

  it("loses a replica with its rank", () => {
    const two = addRank(base, "cpu").placement;
    const many = resizeGroup(two, 1, "replicas", 3);
    expect(many.groups[1]).toMatchObject({ ranks: [1, 0, 2], replicas: 3 });
    expect(removeRank(many, GRAPH, 2).groups[1]).toEqual({ nodes: ["b"], ranks: [1, 0], replicas: 2 });
    expect(removeRank(removeRank(many, GRAPH, 2), GRAPH, 0).groups).toEqual([{ nodes: ["*"], ranks: [0] }]);
  });

  it("follows renames", () => {
    const walked = assign(base, GRAPH, ["a"], [1], ["one"]);
    const index = groupOf(walked, "a", "one") as number;
    expect(renameNode(walked, "a", "z").groups[index]?.nodes).toContain("z");
    expect(renameWalk(walked, "one", "uno").groups[index]?.walks).toEqual(["uno"]);
    expect(renameNode(walked, "nobody", "z")).toBe(walked);
  });

  it("lets go of names that the graph has no more", () => {
    const { a: _gone, ...rest } = GRAPH.nodes ?? {};
    const walked = assign(base, GRAPH, ["a", "c"], [1], ["two"]);
    expect(tidy(walked, { ...GRAPH, nodes: rest }).groups.flatMap((group) => group.nodes)).not.toContain("a");
    expect(tidy(walked, { ...GRAPH, walks: {} }).groups.some((group) => group.walks)).toBe(false);
  });
});

describe("a draft that is no placement", () => {
  it("is told apart, and harms nothing", () => {
    for (const placement of stored) expect(isReadable(placement)).toBe(true);
    const odd = [
      null,
      {},
      { groups: [] },
      { groups: [{ nodes: "a", ranks: [0] }], ranks: [] },
      { groups: [null], ranks: [] },
    ];
    for (const value of [...odd, { groups: [], ranks: [{ rank: "0", device: "cpu" }] }]) {
      expect(isReadable(value)).toBe(false);
      const state = { documents: { graph: GRAPH, placement: value as never }, planned: NOT_PLANNED };
      expect(ranksOf(state)("a", "one")).toEqual([0]);
      expect(followGraph(value as never, GRAPH, { ...GRAPH, nodes: {} })).toBe(value);
    }
  });
});

describe("the rank lens", () => {
  const planned = NOT_PLANNED;

  it("tells a node's ranks per Walk, and over all Walks", () => {
    const placement = assign(explicit(GRAPH), GRAPH, ["b"], [1], ["two"]);
    const find = ranksOf({ documents: { graph: GRAPH, placement }, planned });
    expect([find("b", "one"), find("b", "two"), find("b", null), find("d", null)]).toEqual([[0], [1], [0, 1], [0]]);
  });

  it("falls back to what the service chose, then to rank 0", () => {
    const documents = { graph: GRAPH, placement: null };
    expect(ranksOf({ documents, planned })("a", "one")).toEqual([0]);
    const chosen = { ...explicit(GRAPH), groups: [{ nodes: ["*"], ranks: [2] }] };
    const plan = { placement: chosen } as never;
    expect(ranksOf({ documents, planned: { ...planned, plan } })("a", "one")).toEqual([2]);
  });

  it("has eight colours of its own", () => {
    expect(new Set(Array.from({ length: 8 }, (_, rank) => rankColor(rank))).size).toBe(8);
    expect(rankColor(9)).toBe(rankColor(1));
  });
});

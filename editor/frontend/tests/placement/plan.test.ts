// A plan on the Placement tab: memory, lanes, and what crosses them.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";
import type { DeviceShown, RankShown } from "../../src/messages/answers";
import { setHost } from "../../src/document/placement/hosts";
import type { GraphDocument } from "../../src/document/types";
import { broadcasts, crossingsOf, movesOf, transportWords } from "../../src/placement/model/crossings";
import { CrossingTable } from "../../src/placement/CrossingTable";
import { lanesOf, moveChips, replicateChips, spanTo, widenChips } from "../../src/placement/model/lanes";
import { hardwareText, parseHardware } from "../../src/placement/model/hardware";
import { estimate, laneMemory, parseMemory, partOf } from "../../src/placement/model/memory";
import type { PlacementDocument } from "../../src/document/placement/schema.generated";
import { found, graph, problem, ROOT } from "./plans";

const GIB = 2 ** 30;

describe("memory", () => {
  it("sums to what the rank has where its groups say so", () => {
    const { plan } = found("ok");
    const [first] = plan.ranks;
    const memory = laneMemory(plan, first as (typeof plan.ranks)[number]);
    expect(memory.parts.map((part) => part.kind)).toEqual(["weights", "kv", "workspace", "margin"]);
    expect(memory).toMatchObject({ total: 100 * GIB, capacity: 100 * GIB, over: 0, deviceOver: 0, limit: 100 * GIB });
    expect(memory.scale).toBe(141e9);
  });

  it("tells by how much a rank, and a device, is over", () => {
    const { plan } = found("tight");
    const [first, second] = plan.ranks.map((rank) => laneMemory(plan, rank));
    expect(first).toMatchObject({ over: 0, deviceOver: 100 * GIB - 40e9, limit: 40e9, end: 100 * GIB });
    expect(second).toMatchObject({ over: 11326731200, deviceOver: 0, limit: 20 * GIB });
    expect(problem("tight", "does_not_fit").message).toContain("11326731200 bytes");
  });

  it("counts neighbours on the same device, and what others hold of it", () => {
    const { plan } = found("ok");
    const device = { host: "here", name: "cpu", title: "", total: 100, free: 70, hypothetical: false };
    const ranks = [0, 1].map((rank) => ({
      rank,
      host: "here",
      device: "cpu",
      nodes: [],
      kv_bytes: 0,
      budget: { x: 20 },
      capacity: 40,
    }));
    const memory = laneMemory({ ...plan, devices: [device], ranks }, ranks[0] as (typeof ranks)[number]);
    expect(memory).toMatchObject({
      elsewhere: 30,
      neighbours: 40,
      deviceOver: 10,
      over: 0,
      end: 90,
      limit: 100,
      scale: 110,
    });
  });

  it("is that of the rank's own host", () => {
    const { plan } = found("ok");
    const [rank] = plan.ranks as [RankShown];
    const own = plan.devices.find((device) => device.name === rank.device) as DeviceShown;
    const far = { ...own, host: "far", free: 5, total: 9 };
    const twin = { ...rank, rank: 9, host: "far", capacity: 7 };
    const both = { ...plan, devices: [...plan.devices, far], ranks: [...plan.ranks, twin] };
    expect(laneMemory(both, rank)).toEqual(laneMemory(plan, rank));
    expect(laneMemory(both, twin)).toMatchObject({ device: far, elsewhere: 4, neighbours: 0, deviceOver: 2 });
  });

  it("adds up all ranks", () => {
    const { weights, cache, rest, total } = estimate(found("ok").plan);
    expect(weights + cache + rest).toBe(total);
    expect(total).toBe(220 * GIB);
  });

  it("names contributors, known or not", () => {
    expect(partOf("kv main", 1)).toMatchObject({ kind: "kv", label: "Cache main" });
    expect(partOf("arena", 1)).toMatchObject({ kind: "arena", label: "Arena" });
    expect(partOf("margin", 1)).toMatchObject({ kind: "margin", label: "Margin" });
    expect(partOf("codebooks x", 1)).toMatchObject({ kind: "other", label: "codebooks x" });
  });

  it("reads sizes", () => {
    expect(["", "2GiB", " 40% ", "123", "1.5 TB"].map(parseMemory)).toEqual([
      { memory: null },
      { memory: "2GiB" },
      { memory: "40%" },
      { memory: 123 },
      { memory: "1.5 TB" },
    ]);
    for (const wrong of ["0", "lots", "2 gib", "-1", "99999999999999999999"])
      expect(parseMemory(wrong)).toHaveProperty("error");
    expect(parseHardware("3x141GB")).toEqual({ hosts: 1, count: 3, gigabytes: 141 });
    expect(parseHardware("64 hosts x 8x141GB")).toEqual({ hosts: 64, count: 8, gigabytes: 141 });
    for (const text of ["3x141GB", "64 hosts x 8x141GB"])
      expect(hardwareText(parseHardware(text) ?? { hosts: 0, count: 0, gigabytes: 0 })).toBe(text);
    for (const wrong of ["", "cluster", "3", "0x80GB", "3x0GB", "3x80", "0 hosts x 3x80GB", "2 hosts"])
      expect(parseHardware(wrong)).toBeNull();
  });
});

describe("lanes", () => {
  it("puts those of one host together, each with its name", () => {
    const { placement } = found("ok");
    const hosts = (named: PlacementDocument) =>
      lanesOf(named, graph, [], "near").lanes.map(({ rank, host }) => `${rank} ${host}`);
    expect(hosts(placement)).toEqual(["0 near", "1 near", "2 near"]);
    expect(hosts(setHost(placement, 1, "far"))).toEqual(["0 near", "2 near", "1 far"]);
  });

  it("has one chip for every node on every rank that it is on", () => {
    const { lanes, unplaced } = lanesOf(found("apart").placement, graph);
    expect(unplaced).toEqual([]);
    const [zero, one] = lanes;
    expect(one?.chips.find((chip) => chip.node === "llm")).toMatchObject({
      partial: true,
      byDefault: false,
      walks: ["read_text", "read_image", "decode"],
    });
    expect(zero?.chips.find((chip) => chip.node === "llm")).toMatchObject({ partial: true, byDefault: true });
    expect(zero).toMatchObject({ isDefault: true });
    expect(one).toMatchObject({ isDefault: false });
    expect(one?.chips.find((chip) => chip.node === "start")).toMatchObject({ partial: false });
  });

  it("shows only the Walks in scope", () => {
    const { lanes } = lanesOf(found("apart").placement, graph, ["decode"]);
    expect(lanes.map((lane) => lane.chips.map((chip) => chip.node))).toEqual([[], ["start", "detokenizer", "llm"]]);
  });

  it("keeps what is nowhere, and lanes of ranks that aren't there", () => {
    const { lanes, unplaced } = lanesOf(found("bad").placement, graph);
    expect(unplaced.map((chip) => chip.node)).toContain("start");
    expect(unplaced.every((chip) => chip.rank === null)).toBe(true);
    const lost = { ...found("ok").placement, groups: [{ nodes: ["*"], ranks: [9] }] };
    expect(lanesOf(lost, graph).lanes.at(-1)).toMatchObject({ rank: 9, device: "" });
    expect(lanes.map((lane) => lane.rank)).toEqual([0, 1, 2]);
  });

  it("tells replicas apart, and moves each alone", () => {
    const { placement } = found("ok");
    const groups = placement.groups.map((group, index) =>
      index === 2 ? { ...group, ranks: [1, 2], replicas: 2 } : group,
    );
    const two = { ...placement, groups };
    const chip = (document: PlacementDocument, rank: number) =>
      lanesOf(document, graph).lanes[rank]?.chips.filter((entry) => entry.node === "llm_cfg_img") ?? [];
    expect(chip(two, 1)[0]?.replica).toEqual({ number: 1, of: 2 });
    expect(chip(two, 2)[0]?.replica).toEqual({ number: 2, of: 2 });
    expect(chip(placement, 2)[0]?.replica).toBeNull();
    const moved = moveChips(two, graph, chip(two, 1), 0);
    expect([0, 1, 2].map((rank) => chip(moved, rank)[0]?.replica?.number)).toEqual([1, undefined, 2]);
    const joined = moveChips(two, graph, chip(two, 1), 2);
    expect(chip(joined, 2)[0]?.replica).toBeNull();
    const more = replicateChips(two, graph, chip(two, 2), 0);
    expect([0, 1, 2].map((rank) => chip(more, rank)[0]?.replica?.of)).toEqual([3, 3, 3]);
    expect(chip(replicateChips(placement, graph, chip(placement, 2), 1), 1)[0]?.replica).toEqual({
      number: 2,
      of: 2,
    });
  });

  const chipsOf = (document: PlacementDocument, node: string) =>
    lanesOf(document, graph).lanes.flatMap((lane) => lane.chips.filter((chip) => chip.node === node));
  const said = (document: PlacementDocument, node: string) =>
    chipsOf(document, node).map(({ rank, shard, replica }) => [rank, shard?.number ?? 0, replica?.number ?? 0]);

  it("divides a node over the lanes that its edge is dragged over, and makes it whole again", () => {
    const { placement } = found("ok");
    const wide = widenChips(placement, graph, chipsOf(placement, "llm_cfg_img"), [2, 1]);
    expect(wide.groups.find((group) => group.nodes.includes("llm_cfg_img"))).toEqual({
      nodes: ["llm_cfg_img"],
      ranks: [2, 1],
      memory: "60GiB",
      tensor_parallel: 2,
    });
    expect(said(wide, "llm_cfg_img")).toEqual([
      [1, 2, 0],
      [2, 1, 0],
    ]);
    expect(chipsOf(wide, "llm_cfg_img")[0]).toMatchObject({ span: [2, 1], shard: { number: 2, of: 2 } });
    expect(lanesOf(wide, graph).lanes.map((lane) => lane.serving)).toEqual([null, 2, null]);
    const whole = widenChips(wide, graph, chipsOf(wide, "llm_cfg_img").slice(0, 1), [2]);
    expect(said(whole, "llm_cfg_img")).toEqual([[2, 0, 0]]);
    expect(whole.groups.some((group) => group.tensor_parallel)).toBe(false);
  });

  it("divides further what a node's group divides, on its ranks and on others", () => {
    const { placement } = found("ok");
    const tokens: PlacementDocument = {
      ...placement,
      groups: [{ nodes: ["*"], ranks: [0, 1], sequence_parallel: 2 }],
    };
    const chip = chipsOf(tokens, "llm")[0];
    expect(chip?.shard).toEqual({ number: 1, of: 2 });
    const three = widenChips(tokens, graph, chip ? [chip] : [], [0, 1, 2]);
    expect(three.groups.at(-1)).toEqual({ nodes: ["llm"], ranks: [0, 1, 2], sequence_parallel: 3 });
    const swapped = moveChips(tokens, graph, chip ? [chip] : [], 1);
    expect(swapped.groups.at(-1)).toEqual({ nodes: ["llm"], ranks: [1, 0], sequence_parallel: 2 });
    const again = widenChips(three, graph, chipsOf(three, "llm").slice(0, 1), [0, 1]);
    expect(again.groups.every((group) => group.tensor_parallel === undefined)).toBe(true);
  });

  it("keeps whole experts of a node that is divided further or moved", () => {
    const { placement } = found("ok");
    const experts = { expert_parallel: true, redundant_experts: 8 };
    const spread: PlacementDocument = {
      ...placement,
      groups: [{ nodes: ["*"], ranks: [0, 1], tensor_parallel: 2, ...experts }],
    };
    const first = (document: PlacementDocument) => chipsOf(document, "llm").slice(0, 1);
    const three = widenChips(spread, graph, first(spread), [0, 1, 2]);
    expect(three.groups.at(-1)).toEqual({ nodes: ["llm"], ranks: [0, 1, 2], tensor_parallel: 3, ...experts });
    const swapped = moveChips(spread, graph, first(spread), 1);
    expect(swapped.groups.at(-1)).toEqual({ nodes: ["llm"], ranks: [1, 0], tensor_parallel: 2, ...experts });
    const twice = replicateChips(spread, graph, first(spread), 2);
    expect(twice.groups.at(-1)).toMatchObject({ ranks: [0, 1, 2, 3], tensor_parallel: 2, replicas: 2, ...experts });
    const whole = widenChips(three, graph, first(three), [0]);
    expect(whole.groups.at(-1)).toEqual({ nodes: ["llm"], ranks: [0] });
  });

  it("takes a node out of the default to divide it", () => {
    const { placement } = found("ok");
    const wide = widenChips(placement, graph, chipsOf(placement, "llm"), [0, 1]);
    expect(wide.groups.at(-1)).toEqual({ nodes: ["llm"], ranks: [0, 1], tensor_parallel: 2 });
    expect(widenChips(wide, graph, chipsOf(wide, "llm").slice(1), [0])).toEqual(placement);
  });

  it("never takes replicas on the same ranks for shards, nor shards for replicas", () => {
    const { placement } = found("ok");
    const twice = replicateChips(placement, graph, chipsOf(placement, "llm_cfg_img"), 1);
    const wide = widenChips(twice, graph, chipsOf(twice, "llm_cfg_text"), [2, 1]);
    expect(said(wide, "llm_cfg_img")).toEqual([
      [1, 0, 2],
      [2, 0, 1],
    ]);
    expect(said(wide, "llm_cfg_text")).toEqual([
      [1, 2, 0],
      [2, 1, 0],
    ]);
  });

  it("moves one shard, which changes places with another one, and copies a group whole", () => {
    const { placement } = found("ok");
    const wide = widenChips(placement, graph, chipsOf(placement, "llm_cfg_img"), [1, 2]);
    const second = chipsOf(wide, "llm_cfg_img").slice(1);
    expect(said(moveChips(wide, graph, second, 0), "llm_cfg_img")).toEqual([
      [0, 2, 0],
      [1, 1, 0],
    ]);
    expect(said(moveChips(wide, graph, second, 1), "llm_cfg_img")).toEqual([
      [1, 2, 0],
      [2, 1, 0],
    ]);
    const twice = replicateChips(wide, graph, second, 0);
    expect(twice.ranks.map((entry) => entry.rank)).toEqual([0, 1, 2, 3]);
    expect(said(twice, "llm_cfg_img")).toEqual([
      [0, 1, 2],
      [1, 1, 1],
      [2, 2, 1],
      [3, 2, 2],
    ]);
    const wider = widenChips(twice, graph, chipsOf(twice, "llm_cfg_img").slice(0, 1), [0, 1, 2]);
    expect(chipsOf(wider, "llm_cfg_img")[0]?.shard?.of).toBe(3);
    expect(chipsOf(wider, "llm_cfg_img")[0]?.replica?.of).toBe(2);
  });

  it("spans the lanes from the shard that serves to the pointer", () => {
    const order = [0, 1, 2, -1];
    expect(spanTo(order, [0], 1)).toEqual([0, 1]);
    expect(spanTo(order, [0, 1], 2)).toEqual([0, 1, 2]);
    expect(spanTo(order, [0, 1, 2], 0)).toEqual([0]);
    expect(spanTo(order, [2], 0)).toEqual([2, 0, 1]);
    expect(spanTo(order, [2, 0, 1], 2)).toEqual([2]);
    expect(spanTo(order, [2], -1)).toEqual([2, -1]);
    expect(spanTo(order, [7], 1)).toEqual([7]);
  });

  it("moves a chip in its Walks only, and says nothing of Walks once the node is whole again", () => {
    const { placement } = found("apart");
    const [zero, one] = lanesOf(placement, graph).lanes;
    const chip = (lane: typeof zero, node: string) => lane?.chips.filter((entry) => entry.node === node) ?? [];
    const back = moveChips(placement, graph, chip(one, "llm"), 0);
    const llm = lanesOf(back, graph).lanes.map((lane) => chip(lane, "llm").length);
    expect(llm).toEqual([1, 0]);
    const all = moveChips(placement, graph, chip(zero, "llm"), 1);
    expect(all.groups.filter((group) => group.nodes.includes("llm"))).toHaveLength(1);
    expect(lanesOf(all, graph).lanes.map((lane) => chip(lane, "llm").length)).toEqual([0, 1]);
  });
});

describe("what goes to a divided node", () => {
  it("comes to its first shard, which tells the others; nothing goes on from what leaves it", () => {
    const { placement, plan } = found("ok");
    const node = (name: string) =>
      lanesOf(placement, graph).lanes.flatMap((l) => l.chips.filter((c) => c.node === name));
    const wide = widenChips(placement, graph, node("llm_cfg_text"), [1, 2]);
    const lanes = lanesOf(wide, graph);
    const into = crossingsOf(graph, { routes: plan.routes, handed: [] }).filter(
      ({ toNode }) => toNode === "llm_cfg_text",
    );
    expect(into.length).toBeGreaterThan(1);
    expect(broadcasts(into, lanes)).toEqual([
      expect.objectContaining({
        source: 1,
        target: 2,
        fromNode: "llm_cfg_text",
        toNode: "llm_cfg_text",
        words: "broadcast",
      }),
    ]);
    const out = crossingsOf(graph, { routes: plan.routes, handed: [] }).filter(
      ({ fromNode }) => fromNode === "llm_cfg_text",
    );
    expect(out.length).toBeGreaterThan(0);
    expect(broadcasts(out, lanes)).toEqual([]);
  });

  it("and states that move say their bytes, between the chips that they are bound to", () => {
    const { placement, plan } = found("ok");
    const [first] = movesOf(graph, plan.copies, lanesOf(placement, graph));
    expect(first).toMatchObject({ source: 0, target: 1, fromNode: "llm", words: "main 897 MiB" });
  });
});

describe("what a transport does", () => {
  it("is told with the way between the GPUs of its ranks, where that is known", () => {
    const { plan } = found("ok");
    const crossing = { transport: "cuda_ipc", source: 2, target: 0 };
    const linked = (kind: "nvlink" | "system", peers: boolean) => ({
      ...plan,
      links: [{ host: "here", first: "cuda:0", second: "cuda:2", kind, peers }],
    });
    expect(transportWords(crossing, plan)).toBe("from GPU to GPU");
    expect(transportWords(crossing, linked("nvlink", true))).toBe("from GPU to GPU, over NVLink");
    expect(transportWords({ ...crossing, source: 1 }, linked("nvlink", true))).toBe("from GPU to GPU");
    const apart = linked("nvlink", true).ranks.map((rank) => (rank.rank === 2 ? { ...rank, host: "far" } : rank));
    expect(transportWords({ ...crossing, transport: "nixl" }, { ...linked("nvlink", true), ranks: apart })).toBe(
      "over the network between hosts",
    );
    expect(transportWords({ ...crossing, transport: "shm" }, linked("system", true))).toBe("through shared memory");
    expect(transportWords({ ...crossing, transport: "shm" }, linked("system", false))).toBe(
      "through shared memory, as the GPUs can't read each other's memory",
    );
  });
});

describe("crossings", () => {
  it("names both ends, with their nodes", () => {
    const { plan } = found("ok");
    const crossings = crossingsOf(graph, { routes: plan.routes, handed: [] });
    expect(crossings).toHaveLength(plan.routes.filter((route) => route.source !== route.target).length);
    expect(crossings.length).toBeGreaterThan(0);
    expect(crossings).toContainEqual(
      expect.objectContaining({
        walk: "image_gen_cfg",
        from: "noise.latents",
        fromNode: "noise",
        toNode: "llm_cfg_text",
        source: 0,
        target: 1,
      }),
    );
    const { lanes } = lanesOf(found("ok").placement, graph);
    const keys = new Set(lanes.flatMap((lane) => lane.chips.map((chip) => chip.key)));
    for (const { fromNode, toNode, source, target } of crossings) {
      if (fromNode !== null) expect(keys).toContain(`${fromNode}@${source}`);
      if (toNode !== null) expect(keys).toContain(`${toNode}@${target}`);
    }
  });

  it("finds a stream's producer and reader", () => {
    const omni: GraphDocument = JSON.parse(readFileSync(join(ROOT, "graphs/qwen3_omni.json"), "utf8"));
    const index = (omni.streams ?? []).findIndex((stream) => stream.name === "frames");
    const route = {
      walk: null,
      stream: "frames",
      pointer: `/streams/${index}`,
      source: 1,
      target: 0,
      transport: "shm",
    };
    const [crossing] = crossingsOf(omni, { routes: [route], handed: [] });
    expect(crossing?.fromNode).not.toBeNull();
    expect(crossing?.toNode).toBe("code2wav");
  });
});

describe("results that steps hand on", () => {
  const bodies: GraphDocument = {
    format: "walkgraph/graph@1",
    name: "handed",
    walks: {
      read: { body: ["picture_in"], edges: [], results: { pixels: "picture_in.pixels" } },
      see: { inputs: { image: "pixels" }, body: [{ use: "vit", as: "eye" }], edges: [["@in.image", "eye.pixels"]] },
    },
  };
  const handed = (target: number) => ({
    task: "look",
    pointer: "/tasks/look/steps/1/with/image",
    result: "read.pixels",
    input: "see.image",
    source: 0,
    target,
    transport: target ? "shm" : "local",
  });

  it("cross where they are read on another rank, from chip to chip", () => {
    const crossings = crossingsOf(bodies, { routes: [], handed: [handed(1), handed(0)] });
    expect(crossings).toEqual([
      expect.objectContaining({
        task: "look",
        from: "read.pixels",
        to: "see.image",
        fromNode: "picture_in",
        toNode: "vit",
        source: 0,
        target: 1,
        transport: "shm",
      }),
    ]);
  });

  const text = (
    counted: { wires: number; results: number },
    crossings = crossingsOf(bodies, { routes: [], handed: [] }),
  ) =>
    renderToStaticMarkup(
      createElement(CrossingTable, {
        crossings,
        plan: null,
        copies: [],
        total: counted,
        onHover: () => undefined,
        onOpen: () => undefined,
      }),
    );

  it("are listed with their task, and counted where nothing crosses", () => {
    const crossing = crossingsOf(bodies, { routes: [], handed: [handed(1)] });
    expect(text({ wires: 2, results: 1 }, crossing)).toContain("task look, between steps");
    expect(text({ wires: 2, results: 1 }, crossing)).not.toContain("Nothing crosses");
    expect(text({ wires: 2, results: 1 })).toContain("All 2 wires and 1 result between steps stay on their rank");
  });
});

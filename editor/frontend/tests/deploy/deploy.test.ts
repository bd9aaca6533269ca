import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { PlanShown, WorkerShown } from "../../src/messages/answers";
import { changedNodes } from "../../src/deploy/changed";
import { advice, progressOf, stepOf, workerPhase } from "../../src/deploy/phases";
import { placementDiff } from "../../src/deploy/placementDiff";
import { forecast } from "../../src/deploy/forecast";
import type { GraphDocument } from "../../src/document/types";
import { assign, explicit, setDevice, setGroup } from "../../src/document/placement/edits";
import { addRank } from "../../src/document/placement/edits";

const ROOT = join(import.meta.dirname, "../../../..");
const read = (name: string): GraphDocument => JSON.parse(readFileSync(join(ROOT, `graphs/${name}.json`), "utf8"));
const bagel = read("bagel");

function changed(deployed: GraphDocument | null, graph: GraphDocument): string[] {
  return [...changedNodes({ deployed, documents: { graph, placement: null } })].sort();
}

/** A deep copy, edited. */
function edited(change: (graph: GraphDocument) => void): GraphDocument {
  const copy = structuredClone(bagel);
  change(copy);
  return copy;
}

describe("changed nodes", () => {
  it("are none where nothing runs, or the same does, however it is written", () => {
    expect(changed(null, bagel)).toEqual([]);
    expect(changed(bagel, bagel)).toEqual([]);
    expect(
      changed(
        bagel,
        edited((graph) => (graph.layout = { components: { at: { llm: [1, 2] } } })),
      ),
    ).toEqual([]);
    const sorted = Object.fromEntries(Object.entries(bagel.nodes ?? {}).reverse());
    expect(changed(bagel, { ...bagel, nodes: sorted })).toEqual([]);
  });

  it("are those whose parameters, weights or states differ", () => {
    expect(
      changed(
        bagel,
        edited((graph) => ((graph.nodes!["noise"]!.params ??= {})["x"] = 1)),
      ),
    ).toEqual(["noise"]);
    const state = Object.values(bagel.nodes?.["llm_cfg_text"]?.states ?? {})[0] as string;
    const bound = Object.entries(bagel.nodes ?? {}).filter(([, node]) =>
      Object.values(node.states ?? {}).includes(state),
    );
    expect(
      changed(
        bagel,
        edited((graph) => (graph.states![state]!.capacity = "99")),
      ),
    ).toEqual(bound.map(([name]) => name).sort());
  });

  it("are both ends of a wire that differs, and what a loop holds when it does", () => {
    const rewired = edited((graph) => graph.walks!["decode"]!.edges!.pop());
    const lost = bagel.walks!["decode"]!.edges!.at(-1);
    const [from, to] = Array.isArray(lost) ? lost : [lost!.from, lost!.to];
    const ends = [from, to].map((end) => String(end).split(".")[0]).filter((name) => name! in bagel.nodes!);
    expect(changed(bagel, rewired)).toEqual([...new Set(ends)].sort());
    const loops = edited((graph) => {
      const loop = graph.walks!["decode"]!.body.find((item) => typeof item === "object" && "loop" in item);
      (loop as { times: string }).times = "7";
    });
    expect(changed(bagel, loops)).toContain("llm");
    expect(changed(bagel, loops)).not.toContain("vae_encoder");
  });

  it("include what is new, and give the same set for the same documents", () => {
    const less = edited((graph) => delete graph.nodes!["noise"]);
    expect(changed(less, bagel)).toContain("noise");
    const state = { deployed: less, documents: { graph: bagel, placement: null } };
    expect(changedNodes(state)).toBe(changedNodes(state));
  });
});

describe("what differs between placements", () => {
  const one = explicit(bagel, "cuda:0");
  const two = assign(addRank(one, "cuda:1").placement, bagel, ["llm_cfg_text"], [1], null);

  it("is nothing for the same, or for another way to write it", () => {
    expect(placementDiff(two, structuredClone(two), bagel)).toEqual([]);
    const written = { ...two, groups: [{ nodes: Object.keys(bagel.nodes ?? {}), ranks: [0] }, two.groups[1]!] };
    expect(placementDiff(two, written, bagel)).toEqual([]);
  });

  it("tells ranks, devices, moves and memory", () => {
    expect(placementDiff(one, two, bagel)).toEqual([
      { kind: "added", text: "rank 1 on cuda:1" },
      { kind: "changed", text: "llm_cfg_text: rank 0 → rank 1" },
    ]);
    expect(placementDiff(two, one, bagel)[0]).toEqual({ kind: "removed", text: "rank 1 on cuda:1" });
    const other = setGroup(setDevice(two, 1, "cpu"), 1, { memory: "2GiB" });
    expect(placementDiff(two, other, bagel).map((entry) => entry.text)).toEqual([
      "rank 1 moves from cuda:1 to cpu",
      "memory of rank 1: the rest → 2GiB",
    ]);
    const walk = assign(two, bagel, ["llm"], [1], ["decode"]);
    expect(placementDiff(two, walk, bagel)[0]?.text).toMatch(/^llm: rank 0 → rank 0 in .*; rank 1 in decode$/);
  });
});

describe("phases", () => {
  const worker = (state: string, fraction = 0, reason: string | null = null): WorkerShown => ({
    rank: 0,
    state,
    fraction,
    reason,
    device: "cpu",
  });

  it("follow the slowest worker, and stay where one failed", () => {
    expect(stepOf([])).toBe("process");
    expect(stepOf([worker("ready"), worker("loading")])).toBe("weights");
    expect(stepOf([worker("ready"), worker("warming")])).toBe("warm");
    expect(stepOf([worker("ready")])).toBe("ready");
    expect(stepOf([worker("failed", 0, "rank 0 can't load: no folder")])).toBe("weights");
    expect(stepOf([worker("failed", 0, "the worker of rank 0 ended with status 1")])).toBe("process");
  });

  it("grow from nothing to all", () => {
    const way = [
      worker("starting"),
      worker("loading", 0),
      worker("loading", 1),
      worker("warming", 0.5),
      worker("ready"),
    ];
    const steps = way.map((entry) => progressOf([entry]));
    expect(steps).toEqual([...steps].sort((a, b) => a - b));
    expect([steps[0], steps.at(-1), progressOf([])]).toEqual([0, 1, 0]);
    expect(workerPhase(worker("loading", 0.4)).fraction).toBe(0.4);
    expect(workerPhase(worker("unheard of")).label).toBe("unheard of");
  });

  it("say what to do", () => {
    expect(advice("rank 1 has too little memory to load; place fewer nodes on it")).toContain("fewer components");
    expect(advice("weights `x`: no folder")).toContain("source");
    expect(advice(null)).toContain("Try again");
  });
});

describe("what speaks against deploying", () => {
  const plans: Record<string, { plan: PlanShown }> = JSON.parse(
    readFileSync(join(import.meta.dirname, "../placement/plans.json"), "utf8"),
  );

  it("is what the plan refuses here, not on assumed GPUs", () => {
    expect(forecast(plans["here"]!.plan)?.problems.map((problem) => problem.code)).toEqual(
      Array(3).fill("no_device"),
    );
    expect(forecast(plans["bad"]!.plan)).toBeNull();
    expect(forecast(null)).toBeNull();
  });

  it("is what has no network where it could be planned", () => {
    const plan = plans["ok"]!.plan;
    const problems = [
      { code: "unavailable", pointer: "/placement/groups/0", message: "", severity: "warning" as const },
      { code: "crossing_loop", pointer: "/placement/groups", message: "", severity: "warning" as const },
    ];
    const here = { ...plan, devices: [], deployable: false, problems };
    expect(forecast(here)?.problems.map((problem) => problem.code)).toEqual(["unavailable"]);
    expect(forecast({ ...here, deployable: true })).toBeNull();
  });
});

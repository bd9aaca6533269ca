// What is wrong with a placement: where it stands, and what mends it.
import { describe, expect, it } from "vitest";
import type { Problem } from "../../src/messages/answers";
import type { GraphDocument } from "../../src/document/types";
import { nextDevice } from "../../src/document/placement/edits";
import { fixesOf } from "../../src/placement/model/fixes";
import { lanesOf } from "../../src/placement/model/lanes";
import { spotOf } from "../../src/placement/model/problems";
import type { PlacementDocument } from "../../src/document/placement/schema.generated";
import { found, graph, problem } from "./plans";

function fixes(name: string, code: string) {
  const { placement, plan } = found(name);
  return fixesOf(problem(name, code), placement, graph, plan);
}

describe("problems", () => {
  it("stand where they belong", () => {
    const spot = (name: string, code: string) => spotOf(problem(name, code), found(name).placement, graph);
    expect(spot("tight", "does_not_fit")).toMatchObject({ rank: 1, group: null });
    expect(spot("tight", "device_full")).toMatchObject({ rank: 0 });
    expect(spot("bad", "indivisible")).toMatchObject({ group: 1, field: "tensor_parallel" });
    expect(spot("bad", "unknown_node")).toMatchObject({ group: 3, field: "nodes" });
    expect(spot("bad", "unplaced").node).toBe("start");
    expect(spot("here", "no_device")).toMatchObject({ rank: 0 });
    const graphs: Problem = { code: "x", pointer: "/graph/nodes/llm/component", message: "", severity: "error" };
    expect(spotOf(graphs, found("ok").placement, graph)).toMatchObject({ node: "llm", graph: true });
  });

  it("of a rank that others hold a shard on are mended by the rank that serves", () => {
    const { placement, plan } = found("ok");
    const shared: Problem = {
      code: "shared_shard",
      pointer: "/placement/groups/1/ranks/0",
      message: "rank 1 holds a shard of what rank 0 serves and nothing else; take rank 0, or another one",
      severity: "error",
    };
    const [fix] = fixesOf(shared, placement, graph, plan);
    expect(fix?.label).toBe("Move to rank 0");
    expect(fix?.placement?.groups[1]).toEqual({ ...placement.groups[1], ranks: [0] });
  });

  it("with hosts and transports are mended by what is here", () => {
    const { placement, plan } = found("ok");
    const away = {
      ...placement,
      transport: "nixl",
      groups: placement.groups.map((group, index) => (index === 1 ? { ...group, host: "far" } : group)),
    };
    const mended = (code: string, pointer: string) =>
      fixesOf({ code, pointer, message: "", severity: "error" }, away, graph, plan).map((fix) => fix.placement);
    const home = { ...away, groups: away.groups.map((group, index) => (index === 1 ? placement.groups[1] : group)) };
    for (const code of ["unknown_host", "two_hosts", "several_hosts"])
      expect(mended(code, "/placement/groups/1/host")).toEqual([home]);
    for (const code of ["unknown_transport", "not_installed", "unsupported"])
      expect(mended(code, "/placement/transport")).toEqual([{ ...away, transport: null }]);
    expect(mended("unsupported", "/placement/groups")).toEqual([]);
  });

  it("of a group that divides what its nodes don't have are mended by dividing the other", () => {
    const { placement, plan } = found("ok");
    const wide = {
      ...placement,
      groups: [{ nodes: ["*"], ranks: [0, 1], tensor_parallel: 2, expert_parallel: true, redundant_experts: 2 }],
    };
    const indivisible: Problem = {
      code: "indivisible",
      pointer: "/placement/groups/0/tensor_parallel",
      message: "none of its nodes has weights that can be divided; set `sequence_parallel` instead",
      severity: "error",
    };
    const made = fixesOf(indivisible, wide, graph, plan);
    expect(made.map((fix) => fix.label)).toEqual(["Divide tokens", "Width 1"]);
    expect(made.map((fix) => fix.placement?.groups)).toEqual([
      [{ nodes: ["*"], ranks: [0, 1], sequence_parallel: 2 }],
      [{ nodes: ["*"], ranks: [0] }],
    ]);
  });

  it("of experts that shards can't hold alike are mended by redundant ones", () => {
    const { placement, plan } = found("ok");
    const group = { nodes: ["*"], ranks: [0, 1, 2], tensor_parallel: 3, expert_parallel: true };
    const uneven: Problem = {
      code: "indivisible",
      pointer: "/placement/groups/0/tensor_parallel",
      message:
        "weights `llm` can't be divided: its 128 experts can't be divided by 3, but with 1 redundant ones; " +
        "take another number of ranks",
      severity: "error",
    };
    const made = fixesOf(uneven, { ...placement, groups: [group] }, graph, plan);
    expect(made.map((fix) => fix.label)).toEqual(["1 redundant expert", "Width 1"]);
    expect(made[0]?.placement?.groups).toEqual([{ ...group, redundant_experts: 1 }]);
    expect(made[1]?.placement?.groups).toEqual([{ nodes: ["*"], ranks: [0] }]);
  });

  it("are mended by what certainly mends them", () => {
    const [more] = fixes("tight", "does_not_fit");
    expect(more?.label).toBe("Give it 31 GiB");
    expect(more?.placement?.groups[1]).toEqual({ nodes: ["llm_cfg_text"], ranks: [1], memory: "31GiB" });
    const free = fixes("tight", "device_full").at(-1);
    expect(free?.placement?.groups[0]).toEqual({ nodes: ["*"], ranks: [0] });
    expect(fixes("bad", "indivisible").at(-1)?.placement?.groups[1]).toEqual({
      nodes: ["llm_cfg_text"],
      ranks: [1],
      memory: "60GiB",
    });
    const wide = { ...found("bad").placement, groups: [{ nodes: ["*"], ranks: [0], expert_parallel: true }] };
    const spread: Problem = {
      code: "indivisible",
      pointer: "/placement/groups/0/expert_parallel",
      message: "",
      severity: "error",
    };
    const [out] = fixesOf(spread, wide, graph, found("bad").plan);
    expect([out?.label, out?.placement?.groups]).toEqual([
      "Leave out expert_parallel",
      [{ nodes: ["*"], ranks: [0] }],
    ]);
    expect(fixes("bad", "unknown_node")[0]?.placement?.groups).toHaveLength(3);
    expect(fixes("bad", "unplaced").map((fix) => fix.label)).toEqual(
      [0, 1, 2].map((rank) => `Place on rank ${rank}`),
    );
    expect(
      lanesOf(fixes("bad", "unplaced")[1]?.placement as PlacementDocument, graph).lanes[1]?.chips.map(
        (chip) => chip.node,
      ),
    ).toContain("start");
    expect(fixes("here", "no_device").at(-1)).toEqual({
      label: "Plan as if there were 3 GPUs of 141 GB",
      placement: null,
      hardware: "3x141GB",
    });
    expect(fixes("here", "no_device")[0]?.placement?.ranks[0]?.device).toBe("cpu");
    expect(fixes("ok", "crossing_loop")).toEqual([]);
  });

  it("offer a free GPU for one more rank", () => {
    const { placement } = found("apart");
    expect(nextDevice(placement, ["cpu", "cuda:0", "cuda:1", "cuda:2"])).toBe("cuda:2");
    expect(nextDevice(placement, ["cpu", "cuda:0", "cuda:1"])).toBe("cuda:1");
    expect(nextDevice(placement)).toBe("cuda:2");
  });

  it("put a split state together", () => {
    const shared: GraphDocument = {
      name: "shared",
      states: { main: { kind: "rng" } },
      nodes: { a: { component: "x", states: { s: "main" } }, b: { component: "x", states: { s: "main" } } },
      walks: { go: { body: ["a", "b"] }, other: { body: ["b"] } },
    };
    const placement = {
      ...found("ok").placement,
      groups: [
        { nodes: ["*"], ranks: [0] },
        { nodes: ["b"], ranks: [1] },
      ],
    };
    const split: Problem = {
      code: "split_state",
      pointer: "/placement/groups/1",
      message: "state `main` would be on ranks 0, 1 at once in Walk `go`; place `a`, `b` together there",
      severity: "error",
    };
    const mended = fixesOf(split, placement, shared, found("ok").plan);
    expect(mended.map((fix) => fix.label)).toEqual(["All on rank 0 in go", "All on rank 1 in go"]);
    const [zero, one] = mended.map((fix) => lanesOf(fix.placement as PlacementDocument, shared).lanes);
    expect(zero?.map((lane) => lane.chips.map((chip) => chip.key))).toEqual([["a@0", "b@0"], ["b@1"], []]);
    expect(one?.map((lane) => lane.chips.map((chip) => chip.key))).toEqual([[], ["a@1", "b@1"], []]);
  });
});

// Ranks on hosts: who names them, and what follows an edit.
import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";
import type { Problem } from "../../src/messages/answers";
import { addRank, nextDevice, resizeGroup } from "../../src/document/placement/edits";
import { ANY, hostOf, setHost } from "../../src/document/placement/hosts";
import type { Group, PlacementDocument } from "../../src/document/placement/schema.generated";
import { summary } from "../../src/placement/StoredDialog";
import { CrossingTable } from "../../src/placement/CrossingTable";
import { crossingsOf } from "../../src/placement/model/crossings";
import { fixesOf } from "../../src/placement/model/fixes";
import { costWords, linkBetween, linkWords } from "../../src/placement/model/costs";
import { lanesOf } from "../../src/placement/model/lanes";
import { hostsOf } from "../../src/placement/model/memory";
import { spotOf } from "../../src/placement/model/problems";
import { found, graph } from "./plans";

const placement = (groups: Group[], ...hosts: (string | null)[]): PlacementDocument => ({
  format: "walkgraph/placement@1",
  name: "x",
  groups,
  ranks: hosts.map((host, rank) => ({ rank, device: "cuda:0", ...(host === null ? {} : { host }) })),
});
const pair = placement([{ nodes: ["*"], ranks: [0, 1], replicas: 2, host: "far" }], null, null, null);
const hosts = (of: PlacementDocument) => of.ranks.map(({ rank }) => hostOf(of, rank));

describe("the host of a rank", () => {
  it("is that which it names, or else its groups", () => {
    expect(hosts(pair)).toEqual(["far", "far", null]);
    expect(hosts(placement(pair.groups, "near", null, null))).toEqual(["near", "far", null]);
  });

  it("is changed for this rank alone", () => {
    for (const [rank, host, after] of [
      [0, "near", ["near", "far", null]],
      [1, null, ["far", null, null]],
      [2, "far", ["far", "far", "far"]],
    ] as const) {
      const changed = setHost(pair, rank, host);
      expect(hosts(changed)).toEqual(after);
      expect(hosts(setHost(changed, rank, hostOf(pair, rank)))).toEqual(hosts(pair));
    }
    expect(setHost(pair, 1, "far")).toBe(pair);
    expect(setHost(setHost(pair, 2, "far"), 2, null).ranks[2]).toEqual({ rank: 2, device: "cuda:0" });
  });

  it("is that of its group where it joins one", () => {
    const shards: Group = { nodes: ["*"], ranks: [0], tensor_parallel: 1 };
    const wide = (of: PlacementDocument) => resizeGroup(of, 0, "width", 2);
    expect(hosts(wide(placement([shards], "far")))).toEqual(["far", "far"]);
    const named = wide(placement([{ ...shards, host: "far" }], null));
    expect(hosts(named)).toEqual(["far", "far"]);
    expect(named.ranks[1]).toEqual({ rank: 1, device: "cuda:1" });
  });

  it("has GPUs of its own", () => {
    const gpus = ["cpu", "cuda:0", "cuda:1"];
    const one = placement([{ nodes: ["*"], ranks: [0] }], "far");
    expect(nextDevice(one, gpus, "far")).toBe("cuda:1");
    expect(nextDevice(one, gpus)).toBe("cuda:0");
    expect(addRank(one, "cuda:1", "far").placement.ranks[1]).toEqual({ rank: 1, device: "cuda:1", host: "far" });
    expect(nextDevice(one, [], "far")).toBe("cuda:1");
    expect(nextDevice(one, [])).toBe("cpu");
  });
});

describe("a rank that may be on any host", () => {
  const free = setHost(placement([{ nodes: ["*"], ranks: [0] }], null, "far", null), 2, ANY);
  const lanes = (chosen?: ReadonlyMap<number, string>) =>
    lanesOf(free, graph, [], "here", chosen).lanes.map(({ rank, host, unpinned }) => [rank, host, unpinned]);

  it("says so in the document", () => {
    expect(free.ranks[2]).toEqual({ rank: 2, device: "cuda:0", host: "any" });
    expect(hosts(setHost(free, 2, null))).toEqual([null, "far", null]);
  });

  it("is drawn in the lane of the host that was chosen, or else of the one that plans", () => {
    expect(lanes(new Map([[2, "far"]]))).toEqual([
      [0, "here", false],
      [1, "far", false],
      [2, "far", true],
    ]);
    expect(lanes()).toEqual([
      [0, "here", false],
      [2, "here", true],
      [1, "far", false],
    ]);
    expect(lanes(new Map([[1, "here"]]))[2]).toEqual([1, "far", false]);
  });

  it("is no host of a stored placement", () => {
    expect(summary(free)).toBe("3 ranks on 2 hosts: cuda:0, cuda:0, cuda:0");
  });

  it("is mended where no host has room by naming this machine", () => {
    const problem: Problem = { code: "no_host", pointer: "/placement/ranks/2/host", message: "", severity: "error" };
    const [fix] = fixesOf(problem, free, graph, found("ok").plan);
    expect(fix?.placement && hosts(fix.placement)).toEqual([null, "far", null]);
  });
});

describe("a stored placement", () => {
  it("is summed up by its ranks, and its hosts if there are several", () => {
    const group = [{ nodes: ["*"], ranks: [0] }];
    expect(summary(placement(group, null, null))).toBe("2 ranks: cuda:0, cuda:0");
    expect(summary(placement(group, "near", "far"))).toBe("2 ranks on 2 hosts: cuda:0, cuda:0");
    expect(summary(placement(group, ...Array.from({ length: 9 }, (_, rank) => `h${rank}`)))).toBe(
      "9 ranks on 9 hosts: cuda:0",
    );
  });
});

describe("what is wrong with a host", () => {
  const { placement: planned, plan } = found("ok");
  const [first] = plan.devices;
  const two = { ...plan, devices: [...plan.devices, { ...first!, host: "far", name: "cuda:0", free: 7 }] };
  const away = setHost(planned, 1, "far");
  const wrong = (code: string, pointer: string, message = ""): Problem => ({
    code,
    pointer: `/placement${pointer}`,
    message,
    severity: "error",
  });

  it("stands at its rank, and is mended there", () => {
    const unknown = wrong("unknown_host", "/ranks/1/host");
    expect(spotOf(unknown, away, graph)).toMatchObject({ rank: 1, group: null });
    expect(fixesOf(unknown, away, graph, two).map((fix) => fix.placement)).toEqual([planned]);
  });

  it("offers devices of that host", () => {
    const missing = wrong("no_device", "/ranks/1/device");
    const labels = fixesOf(missing, away, graph, two).map((fix) => fix.label);
    expect(labels.filter((label) => label.startsWith("Use "))).toEqual(["Use cuda:0"]);
    const full = wrong("device_full", "/groups", "`cuda:0` of host `far` is full");
    const other = setHost(setHost(planned, 0, "near"), 1, "far");
    const gpus = { ...other, ranks: other.ranks.map((entry) => ({ ...entry, device: "cuda:0" })) };
    expect(spotOf(full, gpus, graph).rank).toBe(1);
  });

  it("is known of the hosts that were planned for", () => {
    expect(hostsOf(two)).toEqual(["here", "far"]);
    expect(hostsOf(null)).toEqual([]);
  });
});

describe("what goes between hosts", () => {
  const { plan } = found("ok");
  const apart = { ...plan, ranks: plan.ranks.map((rank) => (rank.rank === 1 ? { ...rank, host: "far" } : rank)) };
  const link = { first: "far", second: "here", bandwidth: 1e9, latency: 0.0004 };
  const known = { ...apart, host_links: [link] };

  it("names them, and says the time that a value takes", () => {
    expect(costWords(apart, 0, 1, null)).toBe("here to far");
    expect(costWords(apart, 1, 0, 5)).toBe("far to here");
    expect(costWords(known, 1, 0, null)).toBe("far to here, 0.40 ms or more each");
    expect(costWords(known, 0, 1, 20e6)).toBe("here to far, 20 ms each");
    expect(costWords(known, 0, 2, 20e6)).toBeNull();
  });

  it("goes over a link that was measured once", () => {
    expect(linkBetween(known, ["here", "far"])).toBe(link);
    expect(linkBetween(known, ["here", "here"])).toBeUndefined();
    expect(linkBetween(apart, ["here", "far"])).toBeUndefined();
    expect(linkWords(link)).toBe("954 MiB/s, 0.40 ms");
  });

  it("is in the table of crossings, states too", () => {
    const { source, target, ...copy } = plan.copies[0]!;
    const table = (of: typeof apart) =>
      renderToStaticMarkup(
        createElement(CrossingTable, {
          crossings: crossingsOf(graph, { routes: plan.routes, handed: [] }),
          copies: [{ ...copy, source, target, bytes: 1e9 }],
          plan: of,
          total: { wires: 9, results: 0 },
          onHover: () => undefined,
          onOpen: () => undefined,
        }),
      );
    expect([source, target]).toEqual([0, 1]);
    expect(table(known)).toContain("here to far, 0.40 ms or more each");
    expect(table(known)).toContain("here to far, 1.00 s each");
    expect(table(plan)).not.toContain("each");
  });
});

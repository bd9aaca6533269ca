// @vitest-environment jsdom
import { flushSync } from "react-dom";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Model } from "../../src/trace/model/model";
import {
  CalledPanel,
  EndsPanel,
  PlaybackPanel,
  KeptPanel,
  LanePanel,
  NodesPanel,
  WhyPanel,
} from "../../src/trace/panels";
import { BlockPanel } from "../../src/trace/BlockPanel";
import { Clocks } from "../../src/trace/Clocks";
import { ProfilePanel } from "../../src/trace/ProfilePanel";
import type { ProfileShown } from "../../src/trace/model/types";
import { modelOf } from "../../src/trace/model/whole";
import { fill, trace } from "./made";

let root: Root;
let host: HTMLElement;

beforeEach(() => {
  host = document.createElement("div");
  document.body.append(host);
  root = createRoot(host);
});

afterEach(() => {
  flushSync(() => root.unmount());
  host.remove();
});

const show = (view: React.ReactNode) => flushSync(() => root.render(view));
const press = (name: string) => {
  const found = [...host.querySelectorAll("button")].find((button) => button.textContent?.includes(name));
  flushSync(() => found!.click());
};

it("a lane's blocks are a table, a hundred at once, from which each can be chosen", () => {
  const model = new Model();
  fill(model, 250, 1, 1);
  const chosen = vi.fn();
  show(<LanePanel model={model} lane={model.lanes[0]!} selected={null} version={0} onBlock={chosen} />);
  const rows = () => [...host.querySelectorAll("tbody tr")];
  expect([rows().length, host.querySelector("h3")?.textContent]).toEqual([100, "n0, rank 0: 250 blocks"]);
  press("Later");
  press("Later");
  expect(rows().length).toBe(50);
  flushSync(() => rows()[0]!.querySelector("button")!.click());
  expect(chosen).toHaveBeenCalledWith(model.inLane(model.lanes[0]!)[200]);
});

it("a block of a divided node leads to its parts on all shards", () => {
  const shards = { rank: [2], of: [0], number: [0], started: [1510], finished: [1900] };
  const model = modelOf(trace({ shards }));
  const go = vi.fn();
  show(<BlockPanel model={model} block={0} links={[]} onBlock={go} onCanvas={null} />);
  expect(host.textContent).toContain("rank 0: 490 µs");
  expect(host.textContent).toContain("rank 2: 390 µs, began 1.5 ms later");
  press("rank 2");
  expect(go).toHaveBeenCalledWith(2);
});

it("a block is told with its batch and its values, each leading on", () => {
  const model = modelOf(trace());
  const [go, onCanvas] = [vi.fn(), vi.fn()];
  const links = [{ hop: model.hops[0]!, from: 0, to: 1 }];
  show(<BlockPanel model={model} block={0} links={links} onBlock={go} onCanvas={onCanvas} />);
  expect(host.textContent).toContain("run r2");
  press("sent llm.hidden -> vae.latents");
  expect(go).toHaveBeenCalledWith(1);
  press("Show on the canvas");
  expect(onCanvas).toHaveBeenCalledWith(["llm"]);
});

it("lists the nodes that were not run", () => {
  const one = { rank: 0, walk: "go", node: "n", step: 0, iteration: [], at: 0 };
  show(<KeptPanel kept={["shout", "greet", "shout"].map((use) => ({ ...one, use }))} />);
  expect([...host.querySelectorAll("li")].map((line) => line.textContent)).toEqual(["shout ×2", "greet"]);
  show(<KeptPanel kept={[]} />);
  expect(host.textContent).toBe("");
});

it("says how the loops of a run ended", () => {
  const end = { walk: "speak", loop: "frames", iterations: 40 };
  show(<EndsPanel ends={["stop", "bound", "derailed"].map((reason) => ({ ...end, reason }))} />);
  expect([...host.querySelectorAll("li")].map((line) => line.textContent)).toEqual([
    "frames ended after 40",
    "frames reached its limit of 40",
    "frames: derailed after 40",
  ]);
  show(<EndsPanel ends={[]} />);
  expect(host.textContent).toBe("");
});

it("says whether what is played came in time", () => {
  show(<PlaybackPanel played={{ seconds: 30, underruns: 0, late: 0 }} />);
  expect(host.querySelector("p")?.textContent).toBe("30.0 s, in time");
  show(<PlaybackPanel played={{ seconds: 30, underruns: 2, late: 0.25 }} />);
  expect(host.querySelector("p")?.textContent).toBe("30.0 s, with 2 interruptions of 0.25 s in all");
  show(<PlaybackPanel played={null} />);
  expect(host.textContent).toBe("");
});

it("called tasks lead to the traces of their own runs", () => {
  const one = { task: "shapes/edit", rank: 0, walk: "go", node: "draw", use: "draw", step: 0, iteration: [] };
  const called = [
    { ...one, run: "r7", asked: 1000, answered: 251000, failed: false },
    { ...one, run: "", asked: 2000, answered: 3000, failed: true },
  ];
  const go = vi.fn();
  show(<CalledPanel called={called} onRun={go} />);
  press("draw called shapes/edit: 250 ms");
  expect(go).toHaveBeenCalledExactlyOnceWith("r7");
  expect([...host.querySelectorAll("li")].map((item) => item.textContent)[1]).toContain("failed");
  expect(host.querySelectorAll("button")).toHaveLength(1);
  show(<CalledPanel called={[]} onRun={go} />);
  expect(host.textContent).toBe("");
});

it("why a run was slow is a sentence, shares, and a way to each piece", () => {
  const shares = { admission: 0, queue: 0.0005, launch: 0, compute: 0.0015, transfer: 0, wait: 0 };
  const piece = {
    kind: "compute",
    lane: 0,
    walk: "decode",
    block: 0,
    hop: null,
    rank: 0,
    began: 10,
    ended: 500,
  } as const;
  const bottleneck = { lane: "llm", rank: 0, seconds: 0.001, share: 0.5, kind: "compute", loop: false } as const;
  const why = {
    run: "r1",
    seconds: 0.002,
    shares,
    path: [piece],
    bottleneck,
    says: "Half of it was `llm`.",
    profile,
  };
  const [onPath, onPiece] = [vi.fn(), vi.fn()];
  const shown = { trace: trace(), model: modelOf(trace()), why, unknown: null };
  show(<WhyPanel shown={shown} path onPath={onPath} onPiece={onPiece} />);
  expect(host.querySelector(".shares")?.getAttribute("aria-label")).toBe(
    "Queue 500 µs (25 %), Compute 1.5 ms (75 %)",
  );
  expect([...host.querySelectorAll<HTMLElement>(".shares i")].map((part) => part.style.width)).toEqual([
    "25%",
    "75%",
  ]);
  expect(host.textContent).toContain("Bottleneck: llm on rank 0");
  press("Compute llm");
  expect(onPiece).toHaveBeenCalledWith(piece);
  flushSync(() => host.querySelector<HTMLInputElement>("input")!.click());
  expect(onPath).toHaveBeenCalledWith(false);
  show(<WhyPanel shown={{ ...shown, why: null, unknown: "Not yet." }} path onPath={onPath} onPiece={onPiece} />);
  expect(host.textContent).toContain("Not yet.");
});

const profile: ProfileShown = {
  seconds: 0.02,
  exact: true,
  shares: [
    { share: "socket", seconds: 0.005, part: 0.25, means: "bytes on the socket", advice: "send less" },
    { share: "queue", seconds: 0, part: 0, means: "waiting", advice: "wait less" },
    { share: "device", seconds: 0.015, part: 0.75, means: "the model computes", advice: "see `walkgraph trace`" },
  ],
  largest: "device",
  moments: [
    { what: "service received the request", at: 0 },
    { what: "last byte sent", at: 0.02 },
  ],
};

it("a request is one bar of the shares that it has, with what to do about the largest", () => {
  show(<ProfilePanel profile={profile} />);
  expect(host.querySelector(".shares")?.getAttribute("aria-label")).toBe(
    "Socket 5 ms (25.0 %), Device 15 ms (75.0 %)",
  );
  const bars = [...host.querySelectorAll<HTMLElement>(".shares i")];
  expect(bars.map((bar) => [bar.className, bar.style.width])).toEqual([
    ["socket", "25%"],
    ["device", "75%"],
  ]);
  expect([...host.querySelectorAll("li")].map((item) => item.title)).toEqual([
    "bytes on the socket",
    "the model computes",
  ]);
  expect(host.querySelector("h3")?.textContent).toContain("20 ms from its first byte");
  expect(host.querySelector("p")?.textContent).toBe("The largest share is device: see walkgraph trace.");
  expect([...host.querySelectorAll("td")].map((cell) => cell.textContent).filter((_, index) => index % 2)).toEqual([
    "service received the request",
    "last byte sent",
  ]);
  expect(host.querySelector(".about")).toBeNull();
  show(<ProfilePanel profile={{ ...profile, exact: false }} />);
  expect(host.querySelector(".about")?.textContent).toContain("estimates");
});

it("nodes are told of one run, of two, and of all that are kept", () => {
  const model = modelOf(trace());
  const onLane = vi.fn();
  const figures = { p50: 1, p95: 2, p99: 3, queued_p50: 0, queued_p95: 1, batch_mean: 1, share: 0.25, busy: 1 };
  const statistics = { runs: 4, nodes: [{ node: "llm", rank: 0, loop: false, calls: 9, ...figures }] };
  const view = (other: Model | null) => (
    <NodesPanel model={model} version={0} other={other} statistics={statistics} onLane={onLane} />
  );
  show(view(null));
  const captions = () => [...host.querySelectorAll("caption")].map((caption) => caption.textContent);
  expect(captions()).toEqual(["The visible range, per node and rank", "Over the last 4 runs that are kept"]);
  press("vae");
  expect(onLane).toHaveBeenCalledWith(expect.objectContaining({ rank: 1, name: "vae", loop: false }));
  show(view(new Model()));
  expect(captions()).toEqual(["The second run against the first, largest change first"]);
  expect(host.querySelector(".less")?.textContent).toBe("−800 µs");
});

it("says how wrong the times of other hosts may be", () => {
  show(<Clocks trace={trace()} />);
  expect(host.textContent).toBe("");
  show(<Clocks trace={trace({ clocks: [{ host: "b", offset: 5, error: 40 }], early: 2 })} />);
  expect(host.textContent).toContain("times of host b: ±40 µs");
  expect(host.textContent).toContain("2 values came too early");
});

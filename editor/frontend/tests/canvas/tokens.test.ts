import { describe, expect, it } from "vitest";
import type { PlanShown } from "../../src/messages/answers";
import { countedOn } from "../../src/canvas/edges/counted";
import { back, forward } from "../../src/canvas/edges/paths";
import { along, polyline } from "../../src/canvas/edges/polyline";
import { GAP_MS, Tokens } from "../../src/canvas/edges/tokens";
import { crossing, trafficWords } from "../../src/canvas/edges/traffic";
import type { WireData } from "../../src/canvas/shapes/types";
import type { Walk } from "../../src/document/types";

describe("polylines", () => {
  it("begin and end where the wire does, whatever its way", () => {
    const ends = { sx: 10, sy: 20, tx: 310.5, ty: -40 };
    const ways = [
      forward(ends, [], "curved"),
      forward(ends, [[100, 100]], "curved"),
      forward(ends, [[100, 100]], "straight"),
      back(ends, 200, 1),
    ];
    for (const { path } of ways) {
      const line = polyline(path);
      expect(along(line, 0)).toEqual([10, 20]);
      expect(along(line, line.length)).toEqual([310.5, -40]);
      expect(along(line, 1e9)).toEqual(along(line, line.length));
    }
  });

  it("are as long as they are, and walked at an even pace", () => {
    const line = polyline("M0,0L30,0L30,40H0V0");
    expect(line.length).toBe(140);
    expect([along(line, 15), along(line, 50), along(line, 85)]).toEqual([
      [15, 0],
      [30, 20],
      [15, 40],
    ]);
    const curve = polyline("M0,0C0,50 100,50 100,0");
    const steps = Array.from({ length: 21 }, (_, step) => along(curve, (curve.length * step) / 20));
    const gaps = steps.slice(1).map(([x, y], at) => Math.hypot(x - steps[at]![0], y - steps[at]![1]));
    expect(Math.max(...gaps) - Math.min(...gaps)).toBeLessThan(0.3);
    expect(polyline("").length).toBe(0);
  });
});

describe("tokens", () => {
  function made() {
    let left = 3;
    const tokens = new Tokens();
    const wire = { path: "M0,0L500,0", color: "red", left: () => left };
    tokens.put("edge:0", wire);
    return { tokens, wire, send: (count = 1) => void (left += count) };
  }

  it("begin where a value has left, run to the wire's end, and are gone", () => {
    const { tokens, send } = made();
    expect(tokens.at(0)).toEqual([]);
    send(5);
    expect(tokens.at(10)).toEqual([{ x: 0, y: 0, color: "red" }]);
    const [dot] = tokens.at(460);
    expect(dot?.x).toBeCloseTo(250);
    expect(tokens.at(10 + 900)).toEqual([]);
  });

  it("keep their distance however many values leave", () => {
    const { tokens, send } = made();
    for (let now = 0; now < 900; now += 10) {
      send();
      tokens.at(now);
    }
    const xs = tokens.at(900).map(({ x }) => x);
    expect(xs.length).toBeGreaterThan(4);
    expect(xs.length).toBeLessThanOrEqual(900 / GAP_MS + 1);
  });

  it("go on along a wire that is moved, and begin no new ones for what went while all was still", () => {
    const { tokens, wire, send } = made();
    send();
    tokens.at(0);
    tokens.put("edge:0", { ...wire, path: "M0,100L500,100" });
    expect(tokens.at(450)[0]).toMatchObject({ y: 100 });
    tokens.still();
    expect(tokens.at(460)).toEqual([]);
    send();
    tokens.still();
    expect(tokens.at(900)).toEqual([]);
    tokens.drop("edge:0");
    send();
    expect(tokens.at(1000)).toEqual([]);
  });
});

describe("what goes along a wire", () => {
  const body = {
    body: ["noise", { loop: "steps", times: "4", body: ["dit", { use: "dit", as: "again" }] }, "vae"],
    edges: [
      ["noise.x", "dit.x"],
      ["dit.x", "again.x"],
      ["again.x", "dit.x"],
      ["again.x", "vae.x"],
      { from: "again.x", to: "@out.x", each: true },
      ["again.x", "@out.last"],
      ["@in.text", "noise.text"],
      ["@in.text", "dit.text"],
      ["@loop.index", "dit.step"],
    ],
    results: { kept: { from: "noise.x" }, last: { from: "dit.x" } },
  } as unknown as Walk;
  const wire = (index: number, from = "", to = "") => ({ index, from, to, node: "dit" }) as WireData;

  it("is told by its source's calls, or by its target's where one value of many goes, or it comes from outside", () => {
    const told = Array.from({ length: 9 }, (_, index) => countedOn("w", body, wire(index)));
    expect(told).toEqual(["w/noise", "w/dit", "w/again", "w/vae", "w/again", null, "w/noise", null, null]);
  });

  it("is told of results and sinks, and of components by their node", () => {
    expect(countedOn("w", body, wire(-1, "noise.x", "@result.kept"))).toBe("w/noise");
    expect(countedOn("w", body, wire(-1, "dit.x", "@result.last"))).toBeNull();
    expect(countedOn("w", body, wire(-1, "dit.x", "@sink.frames"))).toBe("w/dit");
    expect(countedOn("w", body, wire(-1, "gone.x", "@result.kept"))).toBeNull();
    expect([countedOn("w", body, wire(99)), countedOn(null, null, wire(0))]).toEqual([null, "dit"]);
  });
});

describe("traffic", () => {
  it("is told of what crosses ranks, planned or seen", () => {
    const route = { walk: "w", stream: null, pointer: "/walks/w/edges/1", source: 0, target: 1, transport: "shm" };
    const local = { ...route, pointer: "/walks/w/edges/0", target: 0 };
    const plan = { routes: [local, route] } as unknown as PlanShown;
    expect([crossing(plan, "w", 0), crossing(null, "w", 1), crossing(plan, "w", 1)]).toEqual([null, null, route]);
    const seen = { transport: "cuda_ipc", source: 0, target: 1, rate: 0, count: 2, nbytes: 2048 };
    expect(trafficWords(null, route)).toBe("rank 0 → 1 · shm");
    expect(trafficWords(seen, route)).toBe("rank 0 → 1 · cuda_ipc · 2.0 KiB in total");
    expect(trafficWords({ ...seen, rate: 5e6 }, null)).toBe("rank 0 → 1 · cuda_ipc · 4.8 MiB/s");
    expect(trafficWords(null, null)).toBe("");
  });
});

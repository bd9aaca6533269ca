import { describe, expect, it } from "vitest";
import { Model } from "../../src/trace/model/model";
import { densityOf, paint, TOP, xOf, type Palette, type Scene } from "../../src/trace/picture/paint";
import { rowAt, rowsOf } from "../../src/trace/picture/rows";
import {
  around,
  fitted,
  kept,
  showAt,
  showClock,
  showMicros,
  showTick,
  ticks,
  zoomed,
} from "../../src/trace/model/span";
import { Timeline } from "../../src/trace/model/timeline";
import { modelOf } from "../../src/trace/model/whole";
import { block, fill, random, trace } from "./made";

const [WIDTH, HEIGHT] = [800, 400];
const palette: Palette = {
  bg: "bg",
  fg: "fg",
  muted: "muted",
  line: "line",
  soft: "soft",
  accent: "accent",
  bad: "bad",
  warn: "warn",
  onBlock: "on",
  ranks: ["rank"],
  font: "11px sans",
};

interface Rect {
  x: number;
  width: number;
  color: string;
  alpha: number;
}

/** Stands for a canvas: keeps the filled rectangles, counts all calls. */
function canvas() {
  const rects: Rect[] = [];
  const seen = { calls: 0, texts: [] as string[] };
  const state: Record<string, unknown> = { globalAlpha: 1 };
  const context = new Proxy(state, {
    get: (target, name: string) => {
      if (name in target) return target[name];
      return (...given: unknown[]) => {
        seen.calls += 1;
        if (name === "fillText") seen.texts.push(given[0] as string);
        if (name === "fillRect") {
          const [x, , width] = given as number[];
          rects.push({
            x: x!,
            width: width!,
            color: target["fillStyle"] as string,
            alpha: target["globalAlpha"] as number,
          });
        }
      };
    },
    set: (target, name: string, value) => ((target[name] = value), true),
  });
  return { context: context as unknown as CanvasRenderingContext2D, rects, seen };
}

function scene(model: Model, fields: Partial<Scene> = {}): Scene {
  const all = { from: model.from, to: model.to };
  return {
    model,
    rows: rowsOf(model, new Set()),
    span: all,
    all,
    width: WIDTH,
    height: HEIGHT,
    scroll: 0,
    palette,
    selected: null,
    hovered: null,
    lit: new Set(),
    lane: null,
    path: null,
    links: [],
    wall: null,
    density: densityOf(model, all, 100),
    ...fields,
  };
}

describe("painting", () => {
  it("takes work by its width, not by its blocks", () => {
    const calls = [2_000, 100_000].map((count) => {
      const model = new Model();
      fill(model, count, 1);
      const { context, seen } = canvas();
      paint(context, scene(model));
      return seen.calls;
    });
    // Two cells a pixel and track at most, and what is around the lanes.
    expect(calls[1]).toBeLessThan(WIDTH * 3 * 4);
    expect(calls[1]).toBeLessThan(calls[0]! * 3);
  });

  it.each([1, 2, 3])("draws each block that is wide enough at its place, and covers the others (%i)", (seed) => {
    const model = new Model();
    model.laneOf(0, "n", ["n"], false);
    const next = random(seed);
    for (let at = 0, each = 0; each < 400; each += 1) {
      const length = next() < 0.2 ? 400 * next() : 4 * next();
      model.add(block({ started: at, finished: at + length }));
      at += length + 20 * next();
    }
    const { context, rects } = canvas();
    const whole = scene(model);
    paint(context, whole);
    const drawn = rects.filter((rect) => rect.color === "rank");
    for (let id = 0; id < model.size; id += 1) {
      const [left, right] = [xOf(whole, model.started.at(id)), xOf(whole, model.finished.at(id))];
      expect(drawn.some(({ x, width }) => x <= left + 0.01 && x + width >= left)).toBe(true);
      if (right - left >= 2)
        expect(drawn.some(({ x, width }) => Math.abs(x - left) < 0.01 && Math.abs(x + width - right) < 0.51)).toBe(
          true,
        );
    }
    // Nothing where there is nothing.
    const filled = drawn.reduce((sum, { width }) => sum + width, 0);
    expect(filled).toBeLessThan(WIDTH);
  });

  it("leaves out what is not seen", () => {
    const model = new Model();
    fill(model, 5_000, 2);
    const { context, rects } = canvas();
    paint(context, scene(model, { span: { from: 20_000, to: 20_400 } }));
    const drawn = rects.filter((rect) => rect.color === "rank");
    expect(drawn.length).toBeGreaterThan(10);
    expect(drawn.length).toBeLessThan(250);
    expect(drawn.every(({ x, width }) => x + width >= -2 && x <= WIDTH + 2)).toBe(true);
  });

  it("shows failures, words on wide blocks, the path and the arrows", () => {
    const model = modelOf(trace());
    const { context, rects, seen } = canvas();
    const links = [{ hop: model.hops[0]!, from: 0, to: 1 }];
    paint(context, scene(model, { selected: 0, links, path: [{ from: 10, to: 500, block: 0, kind: "compute" }] }));
    expect(rects.filter((rect) => rect.color === "bad")).toHaveLength(1);
    expect(seen.texts).toContain("call #1");
    expect(seen.texts).toContain("iterations 5–8");
  });

  it("has the whole's fill by pieces", () => {
    const model = new Model();
    model.laneOf(0, "n", ["n"], false);
    model.add(block({ started: 0, finished: 50 }));
    model.add(block({ started: 50, finished: 75 }));
    expect([...densityOf(model, { from: 0, to: 100 }, 4)]).toEqual([1, 1, 1, 0]);
  });
});

describe("rows", () => {
  it("stand below each other without gaps in a rank, by what began first; a closed rank is one", () => {
    const model = modelOf(trace());
    const open = rowsOf(model, new Set());
    expect(open.list.map((row) => row.kind)).toEqual(["rank", "strip", "lane", "rank", "lane"]);
    for (const row of open.list) expect(rowAt(open, row.top + row.height / 2)).toBe(row);
    expect(rowAt(open, open.height + TOP)).toBe(null);
    expect(rowsOf(model, new Set([0])).list.map((row) => row.kind)).toEqual(["rank", "rank", "lane"]);
  });

  it("show the shards of a node below it once it is opened, and their rank without lanes", () => {
    const shards = { rank: [2, 3], of: [0, 0], number: [0, 0], started: [12, 14], finished: [480, 530] };
    const model = modelOf(trace({ shards }));
    const told = (opened: number[]) =>
      rowsOf(model, new Set(), new Set(opened)).list.flatMap((row) =>
        row.kind === "strip" ? [] : [row.kind === "lane" ? `${row.lane.name}@${row.rank}+${row.shards}` : row.rank],
      );
    const ranks = [1, "vae@1+0", 2, 3];
    expect(told([])).toEqual([0, "llm@0+2", ...ranks]);
    expect(told([0])).toEqual([0, "llm@0+2", "llm@2+0", "llm@3+0", ...ranks]);
    expect(model.partsOf(0).map((id) => model.finished.at(id))).toEqual([500, 480, 530]);
    expect(model.partsOf(1)).toEqual([]);
  });
});

describe("the piece of time that is shown", () => {
  it("keeps what is under the pointer where it is", () => {
    const span = { from: 100, to: 300 };
    for (const by of [0.5, 2]) {
      const next = zoomed(span, by, 150, 1e9);
      expect((150 - next.from) / (next.to - next.from)).toBeCloseTo(0.25);
      expect(next.to - next.from).toBeCloseTo(200 * by);
    }
    expect(zoomed(span, 1e-9, 150, 1e9).to - zoomed(span, 1e-9, 150, 1e9).from).toBe(5);
  });

  it("never loses what there is", () => {
    const all = { from: 0, to: 100 };
    expect(kept({ from: 500, to: 520 }, all)).toEqual({ from: 90, to: 110 });
    expect(kept({ from: 10, to: 20 }, all)).toEqual({ from: 10, to: 20 });
    expect(fitted(all)).toEqual({ from: -1, to: 102 });
    expect(around({ from: 0, to: 100 }, { from: 40, to: 50 })).toEqual({ from: 0, to: 100 });
    expect(around({ from: 0, to: 100 }, { from: 200, to: 210 })).toEqual({ from: 155, to: 255 });
  });

  it("follows the newest without another length", () => {
    const timeline = new Timeline();
    timeline.all = { from: 0, to: 1e7 };
    timeline.set({ from: 0, to: 1e6 });
    let told = 0;
    timeline.listeners.add(() => (told += 1));
    timeline.follow(1e7);
    expect([timeline.span, told]).toEqual([{ from: 1e7 - 97e4, to: 1e7 + 3e4 }, 1]);
  });

  it("has an axis of round numbers, as many as there is room for", () => {
    const next = random(3);
    for (let each = 0; each < 200; each += 1) {
      const from = (next() - 0.3) * 1e6;
      const span = { from, to: from + 10 ** (next() * 8) };
      const found = ticks(span, 0.1);
      expect(found.length).toBeLessThanOrEqual(11);
      expect(found.length).toBeGreaterThanOrEqual(3);
      const step = found[1]! - found[0]!;
      expect(["1", "2", "5"]).toContain(step.toExponential(2)[0]);
      const most = Math.max(...found.map(Math.abs));
      expect(new Set(found.map((at) => showTick(at, step, most))).size).toBe(found.length);
    }
  });

  it("is told in people's words", () => {
    expect([0, 3.25, 850, 12_340, 1_254_000, 125e6, -500].map(showMicros)).toEqual([
      "0 µs",
      "3.3 µs",
      "850 µs",
      "12.3 ms",
      "1.25 s",
      "2:05 min",
      "−500 µs",
    ]);
    const noon = new Date(2026, 0, 2, 12, 0, 5).getTime() / 1000;
    expect([showClock(noon, 1e6), showClock(noon + 0.25, 5e5)]).toEqual(["12:00:05", "12:00:05.250"]);
    expect([850, 70_234, 1_234_567].map(showAt)).toEqual(["850 µs", "70.23 ms", "1.23457 s"]);
    expect([showTick(1500, 500, 2000), showTick(0, 500_000, 2e6), showTick(20, 10, 90)]).toEqual([
      "1.5 ms",
      "0.0 s",
      "20 µs",
    ]);
  });
});

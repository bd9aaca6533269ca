import { describe, expect, it } from "vitest";
import { Numbers, lower, quantile } from "../../src/trace/model/columns";
import { blockAt, linksOf, neighbour } from "../../src/trace/model/find";
import { blockWords, differences, figuresOf } from "../../src/trace/model/figures";
import { Model, MOST_TRACKS } from "../../src/trace/model/model";
import { factsOf, hopWords, sentenceOf } from "../../src/trace/model/words";
import { modelOf } from "../../src/trace/model/whole";
import { block, fill, random, trace } from "./made";

const ids = (numbers: Numbers) => Array.from(numbers.data.subarray(0, numbers.size));
const nodeOf = (_walk: string, use: string) => use;

describe("numbers that grow", () => {
  it("are a list with insertions", () => {
    const next = random(1);
    const [grown, naive] = [new Numbers(1), [] as number[]];
    for (let each = 0; each < 300; each += 1) {
      const index = Math.floor(next() * (naive.length + 1));
      grown.insert(index, each);
      naive.splice(index, 0, each);
    }
    expect(ids(grown)).toEqual(naive);
  });

  it("are searched as a list is", () => {
    const rising = [1, 1, 3, 8, 8, 9];
    for (const wanted of [0, 1, 2, 8, 9, 10]) {
      const naive = rising.findIndex((value) => value >= wanted);
      expect(lower(rising.length, wanted, (at) => rising[at]!)).toBe(naive < 0 ? rising.length : naive);
    }
    expect([quantile([], 0.5), quantile([4], 0.9), quantile([1, 2, 3], 0.5), quantile([0, 10], 0.25)]).toEqual([
      0, 4, 2, 2.5,
    ]);
  });
});

describe("a lane's tracks", () => {
  it.each([1, 2, 3, 4])("hold each block once, by their starts, and overlap in the last alone (%i)", (seed) => {
    const model = new Model();
    fill(model, 400, seed);
    let held = 0;
    for (const lane of model.lanes) {
      lane.tracks.forEach((track, index) => {
        const blocks = ids(track.ids).map((id) => [model.started.at(id), model.finished.at(id)] as const);
        held += blocks.length;
        expect(blocks.every(([start], at) => at === 0 || blocks[at - 1]![0] <= start)).toBe(true);
        if (index < MOST_TRACKS - 1)
          expect(blocks.every(([start], at) => at === 0 || blocks[at - 1]![1] <= start)).toBe(true);
        let sum = 0;
        const before = blocks.map(([start, end]) => ((sum += end - start), sum - (end - start)));
        expect(ids(track.before)).toEqual(before);
        expect(track.total).toBe(sum);
      });
    }
    expect(held).toBe(400);
  });

  it.each([1, 2, 3])("are searched as a scan would (%i)", (seed) => {
    const model = new Model();
    fill(model, 300, seed);
    const next = random(seed + 9);
    for (let each = 0; each < 200; each += 1) {
      const lane = model.lanes[Math.floor(next() * model.lanes.length)]!;
      const track = Math.floor(next() * lane.tracks.length);
      const [at, reach] = [next() * 3100, next() * 30];
      const away = (id: number) => Math.max(model.started.at(id) - at, at - model.finished.at(id), 0);
      const near = ids(lane.tracks[track]!.ids)
        .map(away)
        .filter((distance) => distance <= reach);
      const found = blockAt(model, lane, track, at, reach);
      expect(found === null ? null : away(found)).toBe(near.length ? Math.min(...near) : null);
    }
  });

  it.each([1, 2])("are gone through in the order of starts (%i)", (seed) => {
    const model = new Model();
    fill(model, 300, seed);
    for (const lane of model.lanes) {
      const order = model.inLane(lane);
      const ordered = order.map((id) => [model.started.at(id), id]);
      expect(ordered).toEqual([...ordered].sort((a, b) => a[0]! - b[0]! || a[1]! - b[1]!));
      order.forEach((id, at) => {
        expect(neighbour(model, id, 1)).toBe(order[at + 1] ?? null);
        expect(neighbour(model, id, -1)).toBe(order[at - 1] ?? null);
      });
    }
  });
});

describe("a run's trace", () => {
  const model = modelOf(trace());

  it("is drawn from its beginning to its end", () => {
    expect([model.from, model.to, model.size, model.ranks]).toEqual([0, 2000, 2, [0, 1]]);
    expect(model.marks.map((mark) => mark.name)).toEqual(["requested", "started", "finished"]);
    expect(model.counters.get(0)?.pagesTotal).toBe(10);
  });

  it("says of a block what it was", () => {
    expect(sentenceOf(model, 0)).toBe("llm, call #1: 490 µs, rank 0");
    expect(sentenceOf(model, 1)).toBe("vae, iterations 5–8: 800 µs, rank 1, failed");
    const facts = Object.fromEntries(factsOf(model, 1).map(({ name, value }) => [name, value]));
    expect(facts).toMatchObject({
      Ready: "900 µs",
      "An iteration": "200 µs",
      Batch: "number 0, 1 rows",
      Failed: "yes",
    });
    expect(hopWords(model.hops[0]!)).toBe("llm.hidden -> vae.latents: rank 0 → 1, 4.0 KiB by shm, 360 µs");
  });

  it("says in which pass of a loop of steps a block was, and marks where passes begin", () => {
    const looped = modelOf(
      trace({
        passes: [
          { at: 10, first: 0, passes: [[0]] },
          { at: 900, first: 1, passes: [[1, 2]] },
        ],
      }),
    );
    looped.add(block({ started: 1000, finished: 1100, lane: 0, step: 1, runs: [looped.name("r1")] }));
    looped.add(block({ started: 1000, finished: 1100, lane: 0, step: 1, runs: [looped.name("r2")] }));
    const pass = (id: number) => factsOf(looped, id).find(({ name }) => name === "Pass")?.value;
    expect([pass(0), pass(2), pass(3)]).toEqual(["1", "2.3", undefined]);
    expect(looped.marks.map((mark) => mark.name)).toEqual(expect.arrayContaining(["pass 1", "pass 2.3"]));
    expect(factsOf(model, 0).some(({ name }) => name === "Pass")).toBe(false);
  });

  it("joins a hop to the block that made its value and to the one that read it", () => {
    expect(linksOf(model, nodeOf)).toMatchObject([{ from: 0, to: 1 }]);
    // A loop on the device tells its nodes alone: a use that another node answers for is none of these.
    expect(linksOf(model, () => "other")).toMatchObject([{ from: 0, to: null }]);
  });

  it("has the blocks of a batch together", () => {
    const both = new Model();
    both.laneOf(0, "a", ["a"], false);
    both.laneOf(0, "b", ["b"], false);
    both.laneOf(1, "c", ["c"], false);
    for (const lane of [0, 1, 2]) both.add(block({ started: 1, finished: 2, lane, number: 5 }));
    expect([both.mates(0), both.mates(2)]).toEqual([[0, 1], [2]]);
  });
});

describe("figures", () => {
  it("are those of all blocks of a lane", () => {
    const model = new Model();
    fill(model, 200, 5);
    for (const [at, row] of figuresOf(model).entries()) {
      const own = Array.from({ length: 200 }, (_, id) => id).filter((id) => model.lane.at(id) === at);
      const times = own.map((id) => (model.finished.at(id) - model.started.at(id)) / 1e3).sort((a, b) => a - b);
      expect(row.calls).toBe(own.length);
      expect(row.busy).toBeCloseTo(times.reduce((a, b) => a + b));
      expect(row.p50).toBeCloseTo(quantile(times, 0.5));
    }
  });

  it("share a launch among its iterations, and say nothing of single calls that were added up", () => {
    const model = new Model();
    model.laneOf(0, "loop", ["a"], true);
    model.laneOf(0, "a", ["a"], false);
    model.add(block({ kind: 1, started: 0, finished: 8000, count: 4 }));
    model.add(block({ kind: 2, lane: 1, started: 0, finished: 9000, count: 3, busy: 6000 }));
    expect(figuresOf(model)).toMatchObject([
      { name: "loop", loop: true, calls: 4, p50: 2, busy: 8 },
      { name: "a", calls: 3, p50: null, mean: 2, busy: 6 },
    ]);
    expect([blockWords(model, 0), blockWords(model, 1)]).toEqual(["iterations 1–4", "3 calls"]);
  });

  it("of two runs are told with the largest change first, also of nodes that only one has", () => {
    const [a, b] = [new Model(), new Model()];
    for (const model of [a, b]) model.laneOf(0, "same", ["same"], false);
    a.add(block({ started: 0, finished: 1000 }));
    b.add(block({ started: 0, finished: 3000 }));
    b.laneOf(1, "new", ["new"], false);
    b.add(block({ started: 0, finished: 9000, lane: 1 }));
    const found = differences(figuresOf(a), figuresOf(b));
    expect(found.map(({ name, busy }) => [name, busy])).toEqual([
      ["new", 9],
      ["same", 2],
    ]);
    expect(found[0]!.a).toBe(null);
  });
});

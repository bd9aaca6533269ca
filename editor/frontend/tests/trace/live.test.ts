import { describe, expect, it } from "vitest";
import type { ForwardEvent, TelemetryEvent } from "../../src/messages/frames";
import { figuresOf } from "../../src/trace/model/figures";
import { LiveTrace, MOST_BLOCKS } from "../../src/trace/model/live";
import { FOLDED, LAUNCH } from "../../src/trace/model/types";

const WALL = 1_000_000;

function forward(fields: Partial<ForwardEvent> = {}): ForwardEvent {
  return {
    type: "forward",
    rank: 0,
    number: 3,
    runs: ["r1", "r2", "r1"],
    walks: ["w", "w", "w"],
    nodes: ["llm", "llm", "head"],
    uses: ["llm", "llm", "again"],
    steps: [0, 0, 0],
    iterations: [[1], [5], [1]],
    ready: [10.0, 10.001, 10.002],
    taken: 10.003,
    launched: 10.004,
    started: 10.005,
    finished: 10.006,
    pages_free: 4,
    failed: [2],
    ...fields,
  };
}

function live(...events: TelemetryEvent[]): LiveTrace {
  const made = new LiveTrace((walk, edge) => (edge === 2 ? `${walk}: a.x -> b.x` : null));
  made.take(events, WALL);
  return made;
}

describe("live events", () => {
  it("make a block per use in a batch, with the runs that were in it", () => {
    const { model } = live(forward());
    expect(model.lanes.map((lane) => lane.name)).toEqual(["llm", "head"]);
    expect(model.size).toBe(2);
    expect(model.runs[0]!.map((run) => model.names[run])).toEqual(["r1", "r2"]);
    expect([model.count.at(0), model.batch.at(0), model.failed.has(0), model.failed.has(1)]).toEqual([
      2,
      3,
      false,
      true,
    ]);
    expect(model.started.at(0)).toBeCloseTo(2000);
    expect(model.queued.at(0)).toBeCloseTo(5000);
    expect(model.mates(0)).toEqual([0, 1]);
    expect([0, 1].map((id) => model.names[model.use.at(id)])).toEqual(["llm", "again"]);
    expect(live(forward({ uses: ["llm", "again", "head"] })).model.size).toBe(3);
    expect(model.wall).toBeCloseTo(WALL + 10.003);
  });

  it("give each part of another shard a block below the first one's, whichever comes first", () => {
    const part = (number: number, started: number): TelemetryEvent => ({
      type: "shard",
      rank: 1,
      of: 0,
      number,
      started,
      finished: started + 0.002,
    });
    const { model } = live(part(0, 10.0055), forward({ number: 0 }), forward({ number: 1 }), part(1, 10.0065));
    expect(model.lanes.map((lane) => [lane.name, lane.rank, lane.of])).toEqual([
      ["llm", 0, null],
      ["llm", 1, 0],
      ["head", 0, null],
      ["head", 1, 2],
    ]);
    const parts = model.partsOf(0);
    expect(parts.map((id) => model.laneAt(id).rank)).toEqual([0, 1]);
    expect(model.started.at(parts[1]!) - model.started.at(parts[0]!)).toBeCloseTo(500);
    expect(model.busy.at(parts[1]!)).toBeCloseTo(2000);
    expect(model.partsOf(parts[1]!)).toEqual(parts);
    expect([model.servingOf(0), model.servingOf(1)]).toEqual([null, 0]);
    expect(figuresOf(model).map((one) => [one.name, one.rank])).toEqual([
      ["llm", 0],
      ["head", 0],
    ]);
  });

  it("keep parts of shards below their lanes when older blocks go", () => {
    const trace = live(forward(), {
      type: "shard",
      rank: 1,
      of: 0,
      number: forward().number,
      started: 10.005,
      finished: 10.006,
    });
    for (let at = 0; at < MOST_BLOCKS; at += 1)
      trace.take([forward({ number: at + 10, taken: 11 + at, started: 11 + at, finished: 11.5 + at })], WALL);
    expect(trace.epoch).toBeGreaterThan(0);
    const shard = trace.model.lanes.find((lane) => lane.of !== null);
    expect(trace.model.lanes[shard!.of!]).toMatchObject({ name: shard!.name, rank: 0 });
  });

  it("tell the pass of each step", () => {
    const { model } = live({ type: "passes", run: "r1", first: 0, passes: [[4]], at: 10 }, forward());
    expect(model.passesAt(0)).toEqual([4]);
    expect(model.marks.map((mark) => mark.name)).toEqual(["pass 5"]);
  });

  it("make a block per launch of a loop", () => {
    const { model } = live({
      type: "launch",
      rank: 1,
      number: 0,
      loop: "denoise",
      nodes: ["dit"],
      uses: ["dit"],
      count: 4,
      runs: ["r1", "r2"],
      walks: ["w", "w"],
      steps: [1, 1],
      outer: [[2], []],
      first: [8, 0],
      ready: [0.9, 0.95],
      taken: 1,
      launched: 1.1,
      started: 1.2,
      finished: 1.6,
      pages_free: 0,
      spans: false,
    });
    expect(model.lanes).toMatchObject([{ name: "denoise", loop: true, rank: 1, nodes: ["dit"] }]);
    expect([model.kind.at(0), model.count.at(0), model.iteration[0]]).toEqual([LAUNCH, 4, [2, 8]]);
    expect([model.ready.at(0), model.queued.at(0)]).toEqual([expect.closeTo(-1e5), expect.closeTo(3e5)]);
  });

  it("of summary telemetry are folded; a loop's go on where the last were told", () => {
    const looping = (at: number, launches: number): TelemetryEvent => ({
      type: "looping",
      rank: 0,
      loop: "denoise",
      nodes: ["dit"],
      uses: ["dit"],
      runs: ["r1"],
      walks: ["w"],
      iterations: [[7]],
      launches,
      calls: 4,
      busy: 0.5,
      batch: 1,
      at,
      spans: false,
    });
    const { model } = live(
      {
        type: "activity",
        run: "r1",
        rank: 0,
        node: "llm",
        use: "llm",
        walk: "w",
        iteration: [3],
        calls: 5,
        busy: 0.2,
        queued: 0.1,
        launched: 1,
        finished: 1.3,
        batch: 2,
      },
      looping(2, 2),
      looping(2.3, 2),
      looping(2.4, 0),
    );
    expect(model.size).toBe(3);
    expect([0, 1, 2].map((id) => model.kind.at(id))).toEqual([FOLDED, FOLDED, FOLDED]);
    expect([1, 2].map((id) => [model.started.at(id) / 1e6, model.finished.at(id) / 1e6])).toEqual([
      [0.5, 1],
      [1, expect.closeTo(1.3)],
    ]);
    expect(model.busy.at(0)).toBeCloseTo(200_000);
  });

  it("join what left a rank and what came to another", () => {
    const where = { run: "r1", edge: 2, stream: false, step: 0, key: [4] };
    const sent = { source: 0, target: 1, walk: "w", transport: "shm", count: 1, nbytes: 10 };
    const { model } = live(
      { type: "transfer", ...where, ...sent, at: 1 },
      { type: "arrival", ...where, rank: 0, at: 1.5 },
      { type: "arrival", ...where, rank: 1, at: 2 },
      { type: "transfer", ...where, ...sent, edge: 7, at: 3 },
    );
    expect(model.hops).toMatchObject([
      { sent: 0, arrived: 1e6, edge: "w: a.x -> b.x" },
      { arrived: -1, edge: "edge 7" },
    ]);
  });

  it("that are too many lose their older half, not their lanes", () => {
    const made = new LiveTrace(() => null);
    const one = (at: number) =>
      forward({
        runs: ["r"],
        walks: ["w"],
        nodes: ["n"],
        uses: ["n"],
        iterations: [[]],
        steps: [0],
        ready: [at],
        failed: [],
        taken: at,
        launched: at,
        started: at,
        finished: at + 0.001,
        number: Math.round(at * 100),
      });
    made.take([forward()], WALL);
    for (let each = 0; each < MOST_BLOCKS; each += 1) made.take([one(11 + each * 0.01)], WALL);
    expect(made.epoch).toBe(1);
    const { model } = made;
    expect(model.size).toBeLessThan(MOST_BLOCKS * 0.6);
    expect(model.lanes.map((lane) => lane.name)).toEqual(["llm", "head", "n"]);
    expect(model.finished.at(model.size - 1)).toBeCloseTo((11 + (MOST_BLOCKS - 1) * 0.01 + 0.001 - 10.003) * 1e6, 0);
    expect(model.from).toBeGreaterThan(0);
  });
});

it("gauges are kept for the newest while", () => {
  const made = new LiveTrace(() => null);
  const gauge = (at: number) => ({ type: "rank", rank: 0, at, busy: 1, queue: 0, pages_free: 1, pages_total: 2 });
  for (let at = 0; at < 10_000; at += 1) made.take([gauge(at) as TelemetryEvent], WALL);
  const counter = made.model.counter(0);
  expect([counter.at.size, counter.busy.size]).toEqual([counter.queue.size, counter.pagesUsed.size]);
  expect(counter.at.size).toBeLessThan(5_000);
  expect(counter.at.at(counter.at.size - 1)).toBe(9_999e6);
});

it("5,000 batches a second take a small part of a core", () => {
  const made = new LiveTrace(() => null);
  const packets = Array.from({ length: 50 }, (_, packet) =>
    Array.from({ length: 100 }, (_, each) => {
      const at = 10 + packet * 0.02 + each * 0.0002;
      return forward({
        number: packet * 100 + each,
        ready: [at, at, at],
        taken: at,
        launched: at,
        started: at,
        finished: at + 0.0002,
      });
    }),
  );
  const before = process.cpuUsage();
  for (const packet of packets) made.take(packet, WALL);
  expect(made.model.size).toBe(10_000);
  // A second's events, about 50 ms where nothing else runs.
  const used = process.cpuUsage(before);
  expect((used.user + used.system) / 1000).toBeLessThan(250);
});

// Traces for tests: random ones, with everything that a trace may hold.
import type { TraceShown } from "../../src/trace/model/types";
import type { Block, Model } from "../../src/trace/model/model";

/** Numbers from 0 to 1, the same for the same seed. */
export function random(seed: number): () => number {
  let state = seed * 2654435761 + 1;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 2246822519) + 0x9e3779b9) | 0;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
}

export function block(fields: Partial<Block> & { started: number; finished: number }): Block {
  const { started, finished } = fields;
  return {
    kind: 0,
    lane: 0,
    walk: 0,
    use: -1,
    step: 0,
    iteration: [],
    count: 1,
    number: -1,
    batch: 1,
    runs: [0],
    ready: started,
    taken: started,
    launched: started,
    busy: finished - started,
    queued: 0,
    pages: -1,
    failed: false,
    ...fields,
  };
}

/** Blocks in lanes, in no order of their starts. */
export function fill(model: Model, count: number, seed: number, lanes = 3): void {
  const next = random(seed);
  model.name("w");
  for (let lane = 0; lane < lanes; lane += 1) model.laneOf(lane % 2, `n${lane}`, [`n${lane}`], false);
  for (let each = 0; each < count; each += 1) {
    const started = Math.floor(each * 10 + next() * 60);
    const finished = started + Math.floor(next() * 40);
    model.add(
      block({ started, finished, lane: Math.floor(next() * lanes), number: Math.floor(each / 2), step: each % 3 }),
    );
  }
}

export function trace(fields: Partial<TraceShown> = {}): TraceShown {
  return {
    run: "r1",
    deployment: "shapes",
    task: "draw",
    state: "done",
    level: "full",
    wall: 1000,
    seconds: 0.002,
    phases: { queued: 0, started: 10, finished: 2000 },
    error: null,
    devices: [],
    names: ["decode", "r2", "shm", "llm.hidden -> vae.latents", "llm"],
    lanes: [
      { rank: 0, name: "llm", nodes: ["llm"], loop: false },
      { rank: 1, name: "vae", nodes: ["vae"], loop: false },
    ],
    blocks: {
      kind: [0, 1],
      lane: [0, 1],
      walk: [0, 0],
      use: [4, -1],
      step: [0, 0],
      iteration: [[0], [4]],
      count: [1, 4],
      number: [0, 0],
      batch: [2, 1],
      mates: [[1], []],
      ready: [5, 900],
      taken: [8, 950],
      launched: [9, 960],
      started: [10, 1000],
      finished: [500, 1800],
      busy: [490, 800],
      queued: [5, 100],
      pages_free: [7, -1],
      failed: [false, true],
    },
    hops: {
      source: [0],
      target: [1],
      walk: [0],
      edge: [3],
      step: [0],
      key: [[0]],
      transport: [2],
      count: [1],
      nbytes: [4096],
      sent: [520],
      arrived: [880],
    },
    counters: {
      rank: [0, 0],
      at: [100, 1100],
      busy: [0.5, 1],
      queue: [0, 2],
      runs: [1, 1],
      memory_used: [1, 1],
      pages_used: [3, 4],
      pages_total: [10, 10],
    },
    loops: [],
    lost: 0,
    cut: false,
    ...fields,
  };
}

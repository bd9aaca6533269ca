// A store of nodes with a clock of its own, and the news that it is told in tests.
import { vi } from "vitest";
import type { GraphDocument } from "../../src/document/types";
import type { LoopingEvent, LoopWork, Frame, TelemetryEvent } from "../../src/messages/frames";
import { NodeStore } from "../../src/telemetry/nodes";
import { isMap, loopsAround, loopTimes, stepsOf } from "../../src/telemetry/steps";

export class Time {
  ms = 0;
  private frames: (() => void)[] = [];
  private timers: { at: number; run: () => void }[] = [];
  readonly clock = {
    now: () => this.ms,
    frame: (run: () => void) => void this.frames.push(run),
    after: (ms: number, run: () => void) => {
      const timer = { at: this.ms + ms, run };
      this.timers.push(timer);
      return () => void (this.timers = this.timers.filter((other) => other !== timer));
    },
    drawn: (run: () => void) => run(),
  };
  screen() {
    for (const run of this.frames.splice(0)) run();
  }
  pass(ms: number) {
    this.ms += ms;
    for (const timer of this.timers.filter((due) => due.at <= this.ms)) {
      this.timers = this.timers.filter((other) => other !== timer);
      timer.run();
    }
  }
  get waiting() {
    return this.frames.length + this.timers.length;
  }
}

export const GRAPH = {
  nodes: {},
  walks: {
    decode: {
      body: [{ loop: "words", times: "max_tokens - 1", body: ["llm", { loop: "parts", times: "3", body: ["mtp"] }] }],
    },
    refuse: { body: ["guard"] },
    paint: { body: ["vae"] },
  },
  tasks: { draw: { steps: [{ first: [{ walk: "refuse", when: "x" }, { walk: "decode" }] }, { walk: "paint" }] } },
} as unknown as GraphDocument;

export function made(graph: GraphDocument | null = GRAPH) {
  const time = new Time();
  const failed = vi.fn();
  const revoke = vi.fn();
  const store = new NodeStore(time.clock, {
    steps: (task) => graph && stepsOf(graph, task),
    loops: (walk, use) => graph && loopsAround(graph, walk, use),
    isMap: (walk, loop) => graph !== null && isMap(graph, walk, loop),
    shownAs: (name) => name,
    times: (walk, loop, run) => graph && loopTimes(graph, walk, loop, run === null ? {} : { max_tokens: 51 }),
    failed,
    revoke,
  });
  store.follow("shapes");
  time.screen();
  time.pass(1000);
  return { time, store, failed, revoke };
}

let seq = 0;
export function frame(...events: TelemetryEvent[]): Frame {
  seq += 1;
  const head = { deployment: "shapes", seq, source: "rank 0.0", first: 0, dropped: 0, wall: 0 };
  return { type: "events", ...head, events };
}

export function activity(fields: Partial<Extract<TelemetryEvent, { type: "activity" }>> = {}): TelemetryEvent {
  const where = { run: "r1", rank: 0, node: "llm", use: fields.node ?? "llm", walk: "decode", iteration: [3] };
  return {
    type: "activity",
    ...where,
    calls: 2,
    busy: 0.02,
    queued: 0,
    launched: 1,
    finished: 2,
    batch: 1,
    ...fields,
  };
}

export function looping(fields: Partial<LoopingEvent> = {}): TelemetryEvent {
  const uses = fields.nodes ?? ["llm"];
  const what = { loop: "words", nodes: ["llm"], uses, runs: ["r1"], walks: ["decode"], iterations: [[4]] };
  return {
    type: "looping",
    rank: 0,
    ...what,
    launches: 1,
    calls: 4,
    busy: 0.02,
    batch: 1,
    at: 1,
    spans: false,
    ...fields,
  };
}

/** The totals of a loop whose iterations call each of these nodes once. */
export function work(nodes: string[], calls: number, busy: number, spans = false): LoopWork {
  return { nodes, uses: nodes, calls: nodes.map(() => calls), spans, busy, queued: 0, began: 1, batch: 1 };
}

export function ended(
  iterations: number,
  reason = "bound",
  run = "r1",
  work: LoopWork | null = null,
): TelemetryEvent {
  const where = { run, rank: 0, walk: "decode", loop: "words", step: 0, iteration: [] };
  return { type: "loop_ended", ...where, iterations, reason, at: 2, work };
}

export function phase(
  name: "queued" | "started" | "finished",
  error: string | null = null,
  run = "r1",
): TelemetryEvent {
  return { type: "run", run, task: "draw", phase: name, at: 0, error };
}

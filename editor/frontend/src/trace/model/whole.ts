// A model from a run's whole trace. Pure.
import { Model } from "./model";
import type { TraceShown } from "./types";
import { PHASES } from "./words";

export function modelOf(trace: TraceShown): Model {
  const model = new Model();
  model.wall = trace.wall;
  for (const name of trace.names) model.name(name);
  const own = model.name(trace.run);
  const ordered = trace.lanes.map((lane) => model.laneOf(lane.rank, lane.name, lane.nodes, lane.loop, lane.spans));
  addBlocks(model, trace, own, ordered);
  addParts(model, trace);
  addHops(model, trace);
  addCounters(model, trace);
  for (const [phase, at] of Object.entries(trace.phases))
    model.addMark({ at, name: PHASES[phase] ?? phase, run: trace.run });
  for (const passes of trace.passes ?? []) model.addPasses(trace.run, passes);
  model.reach(0, Math.max(trace.seconds * 1e6, 1));
  return model;
}

function addBlocks(model: Model, { blocks, names }: TraceShown, own: number, lanes: number[]): void {
  // Equal names are one name of the model.
  const known = names.map((name) => model.name(name));
  for (let row = 0; row < blocks.started.length; row += 1) {
    model.add({
      kind: blocks.kind[row]!,
      lane: lanes[blocks.lane[row]!]!,
      walk: known[blocks.walk[row]!]!,
      // Traces that were kept before uses were told have none.
      use: known[blocks.use[row] ?? -1] ?? -1,
      step: blocks.step[row]!,
      iteration: blocks.iteration[row]!,
      count: blocks.count[row]!,
      number: blocks.number[row]!,
      batch: blocks.batch[row]!,
      runs: [own, ...blocks.mates[row]!.map((mate) => known[mate]!)],
      ready: blocks.ready[row]!,
      taken: blocks.taken[row]!,
      launched: blocks.launched[row]!,
      started: blocks.started[row]!,
      finished: blocks.finished[row]!,
      busy: blocks.busy[row]!,
      queued: blocks.queued[row]!,
      pages: blocks.pages_free[row]!,
      failed: blocks.failed[row]!,
    });
  }
}

function addParts(model: Model, { shards }: TraceShown): void {
  if (!shards?.number.length) return;
  const batches = new Map<string, number[]>();
  for (let id = 0; id < model.size; id += 1) {
    const key = `${model.laneAt(id).rank} ${model.number.at(id)}`;
    const batch = batches.get(key);
    if (batch) batch.push(id);
    else batches.set(key, [id]);
  }
  for (let row = 0; row < shards.number.length; row += 1) {
    const [rank, started, finished] = [shards.rank[row]!, shards.started[row]!, shards.finished[row]!];
    for (const id of batches.get(`${shards.of[row]} ${shards.number[row]}`) ?? [])
      model.addPart(id, { rank, started, finished });
  }
}

function addHops(model: Model, { hops, names, run }: TraceShown): void {
  for (let row = 0; row < hops.sent.length; row += 1) {
    model.addHop({
      source: hops.source[row]!,
      target: hops.target[row]!,
      run,
      walk: names[hops.walk[row]!] ?? "",
      edge: names[hops.edge[row]!] ?? "",
      step: hops.step[row]!,
      key: hops.key[row]!,
      transport: names[hops.transport[row]!] ?? "",
      count: hops.count[row]!,
      nbytes: hops.nbytes[row]!,
      sent: hops.sent[row]!,
      arrived: hops.arrived[row]!,
    });
  }
}

function addCounters(model: Model, { counters }: TraceShown): void {
  for (let row = 0; row < counters.at.length; row += 1) {
    const counter = model.counter(counters.rank[row]!);
    counter.at.push(counters.at[row]!);
    counter.busy.push(counters.busy[row]!);
    counter.queue.push(counters.queue[row]!);
    counter.pagesUsed.push(counters.pages_used[row]!);
    counter.pagesTotal = counters.pages_total[row]!;
  }
}

// Texts of the trace page for blocks, hops and runs. Pure.
import { showBytes } from "../../ui/words";
import { blockWords } from "./figures";
import type { Hop, Model } from "./model";
import { showAt, showMicros } from "./span";
import { FOLDED, LAUNCH, type WhyKind } from "./types";
import { strings } from "../../strings";

export const KINDS: Record<WhyKind, { label: string; about: string }> = {
  admission: { label: strings.trace.admission, about: strings.trace.waitedToBeAdmittedOther },
  queue: { label: strings.trace.queue, about: strings.trace.readyWaitingForABatch },
  launch: { label: strings.trace.launch, about: strings.trace.theHostPreparedAndLaunched },
  compute: { label: strings.trace.compute, about: strings.trace.theDeviceComputed },
  transfer: { label: strings.trace.transfer, about: strings.trace.valuesMovedBetweenRanks },
  wait: { label: strings.trace.wait, about: strings.trace.noneOfItRanPython },
};

/** The marks of a run, by name. */
export const PHASES: Readonly<Record<string, string>> = {
  queued: strings.trace.requested,
  started: "started",
  first_output: strings.trace.firstOutput,
  finished: "finished",
};

export const LEVELS = {
  off: strings.trace.nothingIsReportedAndNothing,
  summary: strings.trace.whatEachNodeDidSummed,
  full: strings.trace.everyBatchLaunchAndTransfer,
} as const;

export interface Fact {
  name: string;
  value: string;
}

/** All that is known of a block. */
export function factsOf(model: Model, id: number): Fact[] {
  const lane = model.laneAt(id);
  const kind = model.kind.at(id);
  const at = (column: "ready" | "taken" | "launched" | "started" | "finished") => showAt(model[column].at(id));
  const count = model.count.at(id);
  const busy = model.busy.at(id);
  const facts: Fact[] = [
    { name: strings.trace.rank, value: String(lane.rank) },
    { name: strings.trace.walk, value: model.names[model.walk.at(id)] || "–" },
  ];
  const use = useOf(model, id);
  if (use !== null && use !== lane.name) facts.push({ name: strings.trace.called, value: use });
  const fact = (name: string, value: string) => facts.push({ name, value });
  if (model.step.at(id) >= 0) fact(strings.trace.step, String(model.step.at(id) + 1));
  const passes = model.passesAt(id);
  if (passes.length) fact(strings.trace.pass2, passes.map((index) => index + 1).join("."));
  if (model.iteration[id]!.length)
    fact(strings.trace.iteration, model.iteration[id]!.map((index) => index + 1).join("."));
  if (kind === FOLDED) {
    fact(strings.trace.from, at("started"));
    fact(strings.trace.to, at("finished"));
    fact(strings.trace.busy, strings.trace.over(showMicros(busy), count));
    fact(strings.trace.queued, showMicros(model.queued.at(id)));
  } else {
    fact(strings.trace.ready, at("ready"));
    fact(strings.trace.batchFormed, `${at("taken")}  (+${showMicros(model.taken.at(id) - model.ready.at(id))})`);
    fact(strings.trace.launched, `${at("launched")}  (+${showMicros(model.launched.at(id) - model.taken.at(id))})`);
    fact(strings.trace.started, at("started"));
    fact(strings.trace.finished, at("finished"));
    fact(strings.trace.took, showMicros(busy));
    if (kind === LAUNCH && count > 1) fact(strings.trace.anIteration, showMicros(busy / count));
    fact(strings.trace.batch, strings.trace.numberRows(model.number.at(id), model.batch.at(id)));
  }
  if (model.pages.at(id) >= 0) fact(strings.trace.pagesFreeAfter, String(model.pages.at(id)));
  if (model.failed.has(id)) fact(strings.trace.failed, "yes");
  return facts;
}

/** Name of the use that a block is of; null of a loop. */
function useOf(model: Model, id: number): string | null {
  return model.names[model.use.at(id)] ?? null;
}

/** `dit, iterations 5–8: 12.1 ms, rank 0`. */
export function sentenceOf(model: Model, id: number): string {
  const lane = model.laneAt(id);
  const failed = model.failed.has(id) ? ", failed" : "";
  return strings.trace.rankWithFailed(
    lane.name,
    blockWords(model, id),
    showMicros(model.busy.at(id)),
    lane.rank,
    failed,
  );
}

export function hopWords(hop: Hop): string {
  const took = hop.arrived >= 0 ? `, ${showMicros(hop.arrived - hop.sent)}` : "";
  return strings.trace.rankWithTook(hop.edge, hop.source, hop.target, showBytes(hop.nbytes), hop.transport, took);
}

/** At most three figures of milliseconds. */
export function showMs(ms: number | null): string {
  return ms === null ? "–" : showMicros(ms * 1000);
}

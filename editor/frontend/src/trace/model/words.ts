// What the trace page says of a block, a hop, a run. Pure.
import { showBytes } from "../../ui/words";
import { blockWords } from "./figures";
import type { Hop, Model } from "./model";
import { showAt, showMicros } from "./span";
import { FOLDED, LAUNCH, type WhyKind } from "./types";

export const KINDS: Record<WhyKind, { label: string; about: string }> = {
  admission: { label: "Admission", about: "waited to be let in: other runs held the memory it needs" },
  queue: { label: "Queue", about: "ready, and waited for a batch of its rank" },
  launch: { label: "Launch", about: "the host prepared and launched the work" },
  compute: { label: "Compute", about: "the device worked on it" },
  transfer: { label: "Transfer", about: "values were on their way between ranks" },
  wait: { label: "Wait", about: "nothing of it ran: Python between steps, streams, what was not told" },
};

/** Of a run, as marks name them. */
export const PHASES: Readonly<Record<string, string>> = {
  queued: "asked for",
  started: "started",
  first_output: "first output",
  finished: "finished",
};

export const LEVELS = {
  off: "Nothing is told: costs nothing. The canvas and this page stand still.",
  summary: "What each node did, added up a few times a second: below 1 % of a step.",
  full: "Every batch, launch and transfer with its times. Needed for “Why slow” with a path.",
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
    { name: "Rank", value: String(lane.rank) },
    { name: "Walk", value: model.names[model.walk.at(id)] || "–" },
  ];
  const use = useOf(model, id);
  if (use !== null && use !== lane.name) facts.push({ name: "Called as", value: use });
  const fact = (name: string, value: string) => facts.push({ name, value });
  if (model.step.at(id) >= 0) fact("Step", String(model.step.at(id) + 1));
  if (model.iteration[id]!.length) fact("Iteration", model.iteration[id]!.map((index) => index + 1).join("."));
  if (kind === FOLDED) {
    fact("From", at("started"));
    fact("To", at("finished"));
    fact("Busy", `${showMicros(busy)} over ${count}`);
    fact("Queued", showMicros(model.queued.at(id)));
  } else {
    fact("Ready", at("ready"));
    fact("Batch formed", `${at("taken")}  (+${showMicros(model.taken.at(id) - model.ready.at(id))})`);
    fact("Launched", `${at("launched")}  (+${showMicros(model.launched.at(id) - model.taken.at(id))})`);
    fact("Started", at("started"));
    fact("Finished", at("finished"));
    fact("Took", showMicros(busy));
    if (kind === LAUNCH && count > 1) fact("An iteration", showMicros(busy / count));
    fact("Batch", `number ${model.number.at(id)}, ${model.batch.at(id)} rows`);
  }
  if (model.pages.at(id) >= 0) fact("Pages free after", String(model.pages.at(id)));
  if (model.failed.has(id)) fact("Failed", "yes");
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
  return `${lane.name}, ${blockWords(model, id)}: ${showMicros(model.busy.at(id))}, rank ${lane.rank}${failed}`;
}

export function hopWords(hop: Hop): string {
  const took = hop.arrived >= 0 ? `, ${showMicros(hop.arrived - hop.sent)}` : "";
  return `${hop.edge}: rank ${hop.source} → ${hop.target}, ${showBytes(hop.nbytes)} by ${hop.transport}${took}`;
}

/** At most three figures of milliseconds. */
export function showMs(ms: number | null): string {
  return ms === null ? "–" : showMicros(ms * 1000);
}

// Which step keeps what a later one reads in a state: an order that no wire draws. Pure.
import { branchOf, BRANCHES, type Steps } from "../../document/edits/parts/steps";
import { declaredFor } from "../../document/ports";
import { exclusive, factsOf, isInside, sideBySide, type Facts } from "../../document/routes";
import { isBranch, type Entry } from "../../document/tree";
import type { GraphDocument, Step } from "../../document/types";
import type { Catalogue } from "../../messages/answers";
import type { Dependency } from "../shapes/types";

export interface Access {
  state: string;
  reads: boolean;
  writes: boolean;
}

/** `to` reads what `from` left in the state. */
interface Pair {
  from: Entry;
  to: Entry;
  state: string;
}

interface Kept {
  pairs: Pair[];
  /** State -> the steps that read what it held before the Walk. */
  entering: Map<string, Entry[]>;
  /** State -> what wrote it last; `whole`: what it held before the Walk was read first, or is gone. */
  leaving: Map<string, { last: Entry[]; whole: boolean }>;
}

/** The effect of a use or a fork on states, given the ports that are connected in the Walk. */
export function accessesOf(graph: GraphDocument, catalogue: Catalogue, facts: Facts, entry: Entry): Access[] {
  if (entry.kind === "fork") {
    const { fork, into } = entry.item as { fork: string; into: string };
    return [
      { state: fork, reads: true, writes: false },
      { state: into, reads: false, writes: true },
    ];
  }
  const node = entry.kind === "use" ? graph.nodes?.[entry.node] : undefined;
  return (declaredFor(catalogue, node)?.states ?? []).flatMap(({ slot, access, appends }): Access[] => {
    const state = node?.states?.[slot];
    if (!state) return [];
    const fed = appends.filter(({ port }) => facts.feeds.has(`${entry.name}.${port}`));
    const only = fed.length ? fed.every(({ scratch }) => scratch) : access === "read";
    return [{ state, reads: true, writes: !only }];
  });
}

/** Between the steps of one Walk, by the pieces that show them. */
export function dependenciesIn(
  graph: GraphDocument,
  catalogue: Catalogue,
  walk: string,
  seen: ReadonlyMap<string, string>,
): Dependency[] {
  const body = graph.walks?.[walk];
  if (!body) return [];
  const { pairs } = keptIn(graph, catalogue, factsOf(body));
  return gathered(
    pairs.map(({ from, to, state }) => ({ source: seen.get(from.id), target: seen.get(to.id), state })),
  );
}

/** Between nodes: within each Walk, and from Walk to Walk in the order of the tasks' steps. */
export function dependenciesAmong(graph: GraphDocument, catalogue: Catalogue): Dependency[] {
  const kept = new Map(
    Object.entries(graph.walks ?? {}).map(([name, walk]) => [name, keptIn(graph, catalogue, factsOf(walk))]),
  );
  const found: { source: string; target: string; state: string }[] = [];
  const add = (source: string, target: string, state: string) => {
    const turned = found.some((one) => one.state === state && one.source === target && one.target === source);
    if (source !== target && !turned) found.push({ source, target, state });
  };
  const scoped = (state: string, scopes: readonly string[]) => scopes.includes(graph.states?.[state]?.scope ?? "run");
  const pass = (name: string, held: Held): Held => {
    const walk = kept.get(name);
    if (!walk) return held;
    for (const [state, readers] of walk.entering)
      for (const reader of readers)
        if (reader.kind === "use") for (const node of held.get(state) ?? []) add(node, reader.node, state);
    for (const { from, to, state } of walk.pairs)
      if (to.kind === "use") for (const node of writersOf(from, walk, held)) add(node, to.node, state);
    const after = new Map(held);
    for (const [state, { last, whole }] of walk.leaving) {
      if (!scoped(state, ["run", "session"])) continue;
      const writers = last.flatMap((entry) => writersOf(entry, walk, held));
      after.set(state, [...new Set([...(whole ? [] : (held.get(state) ?? [])), ...writers])]);
    }
    return after;
  };
  for (const walk of kept.keys()) pass(walk, new Map());
  let held: Held = new Map();
  for (const task of Object.values(graph.tasks ?? {})) {
    held = new Map([...held].filter(([state]) => scoped(state, ["session"])));
    for (const steps of lists(task.steps)) held = through(steps, held, pass);
  }
  return gathered(found.map((one) => ({ ...one, source: `node:${one.source}`, target: `node:${one.target}` })));
}

/** State -> the nodes that wrote what it holds. */
type Held = ReadonlyMap<string, readonly string[]>;

function keptIn(graph: GraphDocument, catalogue: Catalogue, facts: Facts): Kept {
  const written = new Map<string, Entry[]>();
  const kept: Kept = { pairs: [], entering: new Map(), leaving: new Map() };
  for (const entry of facts.list) {
    const accesses = accessesOf(graph, catalogue, facts, entry);
    for (const { state, reads } of accesses) {
      if (!reads) continue;
      const { last, whole } = latest(written.get(state) ?? [], entry);
      kept.pairs.push(...last.map((from) => ({ from, to: entry, state })));
      if (!whole) kept.entering.set(state, [...(kept.entering.get(state) ?? []), entry]);
    }
    for (const { state, writes } of accesses) if (writes) written.set(state, [...(written.get(state) ?? []), entry]);
  }
  for (const [state, writers] of written) kept.leaving.set(state, latest(writers, null));
  return kept;
}

/** The writers whose work `reader` finds, or whoever comes after the Walk; those before one that always runs are in it. */
function latest(writers: readonly Entry[], reader: Entry | null): { last: Entry[]; whole: boolean } {
  const last: Entry[] = [];
  for (const writer of writers.toReversed()) {
    if (reader && (writer === reader || apart(writer, reader))) continue;
    if (last.some((later) => !apart(later, writer) && runsWith(later, writer))) continue;
    last.push(writer);
    if (runsWith(writer, reader)) return { last, whole: true };
  }
  return { last, whole: false };
}

function apart(a: Entry, b: Entry): boolean {
  return exclusive(a, b) || sideBySide(a, b);
}

/** True if `entry` runs wherever `other` does; null: wherever the Walk does. */
function runsWith(entry: Entry, other: Entry | null): boolean {
  for (let at: Entry | null = entry; at && !(other && isInside(other, at)); at = at.parent)
    if (isBranch(at.kind) || (at.item as { when?: unknown }).when != null) return false;
  return true;
}

/** The nodes whose work a step left: of a fork those of what it copied. */
function writersOf(entry: Entry, kept: Kept, held: Held): string[] {
  if (entry.kind === "use") return [entry.node];
  const { fork } = entry.item as { fork: string };
  const before = kept.entering.get(fork)?.includes(entry) ? (held.get(fork) ?? []) : [];
  const within = kept.pairs.flatMap((pair) => (pair.to === entry ? writersOf(pair.from, kept, held) : []));
  return [...before, ...within];
}

function lists(steps: Steps | undefined): (readonly Step[])[] {
  if (Array.isArray(steps)) return [steps];
  return typeof steps === "object" && steps !== null ? Object.values(steps).filter(Array.isArray) : [];
}

/** The contents of states after the steps; of several ways that exclude each other, what any of them leaves. */
function through(steps: readonly Step[], held: Held, pass: (walk: string, held: Held) => Held): Held {
  return steps.reduce((now, step) => {
    if (typeof step !== "object" || step === null) return now;
    if ("walk" in step) return pass(step.walk, now);
    const ways = waysOf(step).map((way) => through(way, now, pass));
    return ways.length ? either([now, ...ways]) : now;
  }, held);
}

function waysOf(step: Step): (readonly Step[])[] {
  if ("first" in step) return lists(step.first).flatMap((list) => list.map((one) => [one]));
  if ("loop" in step) return lists(step.loop);
  if ("for" in step) return BRANCHES.flatMap((kind) => lists(branchOf(step, kind)));
  return "choose" in step ? [...lists(step.cases), ...lists(step.otherwise ?? [])] : [];
}

function either(all: readonly Held[]): Held {
  const found = new Map<string, string[]>();
  for (const held of all)
    for (const [state, nodes] of held) found.set(state, [...new Set([...(found.get(state) ?? []), ...nodes])]);
  return found;
}

/** One for each two pieces, with all states between them. */
function gathered(
  all: readonly { source: string | undefined; target: string | undefined; state: string }[],
): Dependency[] {
  const found = new Map<string, Dependency>();
  for (const { source, target, state } of all) {
    if (source === undefined || target === undefined || source === target) continue;
    const id = `${source}>${target}`;
    const before = found.get(id)?.states ?? [];
    found.set(id, { id, source, target, states: [...new Set([...before, state])] });
  }
  return [...found.values()];
}

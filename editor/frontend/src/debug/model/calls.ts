// The calls that a paused run is held before: their order, in words, and where the graph shows them. Pure.
import { factsOf } from "../../document/routes";
import { isLoop, type Entry } from "../../document/tree";
import type { Fork, GraphDocument } from "../../document/types";
import type { Located } from "../../store/locate";
import { isAt, type Spot } from "./breaks";
import type { HeldCall, SampleEvent } from "../../messages/frames";
import { cacheWords } from "../../taps/looks";
import { strings } from "../../strings";

export type Place = Pick<Located, "tab" | "canvas" | "selection">;

/** As the service takes them: `step` without a call makes the first of these. */
export function inOrder(held: readonly HeldCall[]): HeldCall[] {
  return [...held].sort((a, b) => a.rank - b.rank || a.step - b.step || lexical(a.iteration, b.iteration));
}

export function lexical(a: readonly number[], b: readonly number[]): number {
  for (let depth = 0; depth < Math.min(a.length, b.length); depth += 1)
    if (a[depth] !== b[depth]) return a[depth]! - b[depth]!;
  return a.length - b.length;
}

export function keyOfCall({ rank, walk, use, step, iteration, loop }: HeldCall): string {
  return [rank, walk, use, loop, step, iteration.join(".")].join(" ");
}

/** The next call; names are in backticks. */
export function nameOfCall({ use, node, loop }: HeldCall): string {
  if (loop) return strings.debug.theLoop(loop);
  const [move, state = ""] = moved(use);
  if (move === "fork") return strings.debug.theFork(state.replace(">", "` into `"));
  if (move === "export") return strings.debug.sendingTheStateToAnother(state);
  if (move === "import") return strings.debug.takingTheStateFromAnother(state);
  return use === node ? `\`${use}\`` : `\`${use}\` (${node})`;
}

/** Kind and states of a use that moves a state, such as `fork:main>copy`. */
function moved(use: string): [kind: string, state?: string] {
  const at = use.indexOf(":");
  return at < 0 ? [""] : [use.slice(0, at), use.slice(at + 1)];
}

/** Counted from 1, outermost loop first: `3 · 1`. */
export function showIteration(iteration: readonly number[]): string {
  return iteration.map((index) => index + 1).join(" · ");
}

/** `Walk decode, step 2, iteration 3 · 1, rank 0`. */
export function placeOfCall(call: Pick<HeldCall, "walk" | "step" | "iteration" | "rank">, ranks = true): string {
  return [
    strings.debug.walk(call.walk),
    strings.debug.step(call.step + 1),
    call.iteration.length ? strings.debug.iterationWithIteration(showIteration(call.iteration)) : "",
    ranks ? strings.debug.rank(call.rank) : "",
  ]
    .filter(Boolean)
    .join(", ");
}

/** The next call of a run: the one at its breakpoint, else the first that is not a device loop. */
export function nextOf(held: readonly HeldCall[], spot: Spot | null): HeldCall | null {
  const calls = inOrder(held);
  const single = calls.filter((call) => !call.loop);
  return (spot && single.find((call) => isAt(call, spot))) ?? single[0] ?? calls[0] ?? null;
}

/** How a paused run stands, in a line; `more`: calls held beside the next. */
export function pausedWords(next: HeldCall | null, more: number): string {
  if (!next) return strings.debug.finishingTheCallsThatAlready;
  const words = next.loop ? strings.debug.in(nameOfCall(next)) : strings.debug.beforeWithNext(nameOfCall(next));
  return more ? strings.debug.andMore(words, more) : words;
}

/** The item of a Walk that is about to be called; null where the open graph has none such. */
export function entryOf(
  graph: GraphDocument,
  { walk, use, loop }: Pick<HeldCall, "walk" | "use" | "loop">,
): Entry | null {
  const found = graph.walks?.[walk];
  if (!found) return null;
  const facts = factsOf(found);
  const [move, state = ""] = moved(use);
  if (move) return facts.list.find((entry) => isFork(entry, state.split(">"))) ?? null;
  const own = facts.uses.get(use);
  if (own && !loop) return own;
  return facts.list.find((entry) => isLoop(entry.kind) && entry.name === loop) ?? own ?? null;
}

/** `[from]` is as good as `[from, into]`: a state that goes to another rank is named alone. */
function isFork(entry: Entry, names: readonly string[]): boolean {
  if (entry.kind !== "fork") return false;
  const { fork, into } = entry.item as Fork;
  return names.length === 1 ? names[0] === fork || names[0] === into : names[0] === fork && names[1] === into;
}

/** True if it has inputs; null if the open graph doesn't say. */
export function isFed(graph: GraphDocument, { walk, use, loop }: HeldCall): boolean | null {
  const found = graph.walks?.[walk];
  if (!found) return null;
  const { routes } = factsOf(found);
  return routes.some(({ target }) => (loop ? target.entry?.loops.includes(loop) : target.name === use));
}

/** The contents of a state from its sample: for a cache its sequences, tokens and pages. */
export function stateWords({ dtype, shape }: Pick<SampleEvent, "dtype" | "shape">): string | null {
  if (dtype === "absent") return strings.debug.holdsNoCallYet;
  return dtype === "cache" ? cacheWords(shape) : null;
}

/** Where the graph shows it; null where the open graph has no such place. */
export function locateCall(graph: GraphDocument, call: HeldCall): Place | null {
  const entry = entryOf(graph, call);
  if (entry) return { tab: "graph", canvas: { kind: "walk", walk: call.walk, inside: null }, selection: [entry.id] };
  if (call.node in (graph.nodes ?? {}))
    return { tab: "graph", canvas: { kind: "components" }, selection: [`node:${call.node}`] };
  return null;
}

/** Where the values of `use.port` or `@in.name` leave: the edge, where there is one, else what makes them. */
export function locateSource(graph: GraphDocument, walk: string, source: string): Place | null {
  const found = graph.walks?.[walk];
  if (!found) return null;
  const canvas = { kind: "walk", walk, inside: null } as const;
  const facts = factsOf(found);
  const into = facts.merging.filter((route) => route.from === source);
  const edges = [
    ...facts.routes.filter((route) => route.from === source).map((route) => `edge:${route.index}`),
    ...into.map((route) => `into:${route.index}:${route.target.name}`),
  ];
  if (edges.length) return { tab: "graph", canvas, selection: edges };
  if (source.startsWith("@in.")) return { tab: "graph", canvas, selection: ["@in"] };
  const entry = facts.uses.get(source.split(".", 1)[0]!);
  return entry ? { tab: "graph", canvas, selection: [entry.id] } : null;
}

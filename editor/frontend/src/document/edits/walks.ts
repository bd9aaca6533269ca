// Walks, their inputs, outputs and results.
import { freshName, readLink, readResult, splitReference, type Collect } from "../names";
import { MODALITIES, parseType } from "../typing";
import { endOf, factsOf, mapLeft } from "../routes";
import type { GraphDocument, Layout, ResultFrom, Task, Walk, WalkStep } from "../types";
import {
  changeTask,
  changeTasks,
  changeWalk,
  freeName,
  linksOf,
  own,
  streamsOf,
  walkOf,
  withEdges,
} from "./parts/document";
import {
  EditRefused,
  kept,
  mappedList,
  sentence,
  withAfter,
  withKey,
  withMoved,
  withPart,
  withRenamed,
  withSection,
  withWalkPart,
} from "./parts/records";
import { mergedWith, withoutReferences } from "./parts/merges";
import { mapReferences } from "./parts/references";
import { answersOf, mapSteps, stepsOf, withoutShown, withoutSteps } from "./parts/steps";
import { strings } from "../../strings";

// ── Walks ───────────────────────────────────────────────────────────────────────────────────────

export function addWalk(graph: GraphDocument, name?: string): { graph: GraphDocument; name: string } {
  const taken = walkNames(graph);
  if (name !== undefined) freeName(strings.document.aWalk, name, taken);
  const chosen = name ?? freshName("walk", taken);
  return { graph: withSection(graph, "walks", { ...graph.walks, [chosen]: { body: [] } as Walk }), name: chosen };
}

/** Another name for a Walk, followed in streams, in steps and in what later steps bind of it. */
export function renameWalk(graph: GraphDocument, from: string, to: string): GraphDocument {
  if (from === to) return graph;
  walkOf(graph, from);
  freeName(strings.document.aWalk, to, walkNames(graph));
  const made = withSection(graph, "walks", withRenamed(graph.walks!, from, to));
  const layout = made.layout as Layout | undefined;
  const placed = layout?.walks
    ? withSection(made, "layout", withKey(layout, "walks", withRenamed(layout.walks, from, to)))
    : made;
  const streams = mappedList(streamsOf(placed), (stream) =>
    withKey(
      stream,
      "walks",
      mappedList(stream.walks, (walk) => (walk === from ? to : walk)),
    ),
  );
  const streamed = placed.streams ? withSection(placed, "streams", streams) : placed;
  return changeTasks(streamed, (task, name) => {
    if (answersOf(task.steps).includes(to)) throw new EditRefused(strings.document.taskCallsAnAnswer(name, to));
    const change = (step: WalkStep) => {
      if (step.as === to && step.walk !== from)
        throw new EditRefused(strings.document.taskCallsAStep(name, step.walk, to));
      const bound = step.with && withBindings(step.with, (owner) => (owner === from ? to : owner));
      const renamed = bound === step.with ? step : { ...step, with: bound! };
      return renamed.walk === from ? { ...renamed, walk: to } : renamed;
    };
    const steps = mapSteps(task.steps, change, (value) => withOwner(value, (owner) => (owner === from ? to : owner)));
    return withKey(task, "steps", steps);
  });
}

/** Take a Walk away, with its steps in tasks and its part in streams; a stream that nobody writes then goes too. */
export function removeWalk(graph: GraphDocument, name: string): GraphDocument {
  walkOf(graph, name);
  const made = withSection(graph, "walks", withKey(graph.walks!, name, undefined));
  const stepped = changeTasks(made, (task) => {
    const gone = ownNames(task, name);
    const steps = withoutSteps(task.steps, (step) => step.walk === name);
    return withKey(
      task,
      "steps",
      withoutShown(steps, (result) => gone.has(splitReference(result)[0])),
    );
  });
  const layout = stepped.layout as Layout | undefined;
  const placed = layout?.walks
    ? withSection(stepped, "layout", withPart(layout, "walks", withKey(layout.walks, name, undefined)))
    : stepped;
  const gone = streamsOf(placed).filter((stream) => stream.walks.every((walk) => walk === name));
  const streams = streamsOf(placed)
    .filter((stream) => !gone.includes(stream))
    .map((stream) =>
      stream.walks.includes(name) ? { ...stream, walks: stream.walks.filter((walk) => walk !== name) } : stream,
    );
  const streamed = streamsOf(placed).some((stream) => stream.walks.includes(name))
    ? withSection(placed, "streams", streams)
    : placed;
  const lost = new Set(gone.map((stream) => `@stream.${stream.name}`));
  return Object.keys(streamed.walks ?? {}).reduce(
    (changed, walk) =>
      changeWalk(changed, walk, (body) =>
        withEdges(
          body,
          kept(linksOf(body), (link) => !lost.has(readLink(link).from)),
        ),
      ),
    streamed,
  );
}

/** A copy right after the Walk, with its layout. */
export function duplicateWalk(graph: GraphDocument, walk: string): { graph: GraphDocument; name: string } {
  const name = freshName(walk, walkNames(graph));
  const made = withSection(graph, "walks", withAfter(graph.walks!, walk, name, walkOf(graph, walk)));
  const layout = made.layout as Layout | undefined;
  const own = layout?.walks?.[walk];
  if (!layout || !own) return { graph: made, name };
  const walks = { ...layout.walks, [name]: own };
  return { graph: withSection(made, "layout", { ...layout, walks }), name };
}

/** Put a Walk at another position among the Walks. */
export function moveWalk(graph: GraphDocument, walk: string, index: number): GraphDocument {
  walkOf(graph, walk);
  return withSection(graph, "walks", withMoved(graph.walks!, walk, index));
}

export function setWalkLabel(graph: GraphDocument, walk: string, label: string): GraphDocument {
  return changeWalk(graph, walk, (body) => withWalkPart(body, "label", label || undefined));
}

// ── inputs ──────────────────────────────────────────────────────────────────────────────────────

export function addInput(graph: GraphDocument, walk: string, name: string, type: string): GraphDocument {
  freeName(strings.document.anInput, name, Object.keys(walkOf(graph, walk).inputs ?? {}));
  checkType(type);
  return changeWalk(graph, walk, (body) => withWalkPart(body, "inputs", { ...body.inputs, [name]: type }));
}

/** Change the type of an input. */
export function setInput(graph: GraphDocument, walk: string, name: string, type: string): GraphDocument {
  inputOf(graph, walk, name);
  checkType(type);
  return changeWalk(graph, walk, (body) => withWalkPart(body, "inputs", withKey(body.inputs!, name, type)));
}

/** Another name for an input, followed in edges and in the steps that bind it. */
export function renameInput(graph: GraphDocument, walk: string, from: string, to: string): GraphDocument {
  if (from === to) return graph;
  inputOf(graph, walk, from);
  freeName(strings.document.anInput, to, Object.keys(walkOf(graph, walk).inputs!));
  const made = changeWalk(graph, walk, (body) => withWalkPart(body, "inputs", withRenamed(body.inputs!, from, to)));
  const wired = mapReferences(made, walk, (reference, side) =>
    side === "source" && reference === `@in.${from}` ? `@in.${to}` : reference,
  );
  return changeBindings(wired, walk, (bound) => withRenamed(bound, from, to));
}

/** Take an input away, with its edges and the bindings of steps to it. */
export function removeInput(graph: GraphDocument, walk: string, name: string): GraphDocument {
  inputOf(graph, walk, name);
  const reference = `@in.${name}`;
  const made = changeWalk(
    withoutReferences(graph, walk, (each) => each === reference),
    walk,
    (body) => withWalkPart(body, "inputs", withKey(body.inputs!, name, undefined)),
  );
  return changeBindings(made, walk, (bound) => withKey(bound, name, undefined));
}

/** The bindings of a Walk's inputs in its steps. */
function changeBindings(
  graph: GraphDocument,
  walk: string,
  change: (bound: NonNullable<WalkStep["with"]>) => NonNullable<WalkStep["with"]>,
): GraphDocument {
  const changed = (step: WalkStep) =>
    step.walk === walk && step.with ? withPart(step, "with", change(step.with)) : step;
  return changeTasks(graph, (task) => withKey(task, "steps", mapSteps(task.steps, changed)));
}

// ── outputs and results ─────────────────────────────────────────────────────────────────────────

/** Name a value for later steps; null takes the result away. `collect`: all iterations' values, as always out of a map. */
export function setResult(
  graph: GraphDocument,
  walk: string,
  name: string,
  from: string | null,
  collect: Collect = false,
): GraphDocument {
  const body = walkOf(graph, walk);
  const before = own(body.results, name);
  if (from === null) return before === undefined ? graph : removeResult(graph, walk, name);
  if (before === undefined) freeName(strings.document.aResult, name, []);
  const source = endOf(from, factsOf(body), "source");
  const merge = source.kind === "merge" && own(body.merges, source.name) !== undefined;
  if (!source.entry && !merge) throw new EditRefused(strings.document.thereIsNoUseWithFrom(splitReference(from)[0]));
  const loops = source.place?.loops ?? [];
  if (collect && !loops.length) throw new EditRefused(strings.document.isInNoLoopSoThere(source.name));
  const map = mapLeft(factsOf(body), { left: loops });
  if (map !== null && merge)
    throw new EditRefused(sentence(strings.document.collectItsValuesFirst(source.name, map)));
  const how = collect || map !== null;
  const was = before === undefined ? null : readResult(before);
  if (was?.from === from && was.collect === how) return graph;
  const base = typeof before === "object" ? withKey({ ...before, from }, "collect", undefined) : { from };
  const plain = Object.keys(base).length === 1 && !how;
  const result: ResultFrom = plain ? from : how ? { ...base, collect: how } : base;
  return changeWalk(graph, walk, (old) => withWalkPart(old, "results", { ...old.results, [name]: result }));
}

function removeResult(graph: GraphDocument, walk: string, name: string): GraphDocument {
  const made = changeWalk(graph, walk, (old) => withWalkPart(old, "results", withKey(old.results!, name, undefined)));
  return changeTasks(made, (task) => {
    const own = ownNames(task, walk);
    const isGone = (result: string) => {
      const [owner, key] = splitReference(result);
      return key === name && own.has(owner);
    };
    return withKey(task, "steps", withoutShown(task.steps, isGone));
  });
}

/** Name a value for later steps that has one already: a merge of both where branches of a choice exclude each other. */
export function joinResult(
  graph: GraphDocument,
  walk: string,
  name: string,
  from: string,
  collect?: Collect,
): GraphDocument {
  const before = own(walkOf(graph, walk).results, name);
  const found = before === undefined ? null : mergedWith(graph, walk, readResult(before).from, from);
  return found
    ? setResult(found.graph, walk, name, found.reference, collect)
    : setResult(graph, walk, name, from, collect);
}

/** Another name for a result, followed in what later steps bind. */
export function renameResult(graph: GraphDocument, walk: string, from: string, to: string): GraphDocument {
  if (from === to) return graph;
  const results = walkOf(graph, walk).results;
  if (own(results, from) === undefined) throw new EditRefused(strings.document.theWalkHasNoResult(from));
  freeName(strings.document.aResult, to, Object.keys(results!));
  const made = changeWalk(graph, walk, (body) => withWalkPart(body, "results", withRenamed(body.results!, from, to)));
  return changeTasks(made, (task) => {
    const own = stepsOf(task.steps).filter((step) => step.walk === walk);
    const names = new Set([walk, ...own.flatMap((step) => step.as ?? [])]);
    const same = (owner: string) => owner;
    const renamed = (owner: string, name: string) => (names.has(owner) && name === from ? to : name);
    const change = (step: WalkStep) => {
      const bound = step.with && withBindings(step.with, same, renamed);
      return bound === step.with ? step : { ...step, with: bound! };
    };
    const steps = mapSteps(task.steps, change, (value) => withOwner(value, same, renamed));
    return withKey(task, "steps", steps);
  });
}

/** Another name for what a Walk sends, followed in the tasks that run it; other Walks keep theirs. */
export function renameOutput(graph: GraphDocument, walk: string, from: string, to: string): GraphDocument {
  if (from === to) return graph;
  const outputs = outputsOf(walkOf(graph, walk));
  if (!outputs.has(from)) throw new EditRefused(strings.document.theWalkSendsNoOut(from));
  freeName(strings.document.anOutput, to, outputs);
  const made = mapReferences(graph, walk, (reference, side) =>
    side === "target" && reference === `@out.${from}` ? `@out.${to}` : reference,
  );
  return Object.keys(made.tasks ?? {}).reduce(
    (changed, name) =>
      changeTask(changed, name, (task) => {
        const walks = new Set(stepsOf(task.steps).map((step) => step.walk));
        if (!walks.has(walk) || !task.outputs.includes(from)) return task;
        const others = [...walks].some((other) => {
          const body = own(made.walks, other);
          return body !== undefined && outputsOf(body).has(from);
        });
        const named = others ? [from, to] : [to];
        const listed = task.outputs.flatMap((output) => (output === from ? named : [output]));
        return withKey(task, "outputs", [...new Set(listed)]);
      }),
    made,
  );
}

/** The names that a Walk sends to the client. */
export function outputsOf(walk: Walk): Set<string> {
  return new Set(factsOf(walk).routes.flatMap(({ target }) => (target.kind === "out" ? target.name : [])));
}

/** The names in a task that mean results of this Walk alone. */
function ownNames(task: Task, walk: string): Set<string> {
  const steps = stepsOf(task.steps);
  const named = (own: boolean) =>
    steps.filter((step) => (step.walk === walk) === own).map((step) => step.as ?? step.walk);
  const others = new Set(named(false));
  return new Set(named(true).filter((name) => !others.has(name)));
}

// ── shared ──────────────────────────────────────────────────────────────────────────────────────

function walkNames(graph: GraphDocument): string[] {
  return Object.keys(graph.walks ?? {});
}

function inputOf(graph: GraphDocument, walk: string, name: string): string {
  const type = own(walkOf(graph, walk).inputs, name);
  if (type === undefined) throw new EditRefused(strings.document.theWalkHasNoInputWithName(name));
  return type;
}

function checkType(type: string): void {
  if (!parseType(type)) throw new EditRefused(strings.document.isNotAPortTypeWrite(type, MODALITIES.join(", ")));
}

/** Bindings with the owners and names of results changed. */
function withBindings(
  bindings: NonNullable<WalkStep["with"]>,
  owners: (owner: string) => string,
  names: (owner: string, name: string) => string = (_, name) => name,
): NonNullable<WalkStep["with"]> {
  const made = Object.entries(bindings).map(([key, value]) => {
    return [key, typeof value === "string" ? withOwner(value, owners, names) : value] as const;
  });
  return made.every(([key, value]) => bindings[key] === value) ? bindings : Object.fromEntries(made);
}

/** One binding of an earlier step's result likewise; others stay. */
function withOwner(
  value: string,
  owners: (owner: string) => string,
  names: (owner: string, name: string) => string = (_, name) => name,
): string {
  if (value.startsWith("@") || !value.includes(".")) return value;
  const [owner, name] = splitReference(value);
  return `${owners(owner)}.${names(owner, name)}`;
}

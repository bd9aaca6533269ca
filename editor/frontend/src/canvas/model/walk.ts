// One Walk as pieces and wires: uses, forks, containers and what stands at the Walk's border. Pure.
import { readResult } from "../../document/names";
import { streamType } from "../../document/ports";
import { headId, headRef } from "../../document/routes";
import { flat, hasHead, headOf, isContainer, isLoop, lastOrder, type Entry } from "../../document/tree";
import type { ItemId } from "../../document/types";
import {
  boundarySize,
  closedSize,
  containerMin,
  containerPad,
  forkSize,
  mergeSize,
  useSize,
} from "../shapes/geometry";
import { color } from "../../ui/modality";
import type {
  BoundaryData,
  ContainerData,
  Dependency,
  MergeData,
  Piece,
  PortShown,
  UseData,
  Wire,
} from "../shapes/types";
import { dependenciesIn } from "./dependencies";
import { bare, blockColor, declaredPorts, owner, portName, side, statesOf } from "./ports";
import { PREVIEW_ROOM } from "./previews";
import { useKey } from "../../telemetry/calls";
import {
  exclusiveUses,
  isMissing,
  loopPiece,
  mergePiece,
  portType,
  sceneOf,
  standsIn,
  wiredRefs,
  type Scene,
  type Shown,
} from "./scene";
import { chunkText } from "./streams";
import { wiresOf } from "./wires";
import { strings } from "../../strings";

export interface Drawn {
  pieces: Piece[];
  wires: Wire[];
  dependencies: Dependency[];
}

export function walkDrawn(shown: Shown, name: string, inside: ItemId | null): Drawn {
  const walk = shown.graph.walks?.[name];
  if (!walk) return { pieces: [], wires: [], dependencies: [] };
  const scene = sceneOf(shown, name, walk, inside);
  const wires = wiresOf(scene);
  const lanes = new Map<string, number>();
  for (const wire of wires)
    if (wire.data.around) lanes.set(wire.data.around, Math.max(lanes.get(wire.data.around) ?? 0, wire.data.lane + 1));
  const pieces = [...itemPieces(scene, lanes), ...mergePieces(scene), ...borderPieces(scene)];
  const ids = new Set(pieces.map((piece) => piece.id));
  const drawn = wires.filter((wire) => ids.has(wire.source) && ids.has(wire.target));
  return { pieces, wires: drawn, dependencies: dependenciesIn(shown.graph, shown.catalogue, name, scene.seen) };
}

// ── items ───────────────────────────────────────────────────────────────────────────────────────

function itemPieces(scene: Scene, lanes: ReadonlyMap<string, number>): Piece[] {
  const outs = wiredRefs(scene, "<");
  const ins = wiredRefs(scene, ">");
  const untils = new Set(scene.entries.map((entry) => field(entry, "until")).filter(Boolean));
  const pieces: Piece[] = [];
  for (const entry of scene.entries) {
    if (scene.seen.get(entry.id) !== entry.id) continue;
    const parent = entry.parent && entry.parent.id !== scene.inside ? entry.parent.id : null;
    const base = { id: entry.id, parent, order: entry.order, below: roomBelow(scene, entry) };
    if (entry.kind === "use") {
      const data = useData(scene, entry, ins, outs, untils);
      pieces.push({ ...base, data, size: useSize(data), pad: null, label: label(entry, data.component) });
    } else if (isContainer(entry.kind))
      pieces.push({ ...base, ...containerPiece(scene, entry, lanes.get(entry.id) ?? 0) });
    else pieces.push({ ...base, ...forkPiece(scene, entry) });
  }
  return pieces;
}

/** For the previews of a use, or of what is in a closed container. */
function roomBelow(scene: Scene, entry: Entry): number {
  const closed = isContainer(entry.kind) && (scene.layout.closed ?? []).includes(entry.id);
  const shown = closed ? flat(entry.children) : [entry];
  return shown.some(({ kind, node }) => kind === "use" && scene.shows.has(node)) ? PREVIEW_ROOM : 0;
}

function useData(
  scene: Scene,
  entry: Entry,
  ins: ReadonlySet<string>,
  outs: ReadonlySet<string>,
  untils: ReadonlySet<string>,
): UseData {
  const node = scene.graph.nodes?.[entry.node];
  const { component, inputs, outputs } = declaredPorts(scene.catalogue, node);
  const until = (port: PortShown): PortShown => (untils.has(port.ref) ? { ...port, mark: "until" } : port);
  const own = [...scene.located.under(scene.pointer + entry.pointer), ...scene.located.under(`/nodes/${entry.node}`)];
  return {
    kind: "use",
    name: entry.name,
    node: entry.node,
    component: node?.component ?? strings.canvas.noSuchNode,
    description: component?.description ?? "",
    inputs: side(inputs, entry.name, ins),
    outputs: side(outputs, entry.name, outs).map(until),
    states: statesOf(scene.graph, scene.catalogue, node),
    badge: String(entry.order + 1),
    when: (scene.muted.get(entry.id) ?? "") ? "" : field(entry, "when"),
    problems: own,
    ghost: !component,
    drawnOnly: component ? !component.available : false,
    muted: scene.muted.get(entry.id) ?? "",
    dim: false,
    ranks: scene.ranks.get(entry.node) ?? [],
    color: blockColor(scene.catalogue, node),
    footnote: entry.name === entry.node ? "" : strings.canvas.node(entry.node),
    others: keysOf(scene, exclusiveUses(scene, entry)),
  };
}

function containerPiece(scene: Scene, entry: Entry, lanes: number): Pick<Piece, "data" | "size" | "pad" | "label"> {
  const closed = scene.layout.closed?.includes(entry.id) ?? false;
  const container = entry.kind as ContainerData["container"];
  const deeper = entry.children.map((child) => scene.pointer + child.pointer);
  const inside = flat(entry.children);
  const at = scene.pointer + entry.pointer;
  const data: ContainerData = {
    kind: "container",
    container,
    id: entry.id,
    walk: scene.name,
    name: entry.name,
    times: field(entry, "times"),
    until: field(entry, "until"),
    dropLast: Boolean((entry.item as { drop_last?: boolean }).drop_last),
    bound: field(entry, "bound"),
    width: field(entry, "width") || (container === "map" ? "1" : ""),
    when: (scene.muted.get(entry.id) ?? "") ? "" : field(entry, "when"),
    closed,
    empty: entry.children.length === 0,
    ...(closed ? crossing(scene, entry) : { inputs: [], outputs: [] }),
    index: isLoop(container) && !closed ? indexPort(scene, entry) : null,
    branches: [],
    head: hasHead(container) ? headShown(scene, entry) : null,
    otherwise: entry.children.some((branch) => branch.kind === "otherwise"),
    branch: container === "case" || container === "otherwise" ? branchShown(scene, entry) : null,
    problems: closed ? scene.located.under(at) : scene.located.own(at, deeper),
    badge: String(entry.order + 1),
    muted: scene.muted.get(entry.id) ?? "",
    count: inside.filter((child) => child.kind === "use").length,
    nodes: [...new Set(inside.flatMap((child) => (child.node ? [child.node] : [])))],
  };
  const name = spoken(data);
  if (closed)
    return { data, size: closedSize(data), pad: null, label: strings.canvas.closedStepsInside(name, data.count) };
  return {
    data,
    size: containerMin(data),
    pad: containerPad(container, data.when, lanes),
    label: strings.canvas.steps(name, data.count),
  };
}

/** A container's kind and name for screen readers. */
function spoken({ container, name, head }: ContainerData): string {
  if (container === "map")
    return head?.value ? strings.canvas.mapOver(name, head.value) : strings.canvas.mapOverNothing(name);
  if (head) return head.value ? strings.canvas.choiceBy(head.value) : strings.canvas.choiceByNothing;
  return container === "otherwise" ? strings.canvas.branchForOtherValues : `${container} ${name}`.trim();
}

function headShown(scene: Scene, entry: Entry): ContainerData["head"] {
  const value = headOf(entry.item);
  const map = entry.kind === "map";
  const port = bare(headRef(entry.id), value ? portType(scene, value, "outputs") : "", {
    name: map ? strings.canvas.list : strings.canvas.value,
    optional: false,
    wired: value !== "",
    description: map ? strings.canvas.theMapGoesThroughIt : strings.canvas.theChoiceGoesByIt,
  });
  return { value, port };
}

function branchShown(scene: Scene, entry: Entry): ContainerData["branch"] {
  const own = keysOf(scene, flat(entry.children));
  return { choice: entry.parent!.id, own, others: keysOf(scene, exclusiveUses(scene, entry)) };
}

function keysOf(scene: Scene, all: readonly Entry[]): string[] {
  return all.flatMap((entry) => (entry.kind === "use" ? useKey(scene.name, entry.name) : []));
}

function mergePieces(scene: Scene): Piece[] {
  return [...scene.facts.merges.values()].flatMap(({ name, sources, choice, pointer }): Piece[] => {
    const id = `merge:${name}`;
    if (mergePiece(scene, name) !== id) return [];
    const ref = `@merge.${name}`;
    const type = portType(scene, ref, "outputs");
    const data: MergeData = {
      kind: "merge",
      walk: scene.name,
      name,
      inputs: [bare(ref, type, { wired: sources.length > 0, description: strings.canvas.takesTheValueOfTheBranch })],
      outputs: [bare(ref, type, { wired: scene.wired.has(`<${ref}`) })],
      sources: [...sources],
      problems: scene.located.under(scene.pointer + pointer),
      color: type ? color(type) : "var(--line-strong)",
    };
    const holder = choice?.parent ?? null;
    const parent = holder && holder.id !== scene.inside ? holder.id : null;
    const order = choice ? lastOrder(choice) + 0.5 : scene.entries.length;
    const label = strings.canvas.mergeOf(name, sources.join(", "));
    return [{ id, parent, order, data, size: mergeSize(name), below: 0, pad: null, label }];
  });
}

function indexPort(scene: Scene, entry: Entry): PortShown {
  const refs = [`@loop.${entry.name}`, "@loop.index"];
  const wired = scene.edges.some((edge) => refs.includes(edge.from));
  return bare(refs[0] as string, strings.canvas.scalarInt, {
    wired,
    name: "index",
    description: "The number of the iteration, from 0.",
  });
}

/** The ports of a closed container: what its wires to the outside end at. */
function crossing(scene: Scene, entry: Entry): { inputs: PortShown[]; outputs: PortShown[] } {
  const inner = (ref: string, target = "") => standsIn(scene, ref, entry, target);
  const unique = (refs: string[]) => [...new Set(refs)];
  const results = Object.values(scene.walk.results ?? {}).map((result) => readResult(result).from);
  const inputs = unique(
    scene.links.filter((edge) => inner(edge.to) && !inner(edge.from, edge.to)).map((edge) => edge.to),
  );
  const outputs = unique([
    ...scene.links.filter((edge) => inner(edge.from) && !inner(edge.to)).map((edge) => edge.from),
    ...results.filter((ref) => inner(ref)),
  ]);
  const port = (ref: string, kind: "inputs" | "outputs"): PortShown => {
    const head = headId(ref);
    const holder = head === null ? undefined : scene.facts.byId.get(head);
    if (!holder) return bare(ref, portType(scene, ref, kind), { wired: true, name: ref });
    const { port: own } = headShown(scene, holder)!;
    const called = holder.name || strings.canvas.choice;
    return holder === entry ? own : { ...own, name: strings.canvas.inOf(called, own.name) };
  };
  return { inputs: inputs.map((ref) => port(ref, "inputs")), outputs: outputs.map((ref) => port(ref, "outputs")) };
}

function forkPiece(scene: Scene, entry: Entry): Pick<Piece, "data" | "size" | "pad" | "label"> {
  const fork = field(entry, "fork");
  const into = field(entry, "into");
  const muted = scene.muted.get(entry.id) ?? "";
  const when = muted ? "" : field(entry, "when");
  const problems = scene.located.under(scene.pointer + entry.pointer);
  return {
    data: { kind: "fork", fork, into, when, badge: String(entry.order + 1), problems, muted },
    size: forkSize(fork, into, when),
    pad: null,
    label: strings.canvas.copyStateInto(fork, into),
  };
}

function field(entry: Entry, name: string): string {
  if (typeof entry.item !== "object" || entry.item === null || Array.isArray(entry.item)) return "";
  const value = (entry.item as unknown as Record<string, unknown>)[name];
  return value === undefined || value === null ? "" : String(value);
}

function label(entry: Entry, component: string): string {
  const inside = entry.loops.length ? strings.canvas.inLoop(entry.loops.join(", ")) : "";
  return strings.canvas.step(entry.name, component, inside, entry.order + 1);
}

// ── the Walk's border ───────────────────────────────────────────────────────────────────────────

function borderPieces(scene: Scene): Piece[] {
  if (scene.inside) return [...outsidePieces(scene), ...missingPieces(scene)];
  return [inPiece(scene), outPiece(scene), ...streamPieces(scene), ...missingPieces(scene)];
}

function border(id: string, order: number, data: BoundaryData): Piece {
  return { id, parent: null, order, data, size: boundarySize(data), below: 0, pad: null, label: data.title };
}

function inPiece(scene: Scene): Piece {
  const declared = Object.entries(scene.walk.inputs ?? {});
  const used = wiredRefs(scene, "<");
  const known = new Set(declared.map(([name]) => `@in.${name}`));
  const ghosts = [...used].filter((ref) => owner(ref) === "@in" && !known.has(ref));
  const add = bare("@in.+", "", { name: strings.canvas.newInput, mark: "add" });
  const outputs = [
    ...declared.map(([name, type]) => bare(`@in.${name}`, type, { wired: used.has(`@in.${name}`) })),
    ...ghosts.map((ref) => bare(ref, "", { ghost: true, wired: true })),
    add,
  ];
  const problems = scene.located.under(`${scene.pointer}/inputs`);
  return border("@in", -1, {
    kind: "boundary",
    role: "in",
    title: strings.canvas.inputs,
    subtitle: "",
    inputs: [],
    outputs,
    problems,
  });
}

function outPiece(scene: Scene): Piece {
  const targets = [...new Set(scene.edges.map((edge) => edge.to).filter((ref) => owner(ref) === "@out"))];
  const inputs = targets.map((ref) => {
    const from = scene.edges.find((edge) => edge.to === ref)?.from ?? "";
    return bare(ref, portType(scene, from, "outputs"), { wired: true, description: strings.canvas.sentToTheClient });
  });
  inputs.push(bare("@out.+", "", { name: strings.canvas.sendToTheClient, mark: "add" }));
  for (const [name, result] of Object.entries(scene.walk.results ?? {})) {
    const type = portType(scene, readResult(result).from, "outputs");
    inputs.push(
      bare(`@result.${name}`, type, { wired: true, mark: "result", description: strings.canvas.keptForLaterSteps }),
    );
  }
  inputs.push(bare("@result.+", "", { name: strings.canvas.keepForLaterSteps, mark: "add" }));
  inputs.push(bare("@sink.+", "", { name: strings.canvas.streamToAnotherWalk, mark: "add" }));
  const problems = scene.located.under(`${scene.pointer}/results`);
  return border("@out", Infinity, {
    kind: "boundary",
    role: "out",
    title: strings.canvas.outputs,
    subtitle: "",
    inputs,
    outputs: [],
    problems,
  });
}

function streamPieces(scene: Scene): Piece[] {
  const streams = scene.graph.streams ?? [];
  const read = scene.edges.map((edge) => edge.from).filter((ref) => owner(ref) === "@stream");
  // One that nothing reads yet is there as soon as it has a place.
  const put = streams.map((stream) => `@stream.${stream.name}`).filter((ref) => scene.layout.at?.[ref]);
  const used = [...new Set([...read, ...put])];
  const sources = used.map((ref) => {
    const stream = streams.find((one) => one.name === portName(ref));
    const type = portType(scene, ref, "outputs");
    const outputs = [bare(ref, type, { wired: read.includes(ref), mark: "stream", ghost: !stream })];
    const subtitle = stream ? chunkText(stream) : strings.canvas.noSuchStream;
    const problems = stream ? scene.located.under(`/streams/${streams.indexOf(stream)}`) : [];
    return border(ref, -1, {
      kind: "boundary",
      role: "stream",
      title: strings.canvas.stream,
      subtitle,
      inputs: [],
      outputs,
      problems,
    });
  });
  const sinks = streams.flatMap((stream, index) => {
    if (!stream.walks.includes(scene.name)) return [];
    const type = streamType(scene.graph, scene.catalogue, stream.name) ?? "";
    const inputs = [bare(`@sink.${stream.name}`, type, { wired: true, mark: "stream" })];
    const problems = scene.located.under(`/streams/${index}`);
    const data: BoundaryData = {
      kind: "boundary",
      role: "sink",
      title: strings.canvas.streamOut,
      subtitle: chunkText(stream),
      inputs,
      outputs: [],
      problems,
    };
    return [border(`stream:${stream.name}`, Infinity, data)];
  });
  return [...sources, ...sinks];
}

/** Names in edges that the Walk doesn't have: kept visible, so that nothing is lost silently. */
function missingPieces(scene: Scene): Piece[] {
  const sources = new Map<string, Set<string>>();
  const targets = new Map<string, Set<string>>();
  const add = (into: Map<string, Set<string>>, ref: string) =>
    into.set(owner(ref), (into.get(owner(ref)) ?? new Set()).add(ref));
  for (const edge of scene.edges) {
    if (isMissing(scene, edge.from, "from")) add(sources, edge.from);
    if (isMissing(scene, edge.to, "to")) add(targets, edge.to);
  }
  const names = [...new Set([...sources.keys(), ...targets.keys()])];
  return names.map((name) => {
    const port = (ref: string) => bare(ref, "", { ghost: true, wired: true });
    const inputs = [...(targets.get(name) ?? [])].map(port);
    const outputs = [...(sources.get(name) ?? [])].map(port);
    const subtitle = strings.canvas.notAStepOfThisWalk;
    const data: BoundaryData = {
      kind: "boundary",
      role: "missing",
      title: name || strings.canvas.nothing,
      subtitle,
      inputs,
      outputs,
      problems: [],
    };
    return border(`missing:${name}`, -1, data);
  });
}

/** Inside an entered container: what comes from and goes to the rest of the Walk. */
function outsidePieces(scene: Scene): Piece[] {
  const root = scene.facts.byId.get(scene.inside ?? "")!;
  const inside = (ref: string) => standsIn(scene, ref, root);
  const unique = (refs: string[]) => [...new Set(refs)];
  const before = unique(
    scene.links
      .filter((edge) => inside(edge.to) && !inside(edge.from) && edge.to !== headRef(root.id))
      .map((edge) => edge.from),
  ).filter((ref) => owner(ref) !== "@loop" || loopPiece(scene, ref, "") === null);
  const after = unique(scene.links.filter((edge) => inside(edge.from) && !inside(edge.to)).map((edge) => edge.to));
  const make = (role: "before" | "after", title: string, refs: string[]): Piece => {
    const ports = refs.map((ref) =>
      bare(ref, portType(scene, ref, role === "before" ? "outputs" : "inputs"), { name: ref, wired: true }),
    );
    const data: BoundaryData = {
      kind: "boundary",
      role,
      title,
      subtitle: refs.length ? "" : "nothing",
      inputs: role === "after" ? ports : [],
      outputs: role === "before" ? ports : [],
      problems: [],
    };
    return border(`@${role}`, role === "before" ? -1 : Infinity, data);
  };
  return [make("before", strings.canvas.fromOutside, before), make("after", strings.canvas.toOutside, after)];
}

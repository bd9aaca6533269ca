// Decides whether an edge is allowed, and its route. One judge serves all targets while a wire is dragged.
import type { Catalogue, Component } from "../../messages/answers";
import { isName, splitReference, type Collect, type PlainLink } from "../names";
import { componentOf, portType, producers, streamType } from "../ports";
import { accepts, LOOP_INDEX, MEDIA, parseType, type PortType } from "../typing";
import {
  endOf,
  factsOf,
  headId,
  isInside,
  mapCarrying,
  mapLeft,
  meet,
  routeOf,
  type End,
  type Facts,
  type Route,
} from "../routes";
import { hasHead, type Entry } from "../tree";
import type { GraphDocument } from "../types";
import { own, streamsOf, walkOf } from "./parts/document";
import { beside, mergeOf } from "./parts/merges";
import { behind, sideBySideReason, type Shift } from "./parts/order";
import { perObject } from "../perObject";
import { strings } from "../../strings";

export interface Wish {
  each?: boolean;
  collect?: Collect;
  /** Carry it round a loop even where the order could be changed instead. */
  carried?: boolean;
}

export interface Verdict {
  link: PlainLink;
  /** The items to move first, so that the target comes after the source. */
  shift: Shift | null;
}

interface Source {
  type: PortType | null;
  fault: string | null;
  place: Entry | null;
}

/** Modalities of a value that a choice can go by. */
const CHOOSING = new Set(["flag", "scalar", "text"]);

/** Judges edges of one Walk; keeps what it has worked out, so it is for one state of the document. */
export class Judge {
  readonly facts: Facts;
  private readonly sources = new Map<string, Source>();
  private readonly targets = new Map<string, { type: PortType | null; fault: string | null }>();
  private readonly shifts = new Map<string, Shift | string>();
  private readonly rivals = new Map<string, string | null>();

  constructor(
    private readonly graph: GraphDocument,
    readonly walk: string,
    private readonly catalogue: Catalogue,
  ) {
    this.facts = factsOf(walkOf(graph, walk));
  }

  /** How the edge would be drawn, or why it can't be. */
  judge(from: string, to: string, wish: Wish = {}): Verdict | string {
    const head = headId(to);
    if (head !== null) return this.heading(from, to, head);
    const merge = mergeOf(to);
    if (merge !== null) return this.joining(from, merge);
    const source = this.source(from);
    const target = this.target(to);
    const fault = source.fault ?? target.fault;
    if (fault) return fault;
    const route = routeOf(this.facts, { from, to, each: false, collect: false }, -1, "");
    const loopFault = this.loopFault(route);
    if (loopFault) return loopFault;
    const { entry } = route.target;
    const apart = this.apart(source.place, entry, from);
    if (apart) return apart;
    if (route.source.kind === "stream" && mapLeft(this.facts, { left: route.entered }) !== null)
      return strings.document.aStreamIsReadBeforeAMap;
    const shift = this.turn(route, wish);
    if (typeof shift === "string") return shift;
    return this.typed(route, source.type, target.type, wish, shift);
  }

  /** The type of a source; a fault if it doesn't exist. */
  private source(reference: string): Source {
    const found = this.sources.get(reference) ?? this.readSource(reference);
    this.sources.set(reference, found);
    return found;
  }

  private readSource(reference: string): Source {
    const end = endOf(reference, this.facts, "source");
    const fault = (text: string): Source => ({ type: null, fault: text, place: null });
    switch (end.kind) {
      case "in": {
        const type = own(walkOf(this.graph, this.walk).inputs, end.name);
        if (type === undefined) return fault(strings.document.theWalkHasNoInput(end.name));
        return { type: parseType(type), fault: null, place: null };
      }
      case "loop":
        return { type: parseType(LOOP_INDEX), fault: null, place: null };
      case "merge": {
        if (!this.facts.merges.has(end.name)) return fault(strings.document.thereIsNoMerge(end.name));
        const type = portType(this.graph, this.catalogue, this.walk, reference, "source");
        return { type: type === null ? null : parseType(type), fault: null, place: end.place };
      }
      case "stream": {
        const rival = this.streamFault(end.name);
        if (rival) return fault(rival);
        return { type: chunked(streamType(this.graph, this.catalogue, end.name)), fault: null, place: null };
      }
      default: {
        if (!end.entry) return fault(strings.document.thereIsNoUse(end.name));
        const component = componentOf(this.graph, this.catalogue, end.entry.node);
        return { ...this.port(component, end.port, "output"), place: end.entry };
      }
    }
  }

  private target(reference: string): { type: PortType | null; fault: string | null } {
    const found = this.targets.get(reference) ?? this.readTarget(reference);
    this.targets.set(reference, found);
    return found;
  }

  private readTarget(reference: string): { type: PortType | null; fault: string | null } {
    const end = endOf(reference, this.facts, "target");
    if (end.kind === "out") {
      const fault = isName(end.name) ? null : strings.document.cantBeTheName(end.name);
      return { type: null, fault };
    }
    if (!end.entry) {
      const word = end.name.startsWith("@")
        ? strings.document.takesNoEdge(reference)
        : strings.document.thereIsNoUseWithName(end.name);
      return { type: null, fault: end.name.startsWith("@") ? word : strings.document.inTheWalk(word) };
    }
    return this.port(componentOf(this.graph, this.catalogue, end.entry.node), end.port, "input");
  }

  private port(component: Component | null, name: string, side: "input" | "output") {
    if (!component) return { type: null, fault: name ? null : strings.document.nameAPort };
    const found = (side === "input" ? component.inputs : component.outputs).find((port) => port.name === name);
    const fault = found ? null : strings.document.hasNo(component.name, side, name);
    return { type: found ? parseType(found.type) : null, fault };
  }

  /** Why two places can't be joined by an edge at all; null: they can. */
  private apart(source: Entry | null, target: Entry | null, from: string): string | null {
    if (!source || !target || source === target) return null;
    const { parent, a, b } = meet(source, target);
    if (a === b) return null;
    if (parent?.kind === "parallel") return sideBySideReason(source, target);
    if (parent?.kind !== "choose") return null;
    return strings.document.inDifferentBranches(calledAs(source, from), calledAs(target, target.id));
  }

  /** The value that a choice goes by, or the list of a map: it is there before them. */
  private heading(from: string, to: string, id: string): Verdict | string {
    const entry = this.facts.byId.get(id);
    if (!entry || !hasHead(entry.kind))
      return strings.document.thereIsNoHead(to.startsWith("@map") ? "map" : "choice");
    const words = HEADS[entry.kind];
    const end = endOf(from, this.facts, "source");
    if (end.kind === "loop" || end.kind === "stream") return words.takes;
    const { type, fault, place } = this.source(from);
    if (fault) return fault;
    if (place && isInside(place, entry)) return strings.document.isInsideTheHead(calledAs(place, from), words.word);
    const apart = this.apart(place, entry, from);
    if (apart) return apart;
    if (type && !words.fits(type)) return words.misfit(type);
    const link = { from, to, each: false, collect: false };
    const left = place?.loops.filter((loop) => !entry.loops.includes(loop)) ?? [];
    const map = mapLeft(this.facts, { left });
    if (map !== null) return strings.document.collectItsValuesFirst(calledAs(place!, from), map);
    const route = this.facts.heads.find((each) => each.target.name === id);
    if (!place || route?.from === from) return { link, shift: null };
    const shift = place.order < entry.order ? null : behind(this.graph, this.facts, entry, place);
    if (typeof shift === "string")
      return strings.document.theHeadCantComeAfter(words.word, calledAs(place, from), shift);
    return { link, shift };
  }

  /** One source more for a merge. */
  private joining(from: string, name: string): Verdict | string {
    const merge = this.facts.merges.get(name);
    if (!merge) return strings.document.thereIsNoMerge(name);
    const end: End = endOf(from, this.facts, "source");
    if (end.kind !== "use") return strings.document.aMergeTakesOutputs;
    const { type, fault, place } = this.source(from);
    if (fault) return fault;
    if (merge.sources.includes(from)) return strings.document.theMergeHasItAlready(name);
    if (merge.choice && place && !isInside(place, merge.choice) && merge.sources.length > 1)
      return strings.document.isInNoBranchOfTheChoice(end.name);
    const outer = merge.choice?.loops.length ?? 0;
    const map = place && mapLeft(this.facts, { left: place.loops.slice(outer) });
    if (place && map !== null) return strings.document.collectItsValuesFirst(calledAs(place, from), map);
    if (merge.sources.length > 1 && this.displaced(from, name).length > 1)
      return strings.document.mayRunTogetherWith(end.name, this.displaced(from, name).join("`, `"));
    const misfit = accepts(this.source(`@merge.${name}`).type, type);
    return misfit ?? { link: { from, to: `@merge.${name}`, each: false, collect: false }, shift: null };
  }

  /** The sources of a merge that can't stay beside a new one. */
  displaced(from: string, name: string): string[] {
    return beside(this.facts, this.facts.merges.get(name)?.sources ?? [], from);
  }

  private loopFault({ source, target }: Route): string | null {
    if (source.kind !== "loop") return null;
    const loops = target.entry?.loops ?? [];
    if (!loops.length) return strings.document.thereIsNoLoopAround;
    if (source.name === "index" || loops.includes(source.name)) return null;
    return strings.document.theLoopIsntAround(source.name);
  }

  /** The items to move so that the edge goes forward; null if none. It is carried if a loop contains both ends. */
  private turn(route: Route, wish: Wish): Shift | null | string {
    const [source, target] = [route.source.place, route.target.entry];
    if (!route.backward || !source || !target) return null;
    if (route.source.kind === "merge" && isInside(target, source) && !route.carried)
      return strings.document.isInABranchThatTheMerge(target.name);
    const map = route.carried ? mapCarrying(this.facts, route) : null;
    if (map !== null && source === target) return strings.document.itemsAreIndependent(map);
    const carries = route.carried && map === null;
    if (carries && (wish.carried || source === target || this.hasFirst(route))) return null;
    const key = `${target.id}>${source.id}`;
    const shift = this.shifts.get(key) ?? behind(this.graph, this.facts, target, source);
    this.shifts.set(key, shift);
    if (typeof shift !== "string") return shift;
    if (carries) return null;
    if (map !== null) return strings.document.itemsAreIndependent(map);
    const loop = strings.document.putBothIntoALoop;
    return strings.document.comesBefore(target.name, calledAs(source, route.source.name), shift, loop);
  }

  /** True if the port already has a value from before the loop that would carry this one. */
  private hasFirst(route: Route): boolean {
    const feeds = this.facts.feeds.get(route.to) ?? [];
    return feeds.some((each) => !each.backward && each.common < route.common && each.from !== route.from);
  }

  /** The flags that make the types fit: those wished for, otherwise the plainest. */
  private typed(
    route: Route,
    given: PortType | null,
    taken: PortType | null,
    wish: Wish,
    shift: Shift | null,
  ): Verdict | string {
    let first: string | null = null;
    const map = mapLeft(this.facts, route);
    for (const { each, collect } of flags(route, wish, given, {
      leaving: map !== null,
      items: this.itemsOf(route),
    })) {
      const way = routeOf(this.facts, { from: route.from, to: route.to, each, collect }, -1, "");
      const passed = given && along(given, way);
      const fault = typeof passed === "string" ? passed : accepts(taken, passed);
      if (!fault) return { link: { from: route.from, to: route.to, each, collect }, shift };
      first ??= fault;
    }
    return first ?? strings.document.hasAValueForEveryItem(route.source.name, map ?? "");
  }

  /** True if the edge brings the list of a map into it. */
  private itemsOf({ from, entered }: Route): boolean {
    return this.facts.heads.some(({ from: list, target }) => {
      return list === from && target.kind === "map" && entered.includes(target.place!.name);
    });
  }

  private streamFault(name: string): string | null {
    const found = this.rivals.get(name);
    if (found !== undefined) return found;
    const made = this.readStreamFault(name);
    this.rivals.set(name, made);
    return made;
  }

  private readStreamFault(name: string): string | null {
    const stream = streamsOf(this.graph).find((each) => each.name === name);
    if (!stream) return strings.document.thereIsNoStream(name);
    const group = partitions(this.graph);
    const own = new Set(nodesOf(this.facts).map((node) => group.get(node)));
    const shared = producers(this.graph, stream).find(({ node }) => own.has(group.get(node)));
    if (!shared) return null;
    return strings.document.theWalkSharesNodes(shared.walk);
  }
}

/** A name for a message; what has none is called by the reference that led to it. */
function calledAs(entry: Entry, reference: string): string {
  return entry.name || splitReference(reference)[1] || reference;
}

/**
 * The combinations of flags to try, the plainest first. Of a loop's text, all is meant rather than the last piece; of a
 * map, all values; and of its list (`items`), one item each.
 */
function flags(
  route: Route,
  wish: Wish,
  given: PortType | null,
  { leaving, items }: { leaving: boolean; items: boolean },
): { each: boolean; collect: Collect }[] {
  const canEach = route.target.kind === "out" ? route.left.length > 0 : route.entered.length > 0;
  const canCollect = route.left.length > 0 && route.source.kind !== "merge";
  const stream = route.source.kind === "stream";
  const out = route.target.kind === "out";
  const slicing = stream || items;
  const eachs =
    wish.each !== undefined ? [wish.each] : out ? [leaving, ...(leaving ? [false] : [])] : [slicing, !slicing];
  const inOrder: Collect[] = given?.modality === "text" ? [true, "list", false] : [false, true, "join", "list"];
  const collects = wish.collect !== undefined ? [wish.collect] : out ? [false, true] : inOrder;
  const found = eachs.flatMap((each) => collects.map((collect) => ({ each, collect })));
  const said = found.filter((one) => (canEach || !one.each) && (canCollect || !one.collect));
  const fitting = said.filter((one) => !(one.each && one.collect && out));
  if (leaving) return fitting.filter((one) => one.collect || (one.each && out));
  return fitting.length ? fitting : [{ each: false, collect: false }];
}

/** The words and the types of the heads of choices and maps. */
const HEADS = {
  choose: {
    word: "choice",
    takes: strings.document.aChoiceGoesBy,
    fits: (type: PortType) => CHOOSING.has(type.modality) && type.dtype !== "float" && !type.shape?.length,
    misfit: (type: PortType) => strings.document.aChoiceGoesByAFlag(type.modality),
  },
  map: {
    word: "map",
    takes: strings.document.aMapGoesThrough,
    fits: (type: PortType) => type.modality !== "flag" && typeof sliced(type) !== "string",
    misfit: (type: PortType) => strings.document.aMapGoesThroughAList(type.modality),
  },
} as const;

/** The type at the far end of a way; a reason where there is no axis to slice. */
export function along(type: PortType, way: Route): PortType | string {
  if (way.source.kind === "stream") return type;
  const left = way.leave === "collect" ? collected(type, way) : type;
  return typeof left !== "string" && way.enter === "each" ? sliced(left) : left;
}

function collected(type: PortType, { collect, left }: Route): PortType | string {
  if (type.many) return strings.document.listsCantBeCollected;
  const media = MEDIA.has(type.modality);
  if (collect === "list" || (collect === true && media)) return { ...type, many: true };
  if (media) return strings.document.cantBeJoined(type.modality);
  if (!type.shape) return type;
  if (collect === "join") return { ...type, shape: ["join", ...type.shape.slice(1)] };
  return { ...type, shape: [left.length === 1 ? "stack" : "...", ...type.shape] };
}

function sliced(type: PortType): PortType | string {
  if (type.many) return { ...type, many: false };
  if (MEDIA.has(type.modality) || type.modality === "text") return strings.document.isOneValue(type.modality);
  if (!type.shape) return type;
  if (!type.shape.length) return strings.document.itsValueHasNoAxes;
  return type.shape[0] === "..." ? type : { ...type, shape: type.shape.slice(1) };
}

/** A chunk joins a stream's items along their first axis. */
function chunked(type: string | null): PortType | null {
  const read = type === null ? null : parseType(type);
  return read?.shape?.length ? { ...read, shape: ["chunk", ...read.shape.slice(1)] } : read;
}

/** Node -> the first node of those that share Walks with it, directly or through others. */
export const partitions = perObject((graph: GraphDocument): ReadonlyMap<string, string> => {
  const group = new Map<string, string>();
  const root = (node: string): string => {
    const above = group.get(node) ?? node;
    return above === node ? node : root(above);
  };
  for (const node of Object.keys(graph.nodes ?? {})) group.set(node, node);
  for (const walk of Object.values(graph.walks ?? {})) {
    const [first, ...rest] = nodesOf(factsOf(walk));
    for (const node of rest) group.set(root(node), root(first!));
  }
  return new Map([...group.keys()].map((node) => [node, root(node)]));
});

function nodesOf(facts: Facts): string[] {
  return [...new Set(facts.list.flatMap((entry) => (entry.kind === "use" ? entry.node : [])))];
}

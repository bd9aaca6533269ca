// A Walk's edges, results and streams as wires between pieces. Nothing is left out because it is wrong. Pure.
import { accepts } from "../../document/typing";
import { endOf, mapCarrying, type End, type Route } from "../../document/routes";
import { isLoop } from "../../document/tree";
import type { ItemId } from "../../document/types";
import { color } from "../../ui/modality";
import type { Wire, WireData } from "../shapes/types";
import { told, worst } from "./problems";
import { isMissing, loopPiece, mergePiece, portType, type Scene } from "./scene";
import { strings } from "../../strings";

export function wiresOf(scene: Scene): Wire[] {
  const lanes = new Map<string, Map<string, number>>();
  const wires = scene.facts.routes.map((route) => edgeWire(scene, route, lanes));
  nameLanes(wires);
  const results = scene.inside ? [] : scene.facts.results.map((route) => resultWire(scene, route));
  const sinks = scene.inside ? [] : sinkWires(scene);
  const merging = scene.facts.merging.map((route) => mergingWire(scene, route));
  const heads = scene.facts.heads.map((route) => headWire(scene, route));
  return [...wires, ...merging, ...heads, ...results, ...sinks].filter((wire) => wire !== null);
}

function mergingWire(scene: Scene, route: Route): Wire | null {
  const { name } = route.target;
  const target = mergePiece(scene, name) ?? (inside(scene, route.source) ? "@after" : null);
  return innerWire(scene, route, target, `into:${route.index}:${name}`);
}

function headWire(scene: Scene, route: Route): Wire | null {
  return innerWire(scene, route, scene.seen.get(route.target.name) ?? null, `head:${route.target.name}`);
}

/** A wire to a merge or to the head of a choice or a map; none within one closed container. */
function innerWire(scene: Scene, route: Route, target: string | null, id: string): Wire | null {
  const source = sourceId(scene, route);
  if (source === null || target === null || source === target) return null;
  const type = portType(scene, route.from, "outputs");
  const problems = scene.located.under(`${scene.pointer}${route.pointer}`);
  const missing = isMissing(scene, route.from, "from") ? strings.canvas.namesNoStepOfThis(route.from) : "";
  const broken = missing || (worst(problems) === "error" ? told(problems) : "");
  const data = wireData(scene, route.from, route.to, type, broken);
  return {
    id,
    source,
    target,
    data: {
      ...data,
      warning: worst(problems) === "warning" ? told(problems) : "",
      node: route.source.entry?.node ?? "",
    },
  };
}

function edgeWire(scene: Scene, route: Route, lanes: Map<string, Map<string, number>>): Wire | null {
  const source = sourceId(scene, route);
  const target = targetId(scene, route);
  if (source === null || target === null) return null;
  if (source === target && !(route.carried && route.source.entry?.id === source)) {
    const closed = scene.entries.find((entry) => entry.id === source);
    if (!closed || closed.kind !== "use") return null;
  }
  const type = portType(scene, route.from, "outputs");
  const problems = scene.located.under(`${scene.pointer}${route.pointer}`);
  const around = route.carried ? carrier(scene, route) : null;
  const broken = brokenBecause(scene, route, type) || (worst(problems) === "error" ? told(problems) : "");
  const carried = route.carried || (route.backward && route.source.entry === route.target.entry);
  const lane = carried ? laneOf(lanes, around ?? "", route.from) : 0;
  return {
    id: `edge:${route.index}`,
    source,
    target,
    data: {
      ...wireData(scene, route.from, route.to, type, broken),
      index: route.index,
      carried,
      around,
      lane,
      chips: chipsOf(route),
      warning: worst(problems) === "warning" ? told(problems) : "",
      node: route.source.entry?.node ?? "",
    },
  };
}

function wireData(scene: Scene, from: string, to: string, type: string, broken: string): WireData {
  return {
    kind: "wire",
    from,
    to,
    index: -1,
    type,
    color: type ? color(type) : "var(--line-strong)",
    carried: false,
    around: null,
    lane: 0,
    chips: [],
    broken,
    warning: "",
    dim: false,
    node: "",
    points: scene.layout.reroutes?.[`${from}>${to}`] ?? [],
    walks: [],
  };
}

/** The last wire of a lane, drawn above the others, says what the lane is. */
function nameLanes(wires: readonly (Wire | null)[]): void {
  const last = new Map<string, WireData>();
  for (const wire of wires) if (wire?.data.carried) last.set(`${wire.data.around} ${wire.data.from}`, wire.data);
  for (const data of last.values()) data.chips = [strings.canvas.nextIteration, ...data.chips];
}

/** Wires from one port to the next iteration share a lane at the loop's bottom. */
function laneOf(lanes: Map<string, Map<string, number>>, loop: string, from: string): number {
  const own = lanes.get(loop) ?? new Map<string, number>();
  lanes.set(loop, own);
  const lane = own.get(from) ?? own.size;
  own.set(from, lane);
  return lane;
}

/** All values of a loop: as one, or as a list. */
function chipOf({ collect }: Route): string {
  return collect === "list" ? "list" : "all";
}

function chipsOf(route: Route): string[] {
  const chips: string[] = [];
  if (route.enter === "first") chips.push("first");
  if (route.enter === "each" || route.leave === "each") chips.push("each");
  if (route.leave === "collect") chips.push(chipOf(route));
  return chips;
}

function carrier(scene: Scene, route: Route): ItemId | null {
  const names = route.target.entry?.loops ?? [];
  let at = route.target.entry?.parent ?? null;
  for (let depth = names.length; at; at = at.parent) {
    if (!isLoop(at.kind)) continue;
    if (depth === route.common) return at.id === scene.inside ? null : (scene.seen.get(at.id) ?? null);
    depth -= 1;
  }
  return null;
}

/** The piece that a wire begins at; null: out of sight. */
function sourceId(scene: Scene, route: Route): string | null {
  const { source, from, to } = route;
  const here = scene.inside ? inside(scene, route.target) || isShownMerge(scene, route.target) : true;
  if (!here && !inside(scene, source)) return null;
  if (source.entry) return scene.seen.get(source.entry.id) ?? "@before";
  if (source.kind === "merge" && scene.facts.merges.has(source.name))
    return mergePiece(scene, source.name) ?? (scene.inside ? "@before" : null);
  if (source.kind === "loop") {
    const loop = loopPiece(scene, from, to);
    if (loop) return scene.seen.get(loop) ?? "@before";
    return scene.inside ? "@before" : `missing:@loop`;
  }
  if (scene.inside) return "@before";
  if (source.kind === "in") return "@in";
  return source.kind === "stream" ? from : `missing:${source.name}`;
}

function targetId(scene: Scene, route: Route): string | null {
  const { target } = route;
  if (target.entry) return scene.seen.get(target.entry.id) ?? "@after";
  if (scene.inside) return inside(scene, route.source) ? "@after" : null;
  return target.kind === "out" ? "@out" : `missing:${target.name}`;
}

function inside(scene: Scene, end: End): boolean {
  return end.place !== null && scene.seen.has(end.place.id);
}

function isShownMerge(scene: Scene, end: End): boolean {
  return end.kind === "merge" && mergePiece(scene, end.name) !== null;
}

function brokenBecause(scene: Scene, route: Route, type: string): string {
  if (isMissing(scene, route.from, "from")) return strings.canvas.namesNoStepOfThis(route.from);
  if (isMissing(scene, route.to, "to")) return strings.canvas.namesNoStepOfThis(route.to);
  if (route.source.kind === "loop" && !loopPiece(scene, route.from, route.to) && !scene.inside)
    return strings.canvas.noLoopIsAround(route.source.name, route.target.name);
  if (route.source.kind === "in" && !(route.source.name in (scene.walk.inputs ?? {})))
    return strings.canvas.theWalkHasNoInput(route.source.name);
  if (route.source.kind === "stream" && !scene.graph.streams?.some((stream) => stream.name === route.source.name))
    return strings.canvas.thereIsNoStream(route.source.name);
  if (route.backward && !route.carried) return strings.canvas.goesBackButNoLoop;
  const map = route.carried ? mapCarrying(scene.facts, route) : null;
  if (map !== null) return strings.canvas.itemsAreIndependent(map);
  for (const [end, side, word] of [
    [route.source, "outputs", "output"],
    [route.target, "inputs", "input"],
  ] as const) {
    const component = end.entry && scene.catalogue[scene.graph.nodes?.[end.entry.node]?.component ?? ""];
    if (component && !component[side].some((port) => port.name === end.port))
      return strings.canvas.hasNo(end.name, word, end.port);
  }
  if (route.target.kind !== "use" || route.source.kind === "stream" || !type) return "";
  if (route.enter === "each" || route.leave === "collect") return "";
  return accepts(portType(scene, route.to, "inputs") || null, type) ?? "";
}

function resultWire(scene: Scene, route: Route): Wire {
  const type = portType(scene, route.from, "outputs");
  const source = route.source.entry
    ? (scene.seen.get(route.source.entry.id) ?? "@in")
    : route.source.kind === "merge" && !isMissing(scene, route.from, "from")
      ? (mergePiece(scene, route.source.name) ?? "@in")
      : route.source.kind === "in"
        ? "@in"
        : route.source.kind === "stream"
          ? route.from
          : `missing:${route.source.name}`;
  const problems = scene.located.under(`${scene.pointer}${route.pointer}`);
  const missing = isMissing(scene, route.from, "from") ? strings.canvas.namesNoStepOfThis(route.from) : "";
  return {
    id: `result:${route.target.name}`,
    source,
    target: "@out",
    data: {
      ...wireData(scene, route.from, `@result.${route.target.name}`, type, missing || told(problems)),
      chips: route.leave === "collect" ? [chipOf(route)] : [],
      node: route.source.entry?.node ?? "",
    },
  };
}

function sinkWires(scene: Scene): (Wire | null)[] {
  return (scene.graph.streams ?? []).map((stream) => {
    if (!stream.walks.includes(scene.name)) return null;
    const { entry, place, kind, name } = endOf(stream.from, scene.facts, "source");
    const source = entry ? (scene.seen.get(entry.id) ?? null) : kind === "merge" ? mergePiece(scene, name) : null;
    if (!source || !place) return null;
    const type = portType(scene, stream.from, "outputs");
    return {
      id: `sink:${stream.name}`,
      source,
      target: `stream:${stream.name}`,
      data: {
        ...wireData(scene, stream.from, `@sink.${stream.name}`, type, ""),
        kind: "stream" as const,
        chips: place.loops.length ? ["each"] : [],
        node: entry?.node ?? "",
      },
    };
  });
}

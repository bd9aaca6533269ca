// The entries of the palette, and the search in them. Pure.
import type { Catalogue, Component, DocumentEntry, Port } from "../../messages/answers";
import { calledGraph, familyOf, groupOf, title } from "../../catalogue/catalogue";
import { byOrder } from "../../catalogue/icons";
import { modelFamilies, suiting } from "../../catalogue/suits";
import type { Blueprint, GraphDocument } from "../../document/types";
import { itemOf, modalityOf } from "../../ui/modality";
import { ranked, type Searched } from "../../ui/search";
import { groupBy } from "../common/group";
import type { Flow, Payload } from "../../canvas/gestures/dragging";
import { strings } from "../../strings";

export interface PaletteEntry {
  /** Unique in the palette. */
  key: string;
  group: string;
  title: string;
  /** Family of the component; empty for anything else. */
  family: string;
  /** The full name that a graph writes; empty for containers, notes and frames. */
  name: string;
  description: string;
  component: Component | null;
  available: boolean;
  /** How well it suits the graph, up to 1. */
  suits: number;
  payload: Payload;
}

export interface PaletteGroup {
  title: string;
  entries: PaletteEntry[];
}

export interface Query {
  words: string;
  /** Port types that it must make (`>latents`). */
  makes: string[];
  /** Port types that it must take (`<latents`). */
  takes: string[];
}

export const FLOW = strings.panels.flow;
export const AGAIN = strings.panels.useAgain;
export const STREAMS = strings.panels.streams;
const CANVAS = strings.panels.onTheCanvas;

const FLOWS: {
  container: Flow;
  title: string;
  description: string;
}[] = [
  { container: "loop", title: strings.panels.loop2, description: strings.panels.repeatsWhatIsInside },
  { container: "map", title: strings.panels.map, description: strings.panels.runsForEveryItem },
  { container: "parallel", title: strings.panels.parallel, description: strings.panels.branchesThatMayRun },
  { container: "sequence", title: strings.panels.sequence, description: strings.panels.stepsThatBelongTogetherUnder },
  { container: "choose", title: strings.panels.choice, description: strings.panels.takesOneBranch },
  { container: "fork", title: strings.panels.fork, description: strings.panels.copiesAState },
];

/** Everything that can be put on a canvas; a Walk's canvas takes containers and nodes that exist besides. */
export function paletteOf(
  catalogue: Catalogue,
  graph: GraphDocument,
  canvas: "components" | "walk",
  walk = "",
): PaletteEntry[] {
  const inWalks = canvas === "walk" ? [...flows(), ...streams(graph, walk), ...again(catalogue, graph)] : [];
  return [...inWalks, ...components(catalogue, suiting(graph, catalogue)), ...marks()];
}

function flows(): PaletteEntry[] {
  return FLOWS.map(({ container, title, description }) => plain(FLOW, title, description, { kind: container }));
}

/** Streams that the Walk can read: those that it doesn't feed. */
function streams(graph: GraphDocument, walk: string): PaletteEntry[] {
  const others = (graph.streams ?? []).filter((stream) => !stream.walks.includes(walk));
  return others.map(({ name, walks, from }) => ({
    ...plain(STREAMS, name, strings.panels.chunks(from, walks.join(", ")), { kind: "stream", stream: name }),
    key: `stream:${name}`,
  }));
}

function again(catalogue: Catalogue, graph: GraphDocument): PaletteEntry[] {
  return Object.entries(graph.nodes ?? {}).map(([node, { component: name }]) => {
    const component = catalogue[name] ?? null;
    return {
      key: `node:${node}`,
      group: AGAIN,
      title: node,
      family: "",
      name,
      description: component?.description ?? strings.panels.thisComponentIsNot,
      component,
      available: component?.available ?? false,
      suits: 1,
      payload: { kind: "node", node },
    };
  });
}

/**
 * By what they do, or by family, in the order of categories; groups and components with a network first, and in a group
 * parts for any pipeline before those of models.
 */
function components(catalogue: Catalogue, suits: (component: Component) => number): PaletteEntry[] {
  const all = Object.values(catalogue);
  const groups = groupBy(all, groupOf);
  const models = modelFamilies(all);
  const ofModel = (component: Component) => Number(models.has(familyOf(component)));
  const runs = (members: Component[]) => members.some((component) => component.available);
  return [...groups]
    .sort(([a, left], [b, right]) => Number(runs(right)) - Number(runs(left)) || byOrder(a, b))
    .flatMap(([group, members]) =>
      members
        .toSorted((a, b) => Number(b.available) - Number(a.available) || ofModel(a) - ofModel(b) || byName(a, b))
        .map((component) => ({
          key: component.name,
          group,
          title: title(component),
          family: familyOf(component),
          name: component.name,
          description: component.description,
          component,
          available: component.available,
          suits: suits(component),
          payload: { kind: "component", component: component.name } as const,
        })),
    );
}

/** Tasks stay in the service's order: those of deployed graphs first. */
function byName(a: Component, b: Component): number {
  return calledGraph(a.name) === null ? a.name.localeCompare(b.name) : 0;
}

function marks(): PaletteEntry[] {
  return [
    plain(CANVAS, strings.panels.note, strings.panels.textForReaders, { kind: "note" }),
    plain(CANVAS, strings.panels.frame, strings.panels.aTitledAreaBehindNodes, { kind: "frame" }),
  ];
}

/** Entries other than components; their kind is their key. */
function plain(group: string, title: string, description: string, payload: Payload): PaletteEntry {
  const key = payload.kind;
  return {
    key,
    group,
    title,
    family: "",
    name: "",
    description,
    component: null,
    available: true,
    suits: 1,
    payload,
  };
}

/** `noise >latents <tokens` -> words and port filters. */
export function readQuery(text: string): Query {
  const tokens = text.trim().split(/\s+/).filter(Boolean);
  const after = (mark: string) =>
    tokens.filter((token) => token.startsWith(mark) && token.length > 1).map((token) => token.slice(1).toLowerCase());
  const words = tokens.filter((token) => !token.startsWith(">") && !token.startsWith("<")).join(" ");
  return { words, makes: after(">"), takes: after("<") };
}

/** The groups to show: as they are without a query, else one list, best first. */
export function searched(entries: readonly PaletteEntry[], text: string): PaletteGroup[] {
  const { words, makes, takes } = readQuery(text);
  const fitting = entries.filter(
    ({ component }) =>
      makes.every((type) => has(component?.outputs, type)) && takes.every((type) => has(component?.inputs, type)),
  );
  if (!words && makes.length + takes.length === 0) return grouped(fitting);
  // The whole name of a component means that one, rather than a node of it.
  const adjust = (score: number, { key, available, suits }: PaletteEntry) =>
    (key === words ? 1 : score * suits) * (available ? 1 : UNAVAILABLE);
  const found = words ? ranked(fitting, words, { texts: TEXTS, least: 0.35, adjust }) : fitting;
  return found.length
    ? [{ title: found.length === 1 ? strings.panels.n1Found : strings.panels.found(found.length), entries: found }]
    : [];
}

function grouped(entries: readonly PaletteEntry[]): PaletteGroup[] {
  return [...groupBy(entries, (entry) => entry.group)].map(([title, members]) => ({ title, entries: members }));
}

/** The searched texts, and how much a hit in each counts. */
const TEXTS: readonly Searched<PaletteEntry>[] = [
  [(entry) => entry.title, 1],
  [(entry) => entry.name, 0.95],
  [(entry) => entry.group, 0.8],
  [(entry) => entry.family, 0.8],
  [(entry) => portWords(entry.component), 0.75],
  [(entry) => entry.description, 0.55],
];
const UNAVAILABLE = 0.85;

function portWords(component: Component | null): string {
  const ports = component ? [...component.inputs, ...component.outputs] : [];
  return [...new Set(ports.flatMap((port) => [modalityOf(port.type), port.name]))].join(" ");
}

function has(ports: readonly Port[] | undefined, type: string): boolean {
  return ports?.some((port) => itemOf(port.type).startsWith(type)) ?? false;
}

/** The modalities of some ports, each once, in order. */
export function modalities(ports: readonly Port[]): string[] {
  return [...new Set(ports.map((port) => modalityOf(port.type)))];
}

/** The blueprints of a graph whose entry in the library has changed since they were copied. */
export function outdated(
  blueprints: Readonly<Record<string, Blueprint>> | undefined,
  entries: readonly Pick<DocumentEntry, "name" | "etag">[],
): string[] {
  const etags = new Map(entries.map(({ name, etag }) => [name, etag]));
  return Object.entries(blueprints ?? {}).flatMap(([name, { origin }]) => {
    const now = origin && etags.get(origin.name);
    return now && now !== origin.version ? [name] : [];
  });
}

// Everything that the command palette can go to or do, and how words find it. Pure.
import type { Catalogue, Problem } from "../../messages/answers";
import { portsOf } from "../../document/ports";
import { factsOf } from "../../document/routes";
import { isLoop } from "../../document/tree";
import type { Choose, GraphDocument, Walk } from "../../document/types";
import { modalityOf } from "../../ui/modality";
import { ranked } from "../../ui/search";
import { locate, type Located } from "../../store/locate";
import { strings } from "../../strings";

export type Place = Pick<Located, "tab" | "canvas" | "selection">;

export interface Target {
  key: string;
  /** A kind of `KIND_ICONS`. */
  kind: string;
  title: string;
  detail: string;
  place: Place;
  /** The component node behind it; empty for what has none. */
  node: string;
}

/** Choices by their values, their cases, and merges: kind, id and title. */
function choicesOf(name: string, walk: Walk): [kind: string, id: string, title: string][] {
  const facts = factsOf(walk);
  const items = facts.list.flatMap((entry): [string, string, string][] => {
    if (entry.kind === "case") return [[entry.kind, entry.id, entry.name]];
    return entry.kind === "choose" ? [["choose", entry.id, (entry.item as Choose).choose || name]] : [];
  });
  return [
    ...items,
    ...[...facts.merges.keys()].map((merge): [string, string, string] => ["merge", `merge:${merge}`, merge]),
  ];
}

/** Everything in a document that can be shown. */
export function targetsOf(graph: GraphDocument, problems: readonly Problem[]): Target[] {
  const components: Place = { tab: "graph", canvas: { kind: "components" }, selection: [] };
  const walks = Object.entries(graph.walks ?? {}).flatMap(([name, walk]) => {
    const canvas = { kind: "walk", walk: name, inside: null } as const;
    const own = { tab: "graph", canvas, selection: [] as string[] } as const;
    const items = factsOf(walk).list.filter((entry) => entry.kind === "use" || isLoop(entry.kind));
    return [
      target("walk", `walk:${name}`, name, walk.label ?? "Walk", own),
      ...items.map((entry) =>
        target(
          entry.kind,
          `${name}/${entry.id}`,
          entry.name,
          strings.panels.in(isLoop(entry.kind) ? entry.kind : entry.node === entry.name ? "use" : entry.node, name),
          { ...own, selection: [entry.id] },
          entry.node,
        ),
      ),
      ...choicesOf(name, walk).map(([kind, id, title]) =>
        target(kind, `${name}/${id}`, title, strings.panels.in(kind, name), { ...own, selection: [id] }),
      ),
    ];
  });
  const on = (id: string): Place => ({ ...components, selection: [id] });
  return [
    ...walks,
    ...Object.entries(graph.nodes ?? {}).map(([name, node]) =>
      target("node", `node:${name}`, name, node.component, on(`node:${name}`), name),
    ),
    ...(graph.streams ?? []).map(({ name, from }) =>
      target("stream", `stream:${name}`, name, strings.panels.stream(from), on(`stream:${name}`)),
    ),
    ...Object.entries(graph.states ?? {}).map(([name, state]) =>
      target("state", `state:${name}`, name, `state, ${state.kind}`, components),
    ),
    ...Object.entries(graph.tasks ?? {}).map(([name, task]) =>
      target("task", `task:${name}`, name, task.label || "task", {
        ...components,
        tab: "tasks",
        selection: [`task:${name}`],
      }),
    ),
    ...problems.map((problem, index) => {
      const at = locate(graph, problem.pointer);
      return target("problem", `problem:${index}`, problem.message.replaceAll("`", ""), at.place, at);
    }),
  ];
}

function target(kind: string, key: string, title: string, detail: string, place: Place, node = ""): Target {
  return { kind, key, title, detail, place, node };
}

export interface Command {
  name: string;
  keys?: string;
  /** Why it can't run now; null: it can. */
  blocked: string | null;
  run: () => void;
}

export type Found = { kind: "target"; target: Target } | { kind: "command"; command: Command };

export interface Wanted {
  words: string;
  /** `:latents`: a port type, or a kind of thing (`:loop`). */
  types: string[];
  /** `@1`: a rank. */
  ranks: number[];
}

export function readWanted(text: string): Wanted {
  const tokens = text.trim().split(/\s+/).filter(Boolean);
  return {
    words: tokens.filter((token) => !/^[:@]/.test(token)).join(" "),
    types: tokens.filter((token) => /^:./.test(token)).map((token) => token.slice(1).toLowerCase()),
    ranks: tokens.filter((token) => /^@\d+$/.test(token)).map((token) => Number(token.slice(1))),
  };
}

interface Searched {
  graph: GraphDocument;
  catalogue: Catalogue;
  /** The ranks that a node runs on. */
  ranks: (node: string, walk: string | null) => readonly number[];
  targets: readonly Target[];
  commands: readonly Command[];
  /** The open Walk: what is in it comes before its like elsewhere. */
  near: string | null;
}

const MOST = 60;

/** The matches, best first. Filters keep entries with a node of that type or rank; commands have neither. */
export function sought(text: string, { graph, catalogue, ranks, targets, commands, near }: Searched): Found[] {
  const wanted = readWanted(text);
  const ofType = (one: Target, type: string): boolean => {
    if (one.kind.startsWith(type)) return true;
    const ports = one.node ? portsOf(graph, catalogue, one.node) : null;
    const types = ports ? [...ports.inputs, ...ports.outputs].map((port) => modalityOf(port.type)) : [];
    return types.some((modality) => modality.startsWith(type));
  };
  const fitting = targets.filter(
    (one) =>
      wanted.types.every((type) => ofType(one, type)) &&
      wanted.ranks.every((rank) => one.node !== "" && ranks(one.node, walkOf(one)).includes(rank)),
  );
  const filtered = wanted.types.length + wanted.ranks.length > 0;
  const all: Found[] = [
    ...fitting.map((one): Found => ({ kind: "target", target: one })),
    ...(filtered ? [] : commands.map((command): Found => ({ kind: "command", command }))),
  ];
  if (!wanted.words) return all.slice(0, MOST);
  return ranked(all, wanted.words, {
    texts: [
      [(found) => (found.kind === "target" ? found.target.title : found.command.name), 1],
      [(found) => (found.kind === "target" ? found.target.detail : ""), 0.7],
    ],
    least: 0.35,
    most: MOST,
    adjust: (score, found) => score + nearness(found, near),
  });
}

/** Breaks ties: the open Walk's own first, then whole things before their uses. */
function nearness(found: Found, near: string | null): number {
  if (found.kind === "command") return 0.01;
  const { target } = found;
  if (near !== null && walkOf(target) === near) return 0.02;
  return target.kind === "use" || target.kind === "problem" ? 0 : 0.01;
}

/** The Walk of a use. */
function walkOf({ place }: Target): string | null {
  return place.canvas.kind === "walk" ? place.canvas.walk : null;
}

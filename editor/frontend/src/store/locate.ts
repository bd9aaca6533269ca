// Where in the editor a place of the documents is shown, and how to go there: what a problem's pointer selects.
import { BLUEPRINT } from "../document/blueprints/inside";
import { isUnder, join, split } from "../document/pointer";
import { entries, flat } from "../document/tree";
import type { GraphDocument, Pointer } from "../document/types";
import type { Editor } from "./editor";
import type { Canvas, Tab } from "./types";
import { strings } from "../strings";

export interface Located {
  tab: Tab;
  canvas: Canvas;
  selection: string[];
  /** A short name of its subject: `Walk decode`, `Component llm`. */
  place: string;
  /** The part of it, if it is not the whole: `edge 3`, `loop tokens`. */
  part: string;
}

const COMPONENTS: Canvas = { kind: "components" };

/** Show the place: its tab, its canvas, and what is selected there. */
export function go(editor: Editor, { tab, canvas, selection }: Pick<Located, "tab" | "canvas" | "selection">): void {
  if (tab === "graph") editor.open(canvas, selection);
  else editor.see({ tab, selection });
}

/** `pointer`: into the graph; of the placement, its groups, ranks and hosts. */
export function locate(graph: GraphDocument, pointer: Pointer): Located {
  const [section = "", name = "", ...rest] = split(pointer);
  switch (section) {
    case "nodes":
      return name === ""
        ? whole(strings.shell.graph)
        : located(
            COMPONENTS,
            `node:${name}`,
            strings.shell.component(name),
            words(rest.filter((word) => word !== "component")),
          );
    case "walks":
      return name in (graph.walks ?? {})
        ? inWalk(graph, name, rest)
        : whole(name ? strings.shell.walk(name) : strings.shell.graph);
    case "streams": {
      const stream = graph.streams?.[Number(name)];
      return stream
        ? located(COMPONENTS, `stream:${stream.name}`, strings.shell.stream(stream.name), words(rest))
        : whole(strings.shell.graph, "streams");
    }
    case "tasks":
      return {
        tab: "tasks",
        canvas: COMPONENTS,
        selection: name ? [`task:${name}`] : [],
        place: name ? strings.shell.task(name) : strings.shell.tasks,
        part: words(rest),
      };
    case "blueprints": {
      const standing = Object.entries(graph.nodes ?? {}).find(([, node]) => node.component === BLUEPRINT + name);
      const id = standing ? `node:${standing[0]}` : null;
      return name ? located(COMPONENTS, id, strings.shell.blueprint(name), words(rest)) : whole(strings.shell.graph);
    }
    case "groups":
    case "ranks":
    case "hosts":
      return {
        tab: "placement",
        canvas: COMPONENTS,
        selection: [],
        place: strings.shell.placement,
        part: words([section, name]),
      };
    case "states":
    case "weights":
      return name
        ? located(
            COMPONENTS,
            null,
            `${section === "states" ? strings.shell.state : strings.shell.weights} ${name}`,
            words(rest),
          )
        : whole(strings.shell.graph, section);
    default:
      return whole(strings.shell.graph, words([section, name, ...rest]));
  }
}

function inWalk(graph: GraphDocument, walk: string, rest: string[]): Located {
  const canvas: Canvas = { kind: "walk", walk, inside: null };
  const place = strings.shell.walk(walk);
  const [section = "", name = ""] = rest;
  if (section === "edges" && name !== "") return located(canvas, `edge:${name}`, place, edgeWords(graph, walk, name));
  if (section === "inputs") return located(canvas, "@in", place, name ? strings.shell.input(name) : "inputs");
  if (section === "results") return located(canvas, "@out", place, name ? strings.shell.result(name) : "results");
  if (section === "merges" && name !== "") return located(canvas, `merge:${name}`, place, strings.shell.merge(name));
  if (section !== "body") return located(canvas, null, place, words(rest));
  const pointer = join(...rest);
  const entry = flat(entries(graph.walks![walk]!)).findLast((candidate) => isUnder(pointer, candidate.pointer));
  if (!entry) return located(canvas, null, place, "body");
  const below = pointer.slice(entry.pointer.length).split("/").filter(Boolean);
  const inside = below.map((word) => (entry.kind === "map" && word === "map" ? strings.shell.list : word));
  const kind = entry.kind === "choose" ? strings.shell.choice : entry.kind;
  const what = entry.kind === "use" ? entry.name : [kind, entry.name].filter(Boolean).join(" ");
  return located(canvas, entry.id, place, [what, words(inside)].filter(Boolean).join(", "));
}

function edgeWords(graph: GraphDocument, walk: string, index: string): string {
  const edge: unknown = graph.walks?.[walk]?.edges?.[Number(index)];
  const [from, to] = Array.isArray(edge)
    ? (edge as unknown[])
    : typeof edge === "object" && edge !== null
      ? [(edge as { from?: unknown }).from, (edge as { to?: unknown }).to]
      : [];
  return typeof from === "string" && typeof to === "string" ? `${from} → ${to}` : strings.shell.edge(index);
}

function located(canvas: Canvas, id: string | null, place: string, part: string): Located {
  return { tab: "graph", canvas, selection: id === null ? [] : [id], place, part };
}

function whole(place: string, part = ""): Located {
  return located(COMPONENTS, null, place, part);
}

/** The rest of a pointer in the page's words: `params/time` -> `parameter time`, `steps/0/with/text` -> `step 1, text`. */
function words(parts: readonly string[]): string {
  const found: string[] = [];
  const left = parts.filter((part) => part !== "" && part !== "with");
  for (let index = 0; index < left.length; index += 1) {
    const part = left[index]!;
    const called = CALLED[part] ?? part;
    const next = left[index + 1];
    const named = next !== undefined && (part in CALLED || /^\d+$/.test(next));
    found.push(named ? `${called} ${/^\d+$/.test(next) ? Number(next) + 1 : next}` : part);
    if (named) index += 1;
  }
  return found.join(", ");
}

/** A key of the document -> what the page calls one of its entries. */
const CALLED: Readonly<Record<string, string>> = {
  params: strings.shell.parameter,
  states: strings.shell.slot,
  inputs: strings.shell.anInput,
  outputs: strings.shell.anOutput,
  steps: strings.shell.step,
};

// The subject of the inspector, from the selection. Pure.
import { factsOf } from "../../document/routes";
import type { Entry } from "../../document/tree";
import type { GraphDocument } from "../../document/types";
import type { Canvas, View } from "../../store/types";
import { strings } from "../../strings";

export type Subject =
  | { kind: "graph" }
  | { kind: "walk"; walk: string }
  | { kind: "inputs" | "outputs"; walk: string }
  | { kind: "node"; node: string }
  | { kind: "item"; walk: string; entry: Entry }
  | { kind: "edge"; walk: string; index: number }
  | { kind: "merge"; walk: string; name: string }
  | { kind: "stream"; stream: string }
  | { kind: "note" | "frame"; id: string; canvas: Canvas }
  | { kind: "many"; walk: string | null; ids: readonly string[] };

export function subjectOf(graph: GraphDocument, { canvas, selection }: Pick<View, "canvas" | "selection">): Subject {
  const walk = canvas.kind === "walk" ? canvas.walk : null;
  const whole: Subject = walk === null ? { kind: "graph" } : { kind: "walk", walk };
  const ids = selection.filter((id) => !id.startsWith("task:"));
  const id = ids[0];
  if (id === undefined) return whole;
  if (ids.length > 1) return { kind: "many", walk, ids };
  const [head = "", rest = ""] = id.split(/:(.*)/s, 2);
  if (head === "note" || head === "frame") return { kind: head, id: rest, canvas };
  if (head === "stream") return { kind: "stream", stream: rest };
  if (head === "node") return rest in (graph.nodes ?? {}) ? { kind: "node", node: rest } : whole;
  if (walk === null) return whole;
  if (id.startsWith("@stream.")) return { kind: "stream", stream: id.slice("@stream.".length) };
  if (id === "@in") return { kind: "inputs", walk };
  if (id === "@out") return { kind: "outputs", walk };
  if (head === "edge") return { kind: "edge", walk, index: Number(rest) };
  const body = graph.walks?.[walk];
  // A wire to a merge, a choice or a map is about where it ends.
  const merge = head === "merge" ? rest : head === "into" ? rest.slice(rest.indexOf(":") + 1) : null;
  if (merge !== null) return body && factsOf(body).merges.has(merge) ? { kind: "merge", walk, name: merge } : whole;
  const entry = body && factsOf(body).byId.get(head === "head" ? rest : id);
  return entry ? { kind: "item", walk, entry } : whole;
}

/** The heading: what kind of thing, and which. */
export function headingOf(subject: Subject, graph: GraphDocument): { kind: string; title: string } {
  switch (subject.kind) {
    case "graph":
      return { kind: "graph", title: graph.name };
    case "walk":
      return { kind: strings.inspector.walk, title: subject.walk };
    case "inputs":
    case "outputs":
      return { kind: subject.kind, title: subject.walk };
    case "node":
      return { kind: "component", title: subject.node };
    case "item":
      return {
        kind: KINDS[subject.entry.kind] ?? subject.entry.kind,
        title: subject.entry.name || titleOf(subject.entry),
      };
    case "merge":
      return { kind: subject.kind, title: subject.name };
    case "edge":
      return { kind: "edge", title: subject.walk };
    case "stream":
      return { kind: "stream", title: subject.stream };
    case "note":
    case "frame":
      return { kind: subject.kind, title: "" };
    case "many":
      return { kind: "", title: strings.inspector.selectedWithCount(subject.ids.length) };
  }
}

const KINDS: Partial<Record<Entry["kind"], string>> = { choose: strings.inspector.choice };

function titleOf(entry: Entry): string {
  if (entry.kind !== "fork") return "";
  const { fork, into } = entry.item as { fork: string; into: string };
  return `${fork} → ${into}`;
}

/** One inspector for one thing: another thing gets fresh fields. */
export function subjectKey(subject: Subject): string {
  switch (subject.kind) {
    case "graph":
      return "graph";
    case "walk":
    case "inputs":
    case "outputs":
      return `${subject.kind}/${subject.walk}`;
    case "node":
      return `node/${subject.node}`;
    case "item":
      return `item/${subject.walk}/${subject.entry.id}`;
    case "edge":
      return `edge/${subject.walk}/${subject.index}`;
    case "merge":
      return `merge/${subject.walk}/${subject.name}`;
    case "stream":
      return `stream/${subject.stream}`;
    case "note":
    case "frame":
      return `${subject.kind}/${subject.id}`;
    case "many":
      return `many/${subject.ids.join()}`;
  }
}

// Differences between the deployed and the open graph, by node. Pure.
import { readLink, splitReference, whenOf } from "../document/names";
import { entries, flat, type Entry } from "../document/tree";
import type { GraphDocument, Walk } from "../document/types";
import type { EditorState } from "../store/types";
import { perObject } from "../document/perObject";

const NONE: ReadonlySet<string> = new Set();
let latest: { deployed: GraphDocument; graph: GraphDocument; changed: Set<string> } | null = null;

/**
 * Nodes of the open graph whose definition differs from what is deployed, or that a Walk uses or wires differently.
 * Empty where nothing is deployed. The same set for the same documents.
 */
export function changedNodes(state: Pick<EditorState, "documents" | "deployed">): Set<string> {
  const { deployed } = state;
  const { graph } = state.documents;
  if (!deployed || deployed === graph) return NONE as Set<string>;
  if (latest?.deployed === deployed && latest.graph === graph) return latest.changed;
  const before = signatures(deployed);
  const changed = new Set<string>();
  for (const [node, signature] of signatures(graph)) if (before.get(node) !== signature) changed.add(node);
  latest = { deployed, graph, changed };
  return changed;
}

/** Node -> all that the document says about it, as text that is equal where nothing differs. */
const signatures = perObject((graph: GraphDocument): ReadonlyMap<string, string> => {
  const facts = new Map<string, string[]>();
  for (const [name, node] of Object.entries(graph.nodes ?? {})) {
    const states = Object.values(node.states ?? {}).map((state) => [state, graph.states?.[state]]);
    const weights = node.weights ? graph.weights?.[node.weights] : null;
    facts.set(name, [canonical([node, weights, states])]);
  }
  const tell = (node: string, fact: unknown[]) => facts.get(node)?.push(canonical(fact));
  for (const [name, walk] of Object.entries(graph.walks ?? {})) walkFacts(name, walk, tell);
  for (const stream of graph.streams ?? []) {
    const producer = splitReference(stream.from)[0];
    for (const walk of stream.walks) {
      const node = usesOf(graph.walks?.[walk]).get(producer)?.node;
      if (node !== undefined) tell(node, ["stream", stream]);
    }
  }
  return new Map([...facts].map(([node, lines]) => [node, lines.sort().join("\n")]));
});

function walkFacts(name: string, walk: Walk, tell: (node: string, fact: unknown[]) => void): void {
  const uses = usesOf(walk);
  for (const use of uses.values()) tell(use.node, [name, use.name, whenOf(use.item), around(use)]);
  for (const link of walk.edges ?? []) {
    const edge = readLink(link);
    for (const end of [edge.from, edge.to]) {
      const node = uses.get(splitReference(end)[0])?.node;
      if (node !== undefined) tell(node, [name, edge]);
    }
  }
  for (const [merge, sources] of Object.entries(walk.merges ?? {}))
    for (const source of Array.isArray(sources) ? sources : []) {
      const node = uses.get(splitReference(source)[0])?.node;
      if (node !== undefined) tell(node, [name, "merge", merge, sources]);
    }
}

function usesOf(walk: Walk | undefined): Map<string, Entry> {
  const all = walk ? flat(entries(walk)) : [];
  return new Map(all.filter((entry) => entry.kind === "use").map((entry) => [entry.name, entry]));
}

/** The containers around a use, without what they hold. */
function around(use: Entry): unknown[] {
  const found: unknown[] = [];
  for (let entry = use.parent; entry; entry = entry.parent) {
    const item = entry.item;
    const fields = Array.isArray(item) || typeof item !== "object" ? {} : { ...(item as object) };
    for (const inner of ["body", "parallel", "sequence", "cases", "otherwise"])
      if (inner in fields) delete fields[inner as never];
    found.push([entry.kind, entry.name, fields]);
  }
  return found;
}

/** JSON with sorted keys. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, child: unknown) =>
    typeof child === "object" && child !== null && !Array.isArray(child)
      ? Object.fromEntries(Object.entries(child).sort(([a], [b]) => (a < b ? -1 : 1)))
      : child,
  );
}

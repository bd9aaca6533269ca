// The components canvas: every node once, with all wires that some Walk draws, and the streams. Pure.
import { portsOf } from "../../document/ports";
import { accepts } from "../../document/typing";
import { factsOf } from "../../document/routes";
import { union, type Union } from "../../document/union";
import { color } from "../../ui/modality";
import { useSize } from "../shapes/geometry";
import type { GraphDocument } from "../../document/types";
import type { Catalogue } from "../../messages/answers";
import { agreeing, type Link } from "../layout/layered";
import type { Dependency, Piece, PortShown, UseData, Wire } from "../shapes/types";
import { dependenciesAmong } from "./dependencies";
import { bare, blockColor, shown, statesOf } from "./ports";
import { PREVIEW_ROOM, previewing } from "./previews";
import { Located, told, worst } from "./problems";
import { chunkText } from "./streams";
import type { Shown } from "./scene";
import type { Drawn } from "./walk";
import { perObject } from "../../document/perObject";
import { strings } from "../../strings";

export function componentsDrawn(scene: Shown, lit: string | null): Drawn {
  const whole = union(scene.graph);
  const located = new Located(scene.problems);
  const numbers = lit === null ? null : wayOf(scene, lit);
  const users = usersOf(scene);
  const ins = fedPorts(scene);
  const { dependencies, order: orders } = flowOf(scene.graph)(scene.catalogue);
  const outs = new Set(whole.edges.map(({ from }) => `${from.node}.${from.port}`));
  for (const stream of whole.streams) {
    for (const { node, port } of stream.from) outs.add(`${node}.${port}`);
    for (const { node, port } of stream.to) ins.add(`${node}.${port}`);
  }
  const shows = previewing(scene.graph, scene.catalogue);
  const pieces = whole.nodes.map((node, order): Piece => {
    const data = nodeData(scene, node, located, users.get(node) ?? 0, { ins, outs });
    if (numbers) {
      data.dim = !numbers.has(node);
      data.badge = (numbers.get(node) ?? []).join(" ");
    }
    const place = { id: `node:${node}`, parent: null, order: orders.get(node) ?? order };
    const label = `${node}, ${data.component}, ${data.footnote}`;
    return { ...place, data, size: useSize(data), below: shows.has(node) ? PREVIEW_ROOM : 0, pad: null, label };
  });
  return { pieces, wires: [...edgeWires(scene, lit), ...streamWires(scene, lit, located)], dependencies };
}

/** The inputs that some Walk feeds, be it from outside. */
function fedPorts(scene: Shown): Set<string> {
  const fed = new Set<string>();
  for (const walk of Object.values(scene.graph.walks ?? {}))
    for (const { target } of factsOf(walk).routes) if (target.entry) fed.add(`${target.entry.node}.${target.port}`);
  return fed;
}

/** Who reads what others left in states, and the order of the layout by that and the wires. */
const flowOf = perObject((graph: GraphDocument) =>
  perObject((catalogue: Catalogue) => {
    const dependencies = dependenciesAmong(graph, catalogue);
    return { dependencies, order: flowOrder(union(graph), dependencies) };
  }),
);

/**
 * Sources before targets, for the layout; where edges run in a circle, what gives most comes first. What wires leave
 * open is in the order of states.
 */
function flowOrder(whole: Union, dependencies: readonly Dependency[]): ReadonlyMap<string, number> {
  const left = new Set(whole.nodes);
  const flows = whole.streams.flatMap(({ from, to }) => from.flatMap((a) => to.map((b) => ({ from: a, to: b }))));
  const edges = whole.edges.filter((edge) => !edge.carried);
  const links = [...edges, ...flows].filter((edge) => edge.from.node !== edge.to.node);
  const order = new Map<string, number>();
  const ids = links.map(({ from, to }): Link => [`node:${from.node}`, `node:${to.node}`]);
  const after = agreeing(
    ids,
    dependencies.map(({ source, target }): Link => [source, target]),
  );
  const waits = (node: string) =>
    after.some(([source, target]) => target === `node:${node}` && left.has(source.slice("node:".length)));
  while (left.size) {
    const balance = new Map([...left].map((node) => [node, { into: 0, out: 0 }]));
    for (const { from, to } of links) {
      if (!left.has(from.node) || !left.has(to.node)) continue;
      (balance.get(from.node) as { out: number }).out += 1;
      (balance.get(to.node) as { into: number }).into += 1;
    }
    const ready = [...balance].filter(([node]) => !waits(node));
    const free = ready.filter(([, { into }]) => into === 0).map(([node]) => node);
    const most = () =>
      (ready.length ? ready : [...balance]).sort(([, a], [, b]) => b.out - b.into - (a.out - a.into)).slice(0, 1);
    for (const node of free.length ? free : most().map(([node]) => node)) {
      order.set(node, order.size);
      left.delete(node);
    }
  }
  return order;
}

/** Node -> the numbers of its steps on a Walk's way. */
function wayOf(scene: Shown, walk: string): Map<string, number[]> {
  const found = new Map<string, number[]>();
  const body = scene.graph.walks?.[walk];
  for (const entry of body ? factsOf(body).list : [])
    if (entry.kind === "use") found.set(entry.node, [...(found.get(entry.node) ?? []), entry.order + 1]);
  return found;
}

function usersOf(scene: Shown): Map<string, number> {
  const counts = new Map<string, number>();
  for (const walk of Object.values(scene.graph.walks ?? {})) {
    const nodes = new Set(factsOf(walk).list.flatMap((entry) => (entry.kind === "use" ? [entry.node] : [])));
    for (const node of nodes) counts.set(node, (counts.get(node) ?? 0) + 1);
  }
  return counts;
}

function nodeData(
  scene: Shown,
  name: string,
  located: Located,
  walks: number,
  wired: { ins: ReadonlySet<string>; outs: ReadonlySet<string> },
): UseData {
  const node = scene.graph.nodes?.[name];
  const { component, inputs, outputs } = portsOf(scene.graph, scene.catalogue, name);
  const ports = (list: typeof inputs, used: ReadonlySet<string>): PortShown[] =>
    list.map((port) => {
      const ref = `${name}.${port.name}`;
      return port.ghost
        ? bare(ref, "", { ghost: true, wired: used.has(ref) })
        : { ...shown(port, name), wired: used.has(ref) };
    });
  return {
    kind: "use",
    name,
    node: name,
    component: node?.component ?? strings.canvas.noSuchNode,
    description: component?.description ?? "",
    inputs: ports(inputs, wired.ins),
    outputs: ports(outputs, wired.outs),
    states: statesOf(scene.graph, scene.catalogue, node),
    badge: "",
    when: "",
    problems: located.under(`/nodes/${name}`),
    ghost: !component,
    drawnOnly: component ? !component.available : false,
    muted: "",
    dim: false,
    ranks: scene.ranks.get(name) ?? [],
    color: blockColor(scene.catalogue, node),
    others: [],
    footnote: walks === 0 ? strings.canvas.inNoWalkYet : walks === 1 ? "in 1 Walk" : strings.canvas.inWalks(walks),
  };
}

function edgeWires(scene: Shown, lit: string | null): Wire[] {
  return union(scene.graph).edges.map((edge): Wire => {
    const from = `${edge.from.node}.${edge.from.port}`;
    const to = `${edge.to.node}.${edge.to.port}`;
    const source = typeOf(scene, edge.from, "outputs");
    const target = typeOf(scene, edge.to, "inputs");
    return {
      id: `wire:${from}>${to}`,
      source: `node:${edge.from.node}`,
      target: `node:${edge.to.node}`,
      data: {
        kind: "wire",
        from,
        to,
        index: -1,
        type: source,
        color: source ? color(source) : "var(--line-strong)",
        carried: edge.carried || edge.from.node === edge.to.node,
        around: null,
        lane: 0,
        chips: [],
        broken: accepts(modality(target), modality(source)) ?? "",
        warning: "",
        dim: lit !== null && !edge.walks.includes(lit),
        node: edge.from.node,
        points: scene.layout.reroutes?.[`${from}>${to}`] ?? [],
        walks: edge.walks,
      },
    };
  });
}

/** Walks may slice or stack on the way, so that only the modality can be judged here. */
function modality(type: string): string | null {
  return type ? (type.split(":", 1)[0]?.trim() ?? null) : null;
}

function streamWires(scene: Shown, lit: string | null, located: Located): Wire[] {
  return union(scene.graph).streams.flatMap((stream) => {
    const document = scene.graph.streams?.[stream.index];
    const problems = located.under(`/streams/${stream.index}`);
    return stream.from.flatMap((from, a) =>
      stream.to.map((to, b): Wire => {
        const source = `${from.node}.${from.port}`;
        const type = typeOf(scene, from, "outputs");
        return {
          id: a || b ? `stream:${stream.name}#${a}.${b}` : `stream:${stream.name}`,
          source: `node:${from.node}`,
          target: `node:${to.node}`,
          data: {
            kind: "stream",
            from: source,
            to: `${to.node}.${to.port}`,
            index: stream.index,
            type,
            color: type ? color(type) : "var(--line-strong)",
            carried: false,
            around: null,
            lane: 0,
            chips: document ? [`${stream.name}: ${chunkText(document)}`] : [stream.name],
            broken: worst(problems) === "error" ? told(problems) : "",
            warning: worst(problems) === "warning" ? told(problems) : "",
            dim: lit !== null && to.walk !== lit && !(document?.walks.includes(lit) ?? false),
            node: from.node,
            points: scene.layout.reroutes?.[`${source}>${to.node}.${to.port}`] ?? [],
            walks: [],
          },
        };
      }),
    );
  });
}

function typeOf(scene: Shown, end: { node: string; port: string }, side: "inputs" | "outputs"): string {
  return portsOf(scene.graph, scene.catalogue, end.node)[side].find((port) => port.name === end.port)?.type ?? "";
}

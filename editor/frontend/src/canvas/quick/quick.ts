// The entries of the quick list and their order. Pure.
import type { Catalogue, Port } from "../../messages/answers";
import { suiting } from "../../catalogue/suits";
import { streamType } from "../../document/ports";
import { accepts, parseType } from "../../document/typing";
import type { GraphDocument } from "../../document/types";
import type { Canvas } from "../../store/types";
import type { Replaced, Wiring } from "../gestures/board";
import { payloadName, type Flow, type Payload } from "../gestures/dragging";
import { ranked } from "../../ui/search";
import { strings } from "../../strings";

export interface Offer {
  key: string;
  title: string;
  note: string;
  payload: Payload;
  /** The port that a hanging wire goes to. */
  port: Port | null;
  available: boolean;
  /** How well it suits the graph, up to 1. */
  suits: number;
}

const FLOW: [Flow, string][] = [
  ["loop", strings.canvas.repeatsWhatIsInside],
  ["map", strings.canvas.runsForEveryItem],
  ["parallel", strings.canvas.branchesAtTheSameTime],
  ["sequence", strings.canvas.stepsUnderOneCondition],
  ["choose", strings.canvas.takesOneBranchByAValue],
  ["fork", strings.canvas.copiesAState],
];

export function offers(graph: GraphDocument, catalogue: Catalogue, canvas: Canvas, wire: Wiring | null): Offer[] {
  const walk = canvas.kind === "walk";
  const port = (component: string): Port | null | undefined => (wire ? fitting(catalogue, component, wire) : null);
  const nodes = walk ? Object.entries(graph.nodes ?? {}) : [];
  const again = nodes.flatMap(([node, { component }]): Offer[] => {
    const at = port(component);
    if (at === undefined) return [];
    const note = strings.canvas.useAgain(component);
    return [
      {
        key: `node:${node}`,
        title: node,
        note,
        payload: { kind: "node", node },
        port: at,
        available: true,
        suits: 1,
      },
    ];
  });
  const suits = suiting(graph, catalogue);
  const fresh = Object.values(catalogue)
    .toSorted((a, b) => Number(b.available) - Number(a.available) || suits(b) - suits(a))
    .flatMap((component): Offer[] => {
      const at = port(component.name);
      if (at === undefined) return [];
      const payload: Payload = { kind: "component", component: component.name };
      const { name, description, available } = component;
      return [{ key: name, title: name, note: description, payload, port: at, available, suits: suits(component) }];
    });
  const chunks = canvas.kind === "walk" ? streamsFor(graph, catalogue, canvas.walk, wire) : [];
  const flow = walk && !wire ? FLOW.map(([kind, note]): Offer => plain(kind, note)) : [];
  const marks = wire
    ? []
    : [plain("note", strings.canvas.textForReaders), plain("frame", strings.canvas.aTitledArea)];
  return [...chunks, ...again, ...fresh, ...flow, ...marks];
}

/** The streams that a Walk may read: other Walks feed them, and their items fit the wire. */
function streamsFor(graph: GraphDocument, catalogue: Catalogue, walk: string, wire: Wiring | null): Offer[] {
  if (wire?.end === "source") return [];
  return (graph.streams ?? []).flatMap(({ name, walks, from }): Offer[] => {
    if (walks.includes(walk) || (wire && accepts(wire.type || null, streamType(graph, catalogue, name)) !== null))
      return [];
    const note = strings.canvas.streamWithWalks(from, walks.join(", "));
    const payload: Payload = { kind: "stream", stream: name };
    return [{ key: `stream:${name}`, title: name, note, payload, port: null, available: true, suits: 1 }];
  });
}

/** Replacements for a node: other nodes for one use, other components for all uses. */
export function replacements(
  graph: GraphDocument,
  catalogue: Catalogue,
  canvas: Canvas,
  { node }: Replaced,
): Offer[] {
  const own = graph.nodes?.[node]?.component;
  const all = offers(graph, catalogue, canvas, null);
  return all.flatMap((offer): Offer[] => {
    const { payload } = offer;
    if (payload.kind === "node")
      return payload.node === node
        ? []
        : [{ ...offer, note: offer.note.replace(strings.canvas.useAgain2, strings.canvas.inThisStepOnly) }];
    return payload.kind === "component" && payload.component !== own ? [offer] : [];
  });
}

function plain(kind: Flow | "note" | "frame", note: string): Offer {
  return { key: kind, title: payloadName({ kind }), note, payload: { kind }, port: null, available: true, suits: 1 };
}

/** The port of a component that suits a wire best: of its name, then one that is needed; undefined: none fits. */
function fitting(catalogue: Catalogue, name: string, wire: Wiring): Port | undefined {
  const component = catalogue[name];
  if (!component) return undefined;
  const same = (port: Port) => !wire.type || parseType(port.type)?.modality === parseType(wire.type)?.modality;
  const given = wire.type || null;
  const ports =
    wire.end === "source"
      ? component.inputs.filter((port) => same(port) && accepts(port.type, given) === null)
      : component.outputs.filter((port) => same(port) && accepts(given, port.type) === null);
  const own = wire.ref.slice(wire.ref.lastIndexOf(".") + 1);
  return ports.find((port) => port.name === own) ?? ports.find((port) => !port.optional) ?? ports[0];
}

export function found(all: readonly Offer[], words: string): Offer[] {
  if (!words.trim()) return all.slice(0, 60);
  return ranked(all, words, {
    texts: [
      [({ title }) => title, 1],
      [({ note }) => note, 0.6],
    ],
    least: 0.2,
    most: 40,
    adjust: (score, { suits }) => score * suits,
  });
}

// Possible meanings of a wire on the components canvas: an edge of a Walk that uses both nodes, or a stream from a
// Walk of one partition to a Walk of another. Pure.
import type { Catalogue } from "../../messages/answers";
import { connect } from "../../document/edits/edges";
import { partitions } from "../../document/edits/judge";
import { addStream } from "../../document/edits/streams";
import { factsOf } from "../../document/routes";
import type { GraphDocument } from "../../document/types";
import { owner, portName } from "./ports";

export type Join =
  | { kind: "edge"; walk: string; from: string; to: string }
  /** `from` is a port of a use in the producing Walk, `to` one in the consuming Walk. `stream`: that is there already. */
  | { kind: "stream"; producer: string; consumer: string; from: string; to: string; stream: string | null };

/** From one node's port to another's, as `node.port`; in the order of the Walks. */
export function joinsOf(graph: GraphDocument, from: string, to: string): Join[] {
  const walks = Object.keys(graph.walks ?? {});
  const [source, target] = [owner(from), owner(to)];
  const both = walks.flatMap((walk): Join[] => {
    const [a, b] = [firstUse(graph, walk, source), firstUse(graph, walk, target)];
    return a && b ? [{ kind: "edge", walk, from: `${a}.${portName(from)}`, to: `${b}.${portName(to)}` }] : [];
  });
  const group = partitions(graph);
  if (both.length || group.get(source) === group.get(target)) return both;
  return walks.flatMap((producer) => {
    const a = firstUse(graph, producer, source);
    if (!a) return [];
    return walks.flatMap((consumer): Join[] => {
      const b = firstUse(graph, consumer, target);
      if (!b) return [];
      const there = (graph.streams ?? []).filter(
        (stream) => stream.from === `${a}.${portName(from)}` && stream.walks.includes(producer),
      );
      const ends = { from: `${a}.${portName(from)}`, to: `${b}.${portName(to)}` };
      return [null, ...there.map((stream) => stream.name)].map((stream) => ({
        kind: "stream",
        producer,
        consumer,
        ...ends,
        stream,
      }));
    });
  });
}

export function joined(graph: GraphDocument, join: Join, catalogue: Catalogue): GraphDocument {
  if (join.kind === "edge") return connect(graph, join.walk, join.from, join.to, catalogue).graph;
  const { producer, consumer, from, to, stream } = join;
  const { graph: made, name } = stream
    ? { graph, name: stream }
    : addStream(graph, { from, walks: [producer], chunks: { policy: "fixed", size: 1 } });
  return connect(made, consumer, `@stream.${name}`, to, catalogue).graph;
}

function firstUse(graph: GraphDocument, walk: string, node: string): string | null {
  const body = graph.walks?.[walk];
  const uses = body ? [...factsOf(body).uses.values()] : [];
  return uses.find((entry) => entry.node === node)?.name ?? null;
}

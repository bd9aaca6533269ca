// Streams: what joins two partitions of the graph.
import { freshName, readLink, splitReference } from "../names";
import type { GraphDocument, Stream } from "../types";
import { changeWalks, freeName, linksOf, streamsOf, withEdges } from "./parts/document";
import { changeLayout, rekeyed, unplace, walkCanvas } from "./parts/layout";
import { EditRefused, kept, mappedList, withFields, withSection } from "./parts/records";
import { mapReferences, renamedOwner } from "./parts/references";
import { strings } from "../../strings";

export type StreamFields = Partial<Omit<Stream, "name">>;

/** A stream from a port of a Walk's use, `whole` unless `chunks` says otherwise. */
export function addStream(
  graph: GraphDocument,
  fields: Partial<Stream> & Pick<Stream, "from" | "walks">,
): { graph: GraphDocument; name: string } {
  const taken = streamsOf(graph).map((stream) => stream.name);
  if (fields.name !== undefined) freeName(strings.document.aStream, fields.name, taken);
  const name = fields.name ?? freshName(splitReference(fields.from)[1] || "stream", taken);
  const { name: _, from, walks, chunks, ...rest } = fields;
  const stream: Stream = { name, from, walks, chunks: chunks ?? { policy: "whole" }, ...rest };
  return { graph: withSection(graph, "streams", [...streamsOf(graph), stream]), name };
}

/** Change fields of a stream; null takes an optional one away. */
export function setStream(graph: GraphDocument, name: string, fields: StreamFields): GraphDocument {
  return changeStream(graph, name, (stream) => withFields(stream, fields));
}

/** Another name, followed in the edges that read the stream. */
export function renameStream(graph: GraphDocument, from: string, to: string): GraphDocument {
  if (from === to) return graph;
  freeName(
    strings.document.aStream,
    to,
    streamsOf(graph).map((stream) => stream.name),
  );
  const renamed = changeStream(graph, from, (stream) => ({ ...stream, name: to }));
  const renames: Record<string, string> = {
    [`@stream.${from}`]: `@stream.${to}`,
    [`stream:${from}`]: `stream:${to}`,
  };
  return Object.keys(graph.walks ?? {}).reduce((made, walk) => {
    const followed = mapReferences(made, walk, (reference, side) =>
      side === "source" && reference === `@stream.${from}` ? `@stream.${to}` : reference,
    );
    const key = (old: string) => renames[old] ?? old;
    return changeLayout(followed, walkCanvas(walk), (layout) => rekeyed(layout, key));
  }, renamed);
}

/** Take a stream away, with the edges that read it. */
export function removeStream(graph: GraphDocument, name: string): GraphDocument {
  changeStream(graph, name, (stream) => stream);
  const streams = kept(streamsOf(graph), (stream) => stream.name !== name);
  const made = changeWalks(withSection(graph, "streams", streams), (walk) =>
    withEdges(
      walk,
      kept(linksOf(walk), (link) => readLink(link).from !== `@stream.${name}`),
    ),
  );
  const gone = new Set([`@stream.${name}`, `stream:${name}`]);
  return Object.keys(made.walks ?? {}).reduce(
    (changed, walk) =>
      changeLayout(changed, walkCanvas(walk), (layout) =>
        rekeyed(layout, (old) => (gone.has(old) ? undefined : old)),
      ),
    made,
  );
}

/** A stream out of one Walk: the edges that read it there, and its place on the canvas. The stream itself stays. */
export function leaveStream(graph: GraphDocument, walk: string, name: string): GraphDocument {
  const reference = `@stream.${name}`;
  const made = changeWalks(graph, (body, each) =>
    each === walk
      ? withEdges(
          body,
          kept(linksOf(body), (link) => readLink(link).from !== reference),
        )
      : body,
  );
  return unplace(made, walkCanvas(walk), [reference]);
}

/** A use of one Walk under another name, in the streams that it feeds. Refuses where another Walk feeds one of them too. */
export function renameStreamUse(graph: GraphDocument, walk: string, from: string, to: string): GraphDocument {
  return renamedSources(graph, walk, (source) => renamedOwner(source, from, to));
}

/** Likewise a single source, such as a merge. */
export function renameStreamSource(graph: GraphDocument, walk: string, from: string, to: string): GraphDocument {
  return renamedSources(graph, walk, (source) => (source === from ? to : source));
}

function renamedSources(graph: GraphDocument, walk: string, change: (source: string) => string): GraphDocument {
  if (!graph.streams) return graph;
  const streams = mappedList(streamsOf(graph), (stream) => {
    const renamed = change(stream.from);
    if (renamed === stream.from || !stream.walks.includes(walk)) return stream;
    const others = stream.walks.filter((other) => other !== walk);
    if (others.length)
      throw new EditRefused(strings.document.streamTakesOfWalkToo(stream.name, stream.from, others[0]));
    return { ...stream, from: renamed };
  });
  return withSection(graph, "streams", streams);
}

function changeStream(graph: GraphDocument, name: string, change: (stream: Stream) => Stream): GraphDocument {
  const before = streamsOf(graph);
  if (!before.some((stream) => stream.name === name))
    throw new EditRefused(strings.document.thereIsNoStreamWithName(name));
  const streams = mappedList(before, (stream) => (stream.name === name ? change(stream) : stream));
  return withSection(graph, "streams", streams === before ? graph.streams : streams);
}

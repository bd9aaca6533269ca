// A graph and its placement in the service: read, write, remove. The document that is open is the editor's.
import { ApiError, call } from "../api/client";
import type { DocumentEntry } from "../messages/answers";
import type { Sources } from "../document/json";
import type { GraphDocument } from "../document/types";
import type { PlacementDocument } from "../document/placement/schema.generated";
import type { Documents, Etags } from "./types";

export type Kind = "graphs" | "placements" | "blueprints";

/** A document as the service has it. */
export interface Stored<T> {
  value: T;
  etag: string;
  sources: Sources;
}

/** null: the service has none. */
export interface StoredDocuments {
  graph: Stored<GraphDocument> | null;
  placement: Stored<PlacementDocument> | null;
}

export function etagsOf(stored: StoredDocuments): Etags {
  return { graph: stored.graph?.etag ?? null, placement: stored.placement?.etag ?? null };
}

const path = (kind: Kind, name: string) => `/api/v1/${kind}/${encodeURIComponent(name)}`;

/** null where there is none. Raises ApiError for everything else. */
export async function read<T>(kind: Kind, name: string): Promise<Stored<T> | null> {
  try {
    const { value, etag, sources } = await call<T>(path(kind, name));
    return { value, etag: etag ?? "", sources };
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

export async function list(kind: Kind): Promise<DocumentEntry[]> {
  return (await call<DocumentEntry[]>(`/api/v1/${kind}`)).value;
}

/** `before`: what it replaces; null: a new one. `sources`: how its numbers are written. Raises ApiError, status 412 where the service has another. */
export async function write<T>(
  kind: Kind,
  name: string,
  value: T,
  before: Stored<unknown> | null,
  { keepalive = false, sources = before?.sources ?? new Map() }: { keepalive?: boolean; sources?: Sources } = {},
): Promise<Stored<T>> {
  const request = { method: "PUT" as const, body: value, sources, ifMatch: before?.etag ?? null, keepalive };
  const { etag } = await call<DocumentEntry>(path(kind, name), request);
  return { value, etag: etag ?? "", sources };
}

export async function remove(kind: Kind, name: string, etag: string): Promise<void> {
  await call(path(kind, name), { method: "DELETE", ifMatch: etag });
}

export async function readBoth(name: string, placementName: string): Promise<StoredDocuments> {
  const [graph, listed] = await Promise.all([read<GraphDocument>("graphs", name), list("placements")]);
  // Asking for what isn't there would be an error in the browser's log.
  const there = listed.some((entry) => entry.name === placementName);
  return { graph, placement: there ? await read<PlacementDocument>("placements", placementName) : null };
}

export interface Opened {
  stored: StoredDocuments;
  placementName: string;
  documents: Documents;
}

/** The documents to open for `name`: the stored graph or a new empty one, and its placement. */
export async function openDocuments(name: string): Promise<Opened> {
  const [graph, found] = await Promise.all([read<GraphDocument>("graphs", name), findPlacement(name)]);
  const documents: Documents = {
    graph: graph?.value ?? emptyGraph(name),
    placement: found?.stored.value ?? null,
    sources: graph?.sources,
  };
  return {
    stored: { graph, placement: found?.stored ?? null },
    placementName: found?.name ?? name,
    documents,
  };
}

export function emptyGraph(name: string): GraphDocument {
  return { format: "walkgraph/graph@1", name, nodes: {}, walks: {} };
}

/** The placement named like the graph, else the first of the user's own for it. Bundled ones are offered, not chosen. */
async function findPlacement(name: string): Promise<{ name: string; stored: Stored<PlacementDocument> } | null> {
  const listed = await list("placements");
  const own = listed.filter((entry) => entry.name === name || !entry.bundled).map((entry) => entry.name);
  const ordered = own.sort((a, b) => Number(b === name) - Number(a === name));
  const read_ = ordered.map(async (candidate) => {
    const stored = await read<PlacementDocument>("placements", candidate);
    const fits =
      stored !== null && (stored.value.graph === name || (candidate === name && stored.value.graph == null));
    return fits ? { name: candidate, stored } : null;
  });
  return (await Promise.all(read_)).find((found) => found !== null) ?? null;
}

/** Store under the first free of `NAME_copy`, `NAME_copy2`, ...; returns that name. */
export async function writeCopy(name: string, documents: Documents): Promise<string> {
  for (let number = 1; ; number += 1) {
    const suffix = number === 1 ? "_copy" : `_copy${number}`;
    const copy = name.slice(0, 64 - suffix.length) + suffix;
    try {
      await write("graphs", copy, { ...documents.graph, name: copy }, null, { sources: documents.sources });
    } catch (error) {
      if (error instanceof ApiError && error.status === 412 && number < 100) continue;
      throw error;
    }
    const placement = documents.placement;
    if (placement) await write("placements", copy, { ...placement, name: copy, graph: copy }, null);
    return copy;
  }
}

// The placements that the service keeps for a graph.
import { call } from "../../api/client";
import type { DocumentEntry } from "../../messages/answers";
import { read, write } from "../../store/documents";
import type { PlacementDocument } from "../../document/placement/schema.generated";

export interface StoredPlacement {
  name: string;
  bundled: boolean;
  placement: PlacementDocument;
}

/** Those made for a graph, and those made for any; by name. Raises ApiError. */
export async function placementsFor(graph: string): Promise<StoredPlacement[]> {
  const listed = (await call<DocumentEntry[]>("/api/v1/placements")).value;
  const found = await Promise.all(
    listed.map(async ({ name, bundled }) => {
      const stored = await read<PlacementDocument>("placements", name);
      const fits = Array.isArray(stored?.value.groups) && (stored.value.graph ?? graph) === graph;
      return stored && fits ? [{ name, bundled, placement: stored.value }] : [];
    }),
  );
  return found.flat().sort((a, b) => a.name.localeCompare(b.name));
}

/** Keep a copy under a name of its own. Raises ApiError: 412 where the name is taken. */
export async function keepCopy(placement: PlacementDocument, name: string): Promise<void> {
  await write("placements", name, { ...placement, name }, null);
}

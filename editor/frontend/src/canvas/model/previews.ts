// Which nodes show what they send to the client, below them: layouts keep room for it. Pure.
import type { Catalogue } from "../../messages/answers";
import { feeders } from "../../telemetry/previews";
import type { GraphDocument } from "../../document/types";

/** Below a node: a picture at its largest, or the lines of a text, with the gap to the node. */
export const PREVIEW_ROOM = 112;

const SHOWN = /^(image|text)\b/;

/** Nodes with an edge to the client that make pictures or texts. */
export function previewing(graph: GraphDocument, catalogue: Catalogue): ReadonlySet<string> {
  const sending = new Set([...feeders(graph).values()].flat());
  return new Set(
    [...sending].filter((node) => {
      const outputs = catalogue[graph.nodes?.[node]?.component ?? ""]?.outputs ?? [];
      return outputs.some(({ type }) => SHOWN.test(type));
    }),
  );
}

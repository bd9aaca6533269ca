// Outputs of nodes, shown below their boxes and under all nodes, so that no picture covers a port.
import { useStore, ViewportPortal } from "@xyflow/react";
import { memo, useCallback } from "react";
import { useActivities } from "../telemetry/activity";
import { NodePreview } from "../telemetry/views";
import { showing } from "./model/together";
import type { CanvasNode, Model } from "./shapes/types";

export const Previews = memo(function Previews({ model }: { model: Model }) {
  return (
    <ViewportPortal>
      {model.nodes.flatMap((node) => (model.below.has(node.id) ? <Below key={node.id} node={node} /> : []))}
    </ViewportPortal>
  );
});

function Below({ node: { id, data } }: { node: CanvasNode }) {
  const place = useStore(
    useCallback(
      ({ nodeLookup }) => {
        const node = nodeLookup.get(id);
        if (!node) return null;
        const { x, y } = node.internals.positionAbsolute;
        return `translate(${x}px, ${y + (node.height ?? 0)}px)`;
      },
      [id],
    ),
  );
  if (place === null) return null;
  return (
    <div className="wg-below" style={{ transform: place }}>
      {data.kind === "use" && <NodePreview node={data.node} />}
      {data.kind === "container" && <OfAll nodes={data.nodes} />}
    </div>
  );
}

/** A closed container shows the latest preview of those inside. */
function OfAll({ nodes }: { nodes: readonly string[] }) {
  const shown = showing(nodes, useActivities(nodes));
  return shown === null ? null : <NodePreview node={shown} />;
}

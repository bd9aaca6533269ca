import { useStoreApi } from "@xyflow/react";
import { useState } from "react";
import type { CanvasEdge, CanvasNode } from "../shapes/types";

/**
 * Boxes and ports are the model's. React Flow would read them off the page besides, where ports aren't mounted from
 * afar, and then have no ends for wires. To be called above `<ReactFlow>`, which takes the function at its first render.
 */
export function useGeometry(): void {
  const store = useStoreApi<CanvasNode, CanvasEdge>();
  useState(() =>
    store.setState({
      updateNodeInternals: () => {
        // Where to look at first still waits for the page to be there.
        const { fitViewQueued, nodes, setNodes } = store.getState();
        if (fitViewQueued) setNodes(nodes);
      },
    }),
  );
}

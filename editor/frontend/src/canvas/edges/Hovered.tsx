// The tooltip of a wire: its transport between ranks, and the amount of data.
import { EdgeLabelRenderer, useStore } from "@xyflow/react";
import { useEffect, useState } from "react";
import { useEditorState } from "../../store/react";
import { flows } from "../../telemetry/activity";
import { crossing, trafficWords } from "./traffic";
import type { Point } from "../shapes/types";

const EVERY_MS = 500;

export function Hovered({ walk, index, at: [x, y] }: { walk: string; index: number; at: Point }) {
  const planned = useEditorState((state) => crossing(state.planned.plan, walk, index));
  const zoom = useStore((state) => state.transform[2]);
  const [traffic, setTraffic] = useState(() => flows.traffic(walk, index));
  useEffect(() => {
    const timer = setInterval(() => setTraffic(flows.traffic(walk, index)), EVERY_MS);
    return () => clearInterval(timer);
  }, [walk, index]);
  const words = trafficWords(traffic, planned);
  if (!words) return null;
  // Above the nodes, and as large as any text whatever the zoom.
  const transform = `translate(${x}px, ${y}px) scale(${1 / zoom}) translate(-50%, -140%)`;
  return (
    <EdgeLabelRenderer>
      <div className="wg-traffic" style={{ transform }}>
        {words}
      </div>
    </EdgeLabelRenderer>
  );
}

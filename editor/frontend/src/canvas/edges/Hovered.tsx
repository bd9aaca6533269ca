// What a wire tells while the pointer is over it: how it goes from rank to rank, and how much goes there.
import { useEffect, useState } from "react";
import { useEditorState } from "../../store/react";
import { flows } from "../../telemetry/activity";
import { crossing, trafficWords } from "./traffic";
import type { Point } from "../types";

const EVERY_MS = 500;

export function Hovered({ walk, index, at }: { walk: string; index: number; at: Point }) {
  const planned = useEditorState((state) => crossing(state.planned.plan, walk, index));
  const [traffic, setTraffic] = useState(() => flows.traffic(walk, index));
  useEffect(() => {
    const timer = setInterval(() => setTraffic(flows.traffic(walk, index)), EVERY_MS);
    return () => clearInterval(timer);
  }, [walk, index]);
  const words = trafficWords(traffic, planned);
  if (!words) return null;
  const width = words.length * 5.9 + 14;
  return (
    <g className="wg-traffic" transform={`translate(${at[0] - width / 2} ${at[1] - 20})`}>
      <rect y={-9} width={width} height={18} rx={4} />
      <text x={width / 2} y={3.6} textAnchor="middle">
        {words}
      </text>
    </g>
  );
}

// Lines between chips of different lanes: what goes over for the chip, or the wire, under the pointer.
import { useLayoutEffect, useState, type RefObject } from "react";
import type { Crossing } from "../model/crossings";
import { rankColor } from "../model/ranks";

/** Height of a chip's first line. */
const LINE = 28;

interface Line {
  key: string;
  path: string;
  color: string;
  stream: boolean;
}

export function Lines({ area, crossings }: { area: RefObject<HTMLElement | null>; crossings: readonly Crossing[] }) {
  const [lines, setLines] = useState<Line[]>([]);
  useLayoutEffect(() => {
    const element = area.current;
    if (!element) return undefined;
    const draw = () => setLines(crossings.flatMap((crossing) => lineOf(element, crossing)));
    draw();
    const observer = new ResizeObserver(draw);
    observer.observe(element);
    return () => observer.disconnect();
  }, [area, crossings]);
  if (lines.length === 0) return null;
  return (
    <svg className="lines" aria-hidden>
      <defs>
        <marker
          id="wg-place-arrow"
          viewBox="0 0 8 8"
          refX="7"
          refY="4"
          markerWidth="7"
          markerHeight="7"
          orient="auto"
        >
          <path d="M0 0L8 4L0 8z" fill="context-stroke" />
        </marker>
      </defs>
      {lines.map((line) => (
        <path
          key={line.key}
          d={line.path}
          stroke={line.color}
          strokeDasharray={line.stream ? "5 4" : undefined}
          markerEnd="url(#wg-place-arrow)"
        />
      ))}
    </svg>
  );
}

function lineOf(area: HTMLElement, crossing: Crossing): Line[] {
  const chip = (node: string | null, rank: number) =>
    node === null
      ? area.querySelector(`[data-lane="${rank}"] .chips`)
      : area.querySelector(`[data-chip="${CSS.escape(`${node}@${rank}`)}"]`);
  const from = chip(crossing.fromNode, crossing.source)?.getBoundingClientRect();
  const to = chip(crossing.toNode, crossing.target)?.getBoundingClientRect();
  if (!from || !to) return [];
  const base = area.getBoundingClientRect();
  const right = to.left >= from.right;
  const x1 = (right ? from.right : from.left) - base.left;
  const x2 = (right ? to.left : to.right) - base.left;
  // Leaving higher than arriving, so that there and back are two lines.
  const y1 = from.top + Math.min(from.height, LINE) / 3 - base.top;
  const y2 = to.top + (2 * Math.min(to.height, LINE)) / 3 - base.top;
  const bend = Math.max(24, Math.abs(x2 - x1) / 2) * (right ? 1 : -1);
  const path = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  return [{ key: crossing.key, path, color: rankColor(crossing.source), stream: crossing.stream !== null }];
}

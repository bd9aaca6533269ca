// Lines between chips of different lanes: bands between the shards of a component, and what goes over for the chip, or
// the wire, under the pointer, each with its transport and bytes.
import { useLayoutEffect, useState, type RefObject } from "react";
import { BROADCAST, type Crossing } from "../model/crossings";
import type { Lanes } from "../model/lanes";
import { measuredWords } from "../model/measured";
import { rankColor } from "../model/ranks";

/** Height of a chip's first line. */
const LINE = 28;
/** Words end so far from the right edge of their chip. */
const MARGIN = 6;

interface Line {
  key: string;
  path: string;
  color: string;
  stream: boolean;
  broadcast: boolean;
  words: string;
  ends: readonly [End, End];
}

/** The chip at one end of a line, and where words stand on it. */
interface End {
  chip: string;
  x: number;
  y: number;
}

/** What the lines of a chip carry. */
interface Label extends End {
  words: string;
}

interface LinesProps {
  area: RefObject<HTMLElement | null>;
  crossings: readonly Crossing[];
  lanes: Lanes;
}

export function Lines({ area, crossings, lanes }: LinesProps) {
  const [drawn, setDrawn] = useState<{ lines: Line[]; bands: Line[] }>({ lines: [], bands: [] });
  useLayoutEffect(() => {
    const element = area.current;
    if (!element) return undefined;
    const draw = () =>
      setDrawn({
        lines: crossings.flatMap((crossing) => lineOf(element, crossing)),
        bands: bandsOf(lanes).flatMap((band) => lineOf(element, band)),
      });
    draw();
    const observer = new ResizeObserver(draw);
    observer.observe(element);
    return () => observer.disconnect();
  }, [area, crossings, lanes]);
  const { lines, bands } = drawn;
  if (lines.length === 0 && bands.length === 0) return null;
  return (
    <div className="lines" aria-hidden>
      <svg>
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
        {bands.map((band) => (
          <path key={band.key} className="band" d={band.path} stroke={band.color} />
        ))}
        {lines.map((line) => (
          <path
            key={line.key}
            d={line.path}
            stroke={line.color}
            strokeDasharray={line.stream ? "5 4" : line.broadcast ? "1 4" : undefined}
            markerEnd="url(#wg-place-arrow)"
          />
        ))}
      </svg>
      {labelsOf(lines).map(({ chip, x, y, words }) => (
        <span key={chip} style={{ left: x, top: y }}>
          {words}
        </span>
      ))}
    </div>
  );
}

/** The words of lines, on the chips that they lead to from the one that most of them share. */
function labelsOf(lines: readonly Line[]): Label[] {
  const counts = new Map<string, number>();
  for (const { ends } of lines) for (const { chip } of ends) counts.set(chip, (counts.get(chip) ?? 0) + 1);
  const shared = (end: End) => counts.get(end.chip) ?? 0;
  const found = new Map<string, End & { words: Set<string> }>();
  for (const { ends, words } of lines) {
    const [from, to] = ends;
    const end = shared(from) < shared(to) ? from : to;
    const label = found.get(end.chip) ?? { ...end, words: new Set() };
    found.set(end.chip, { ...label, words: label.words.add(words) });
  }
  return [...found.values()].map((label) => ({ ...label, words: [...label.words].join(", ") }));
}

/** From each shard of a component to the next one. */
function bandsOf({ lanes }: Lanes): Crossing[] {
  return lanes.flatMap((lane) =>
    lane.chips.flatMap(({ node, span, shard }) => {
      const next = shard ? span[shard.number] : undefined;
      if (next === undefined) return [];
      const end = { from: node, to: node, fromNode: node, toNode: node };
      const none = { walk: null, stream: null, task: null, pointer: "", transport: "" };
      return [{ key: `band ${node}@${lane.rank}`, source: lane.rank, target: next, ...end, ...none }];
    }),
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
  return [
    {
      key: crossing.key,
      path,
      color: rankColor(crossing.source),
      stream: crossing.stream !== null,
      broadcast: crossing.transport === BROADCAST,
      words: crossing.words ?? measuredWords(crossing),
      ends: [
        { chip: `${crossing.fromNode}@${crossing.source}`, ...wordsAt(from, base) },
        { chip: `${crossing.toNode}@${crossing.target}`, ...wordsAt(to, base) },
      ],
    },
  ];
}

function wordsAt(chip: DOMRect, area: DOMRect): { x: number; y: number } {
  return { x: chip.right - area.left - MARGIN, y: chip.top - area.top + Math.min(chip.height, LINE) / 2 };
}

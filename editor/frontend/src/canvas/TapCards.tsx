// The cards of taps over the canvas, each by the place that it looks at.
import { useStore, type ReactFlowState } from "@xyflow/react";
import { createContext, useCallback, useMemo, useRef } from "react";
import { moveCard, pinCard, useCards, type Card } from "../taps/cards";
import { TapCard } from "../taps/TapCard";
import type { TapShown } from "../store/watch";
import type { Canvas } from "../store/types";
import type { CanvasNode, Model, Point } from "./types";

/** Source -> id of its tap, of the open canvas. */
export const Tapped = createContext<ReadonlyMap<string, string>>(new Map());

export function tappedOn(canvas: Canvas, taps: readonly TapShown[]): ReadonlyMap<string, string> {
  return new Map(
    taps.flatMap(({ id, walk, source }) => (canvas.kind === "walk" && walk === canvas.walk ? [[source, id]] : [])),
  );
}

interface Props {
  deployment: string;
  taps: readonly TapShown[];
  canvas: Canvas;
  model: Model;
}

const transformOf = (state: ReactFlowState) => state.transform;

export function TapCards({ deployment, taps, canvas, model }: Props) {
  const cards = useCards();
  const transform = useStore(transformOf);
  const places = useMemo(() => portPlaces(model), [model]);
  const shown = taps.flatMap((tap) => {
    const card = cards[tap.id];
    const port = canvas.kind === "walk" && canvas.walk === tap.walk ? places.get(tap.source) : undefined;
    if (!card || (!card.pinned && !port)) return [];
    const anchor = port ? onScreen(port, transform) : null;
    return [{ tap, card, anchor }];
  });
  if (shown.length === 0) return null;
  return (
    <div className="wg-tap-cards">
      <svg aria-hidden>
        {shown.map(({ tap, card, anchor }) => {
          if (!anchor) return null;
          const [x, y] = standing(card, anchor);
          return <line key={tap.id} x1={anchor[0]} y1={anchor[1]} x2={x + 8} y2={y + 8} />;
        })}
      </svg>
      {shown.map(({ tap, card, anchor }) => (
        <Standing key={tap.id} deployment={deployment} tap={tap} card={card} anchor={anchor} />
      ))}
    </div>
  );
}

function Standing({
  deployment,
  tap,
  card,
  anchor,
}: {
  deployment: string;
  tap: TapShown;
  card: Card;
  anchor: Point | null;
}) {
  const latest = useRef({ card, anchor });
  latest.current = { card, anchor };
  const pin = useCallback(() => {
    const { card, anchor } = latest.current;
    const [x, y] = standing(card, anchor);
    // Where its place is out of sight, it goes back to it at its first distance.
    const away: Point = anchor ? [x - anchor[0], y - anchor[1]] : [44, 28];
    pinCard(tap.id, !card.pinned, card.pinned ? away : [x, y]);
  }, [tap.id]);
  const move = useCallback(
    (dx: number, dy: number) => {
      const [x, y] = latest.current.card.at;
      const at: Point = [x + dx, y + dy];
      latest.current.card = { ...latest.current.card, at };
      moveCard(tap.id, at);
    },
    [tap.id],
  );
  const [x, y] = standing(card, anchor);
  return (
    <div style={{ transform: `translate(${x}px, ${y}px)` }}>
      <TapCard deployment={deployment} tap={tap} pinned={card.pinned} onPin={pin} onMove={move} />
    </div>
  );
}

function standing({ at: [x, y], pinned }: Card, anchor: Point | null): Point {
  return pinned || !anchor ? [x, y] : [anchor[0] + x, anchor[1] + y];
}

function onScreen([x, y]: Point, [tx, ty, zoom]: [number, number, number]): Point {
  return [x * zoom + tx, y * zoom + ty];
}

/** Source -> where its port stands, in canvas pixels. */
function portPlaces({ nodes, boxes }: Model): ReadonlyMap<string, Point> {
  const found = new Map<string, Point>();
  for (const node of nodes) {
    const box = boxes.get(node.id);
    for (const handle of (box && handlesOf(node)) ?? []) {
      if (handle.type === "source" && handle.id && box)
        found.set(handle.id, [box.x + handle.x + 1, box.y + handle.y + 1]);
    }
  }
  return found;
}

function handlesOf(node: CanvasNode): NonNullable<CanvasNode["handles"]> {
  return node.handles ?? [];
}

// The cards of taps over the canvas, each by the place that it looks at.
import { useStore, type ReactFlowState } from "@xyflow/react";
import { createContext, useCallback, useMemo, useRef } from "react";
import { FIRST, moveCard, pinCard, useCards, type Card } from "../../taps/cards";
import { edgesOf } from "../../taps/places";
import { standing, standingAt } from "../../taps/standing";
import { TapCard } from "../../taps/TapCard";
import { useWatch, type TapShown } from "../../store/watch";
import type { GraphDocument } from "../../document/types";
import type { Canvas } from "../../store/types";
import type { Model, Point } from "../shapes/types";

/** Edge -> id of the tap that sees its values, of the open canvas. */
export const Tapped = createContext<ReadonlyMap<string, string>>(new Map());

export function tappedOn(
  graph: GraphDocument,
  canvas: Canvas,
  taps: readonly TapShown[],
): ReadonlyMap<string, string> {
  const here = canvas.kind === "walk" ? taps.filter(({ walk }) => walk === canvas.walk) : [];
  return new Map(here.flatMap((tap) => edgesOf(graph, tap).map((edge) => [edge, tap.id] as const)));
}

interface Props {
  deployment: string;
  taps: readonly TapShown[];
  canvas: Canvas;
  model: Model;
  selection: readonly string[];
}

const transformOf = (state: ReactFlowState) => state.transform;
const widthOf = (state: ReactFlowState) => state.width;
const heightOf = (state: ReactFlowState) => state.height;

export function TapCards({ deployment, taps, canvas, model, selection }: Props) {
  const cards = useCards();
  const transform = useStore(transformOf);
  const [width, height] = [useStore(widthOf), useStore(heightOf)];
  const places = useMemo(() => portPlaces(model), [model]);
  const { paused } = useWatch(deployment);
  const walk = canvas.kind === "walk" ? canvas.walk : null;
  const held = Object.values(paused).flatMap((run) => run.held.filter((call) => call.walk === walk));
  // What is selected stays in sight, and before what a run is paused.
  const clear = [...selection, ...held.map((call) => `use:${call.use}`)].flatMap((id) => {
    const box = model.boxes.get(id);
    if (!box) return [];
    const [x, y] = onScreen([box.x, box.y], transform);
    return [{ x, y, w: box.w * transform[2], h: box.h * transform[2] }];
  });
  const shown = taps.flatMap((tap) => {
    const card = cards[tap.id];
    const port = canvas.kind === "walk" && canvas.walk === tap.walk ? places.get(tap.source) : undefined;
    if (!card || (!card.pinned && !port)) return [];
    const anchor = port ? onScreen(port, transform) : null;
    return [{ tap, card, anchor, at: standing(card, anchor, [width, height], clear) }];
  });
  if (shown.length === 0) return null;
  return (
    <div className="wg-tap-cards">
      <svg aria-hidden>
        {shown.map(
          ({ tap, anchor, at: [x, y] }) =>
            anchor && <line key={tap.id} x1={anchor[0]} y1={anchor[1]} x2={x + 8} y2={y + 8} />,
        )}
      </svg>
      {shown.map(({ tap, card, anchor, at }) => (
        <Standing key={tap.id} deployment={deployment} tap={tap} card={card} anchor={anchor} at={at} />
      ))}
    </div>
  );
}

interface StandingProps {
  deployment: string;
  tap: TapShown;
  card: Card;
  anchor: Point | null;
  /** Where it is drawn. */
  at: readonly [number, number];
}

function Standing({ deployment, tap, card, anchor, at }: StandingProps) {
  const latest = useRef({ pinned: card.pinned, anchor, at });
  latest.current = { pinned: card.pinned, anchor, at };
  const pin = useCallback(() => {
    const { pinned, anchor, at } = latest.current;
    // Where its place is out of sight, it goes back to it at its first distance.
    pinCard(tap.id, !pinned, pinned && !anchor ? FIRST : standingAt(at, anchor, !pinned));
  }, [tap.id]);
  const move = useCallback(
    (dx: number, dy: number) => {
      const { pinned, anchor, at } = latest.current;
      latest.current.at = [at[0] + dx, at[1] + dy];
      moveCard(tap.id, standingAt(latest.current.at, anchor, pinned));
    },
    [tap.id],
  );
  const [x, y] = at;
  return (
    <div style={{ transform: `translate(${x}px, ${y}px)` }}>
      <TapCard deployment={deployment} tap={tap} pinned={card.pinned} onPin={pin} onMove={move} />
    </div>
  );
}

function onScreen([x, y]: Point, [tx, ty, zoom]: [number, number, number]): Point {
  return [x * zoom + tx, y * zoom + ty];
}

/** Source -> where its port stands, in canvas pixels. */
function portPlaces({ nodes, boxes }: Model): ReadonlyMap<string, Point> {
  const found = new Map<string, Point>();
  for (const node of nodes) {
    const box = boxes.get(node.id);
    if (!box) continue;
    for (const { id, type, x, y } of node.handles ?? [])
      if (type === "source" && id) found.set(id, [box.x + x + 1, box.y + y + 1]);
  }
  return found;
}

// Where a card stands over the canvas, in pixels of the screen from the canvas's corner. Pure.
import type { Card } from "./cards";

type Place = readonly [number, number];

/** A card's width and its least height. */
const SIZE: Place = [262, 120];

/** `anchor`: the place that it looks at; null: not on this canvas. Wholly in sight, unless its place isn't. */
export function standing({ at, pinned }: Card, anchor: Place | null, [width, height]: Place): Place {
  const held = pinned || !anchor ? null : anchor;
  const [x, y] = held ? [held[0] + at[0], held[1] + at[1]] : at;
  const away = held && (held[0] < 0 || held[1] < 0 || held[0] > width || held[1] > height);
  if (away) return [x, y];
  return [Math.max(0, Math.min(x, width - SIZE[0])), Math.max(0, Math.min(y, height - SIZE[1]))];
}

/** The stored position of a card. */
export function standingAt([x, y]: Place, anchor: Place | null, pinned: boolean): Place {
  return pinned || !anchor ? [x, y] : [x - anchor[0], y - anchor[1]];
}

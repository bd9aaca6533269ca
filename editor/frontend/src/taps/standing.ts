// Where a card stands over the canvas, in pixels of the screen from the canvas's corner. Pure.
import type { Card } from "./cards";

type Place = readonly [number, number];

/** A card's width and its least height. */
const SIZE: Place = [262, 120];
/** Its height with a sample. */
const FILLED = 250;
const GAP = 12;

export interface Area {
  x: number;
  y: number;
  w: number;
  h: number;
}

/**
 * `anchor`: the place that it looks at; null: not on this canvas. Wholly in sight, unless its place isn't. `clear`: what
 * a card that nobody has moved must not cover, where there is room beside it.
 */
export function standing(card: Card, anchor: Place | null, board: Place, clear: readonly Area[] = []): Place {
  const { at, pinned, moved } = card;
  const [width, height] = board;
  const held = pinned || !anchor ? null : anchor;
  const [x, y] = held ? [held[0] + at[0], held[1] + at[1]] : at;
  const away = held && (held[0] < 0 || held[1] < 0 || held[0] > width || held[1] > height);
  if (away) return [x, y];
  const own = within([x, y], board, SIZE[1]);
  if (!held || moved || !clear.some((area) => covers(own, area))) return own;
  const beside = clear.flatMap((area): Place[] => [
    [area.x + area.w + GAP, y],
    [area.x - SIZE[0] - GAP, y],
    [x, area.y + area.h + GAP],
    [x, area.y - FILLED - GAP],
  ]);
  const free = beside
    .map((place) => within(place, board, FILLED))
    .filter((place) => !clear.some((a) => covers(place, a)));
  const far = ([px, py]: Place) => Math.hypot(px - own[0], py - own[1]);
  return free.sort((a, b) => far(a) - far(b))[0] ?? own;
}

function within([x, y]: Place, [width, height]: Place, tall: number): Place {
  return [Math.max(0, Math.min(x, width - SIZE[0])), Math.max(0, Math.min(y, height - tall))];
}

function covers([x, y]: Place, area: Area): boolean {
  return x < area.x + area.w && x + SIZE[0] > area.x && y < area.y + area.h && y + FILLED > area.y;
}

/** The stored position of a card. */
export function standingAt([x, y]: Place, anchor: Place | null, pinned: boolean): Place {
  return pinned || !anchor ? [x, y] : [x - anchor[0], y - anchor[1]];
}

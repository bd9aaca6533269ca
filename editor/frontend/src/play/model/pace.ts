// How fast pictures follow each other.
import type { Made } from "./types";

/** The output whose pictures are a film. */
export const FILM = "film";

const SLOWEST = 250;
const FASTEST = 40;
const PLAIN = 120;

/** ms a picture stands: as they came, within what is good to watch; of those whose times aren't known, a fixed one. */
export function frameMs(made: readonly Made[]): number {
  const first = made[0]?.at ?? 0;
  const last = made.at(-1)?.at ?? 0;
  if (made.length < 2 || last <= first) return PLAIN;
  return Math.min(SLOWEST, Math.max(FASTEST, (last - first) / (made.length - 1)));
}

/** ms that the end of a film stands before it begins anew. */
export function endMs(frame: number): number {
  return Math.max(frame, 1200);
}

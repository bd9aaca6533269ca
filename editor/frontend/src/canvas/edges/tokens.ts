// Dots that run along wires as values leave their sources: which there are, and where. No React, no browser.
import { along, polyline, type Polyline } from "./polyline";

export interface Moving {
  path: string;
  color: string;
  /** Values that have left its source until now. */
  left: () => number;
}

interface Laid extends Moving {
  line: Polyline | null;
  seen: number;
  /** When the last dot began. */
  begun: number;
  /** When each of its dots began, oldest first. */
  dots: number[];
}

export interface Dot {
  x: number;
  y: number;
  color: string;
}

/** Between two dots of one wire, in ms. */
export const GAP_MS = 140;
const MS_A_PIXEL = 1.8;
const SHORTEST_MS = 320;
const LONGEST_MS = 1_300;

export class Tokens {
  private readonly wires = new Map<string, Laid>();

  put(id: string, wire: Moving): void {
    const before = this.wires.get(id);
    const line = before?.path === wire.path ? before.line : null;
    const kept = before ?? { seen: wire.left(), begun: -Infinity, dots: [] };
    this.wires.set(id, { ...wire, line, seen: kept.seen, begun: kept.begun, dots: kept.dots });
  }

  drop(id: string): void {
    this.wires.delete(id);
  }

  /** The dots at a time in ms; new ones begin where values have left since the last call. Empty: all is still. */
  at(now: number): Dot[] {
    const dots: Dot[] = [];
    for (const wire of this.wires.values()) {
      const left = wire.left();
      if (left > wire.seen && now - wire.begun >= GAP_MS) {
        wire.begun = now;
        wire.dots.push(now);
      }
      wire.seen = left;
      if (wire.dots.length === 0) continue;
      const line = (wire.line ??= polyline(wire.path));
      const lasts = Math.max(SHORTEST_MS, Math.min(LONGEST_MS, line.length * MS_A_PIXEL));
      while (wire.dots.length > 0 && now - wire.dots[0]! >= lasts) wire.dots.shift();
      for (const begun of wire.dots) {
        const [x, y] = along(line, ((now - begun) / lasts) * line.length);
        dots.push({ x, y, color: wire.color });
      }
    }
    return dots;
  }

  /** Nothing runs, and what left until now is past. */
  still(): void {
    for (const wire of this.wires.values()) {
      wire.dots = [];
      wire.seen = wire.left();
    }
  }
}

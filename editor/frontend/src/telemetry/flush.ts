// When cells that changed are shown: a few tens of times a second, with the next frame of the screen where it matters,
// and less often where drawing takes long. Pure.
import type { Cell } from "./cells";

/** Time, and when to show; tests give their own. */
export interface Clock {
  /** In ms, never going back. */
  now: () => number;
  /** Calls back with the next frame of the screen. */
  frame: (run: () => void) => void;
  /** Calls back after so many ms; the returned function takes it back. */
  after: (ms: number, run: () => void) => () => void;
  /** Calls back once what was told is drawn. */
  drawn: (run: () => void) => void;
}

/** Between two flushes, at least. */
export const FLUSH_MS = 33;
/** Drawing may take this part of the time. */
const DRAWING = 1 / 8;
const LONGEST_FLUSH_MS = 250;
/** Without news, to see who has fallen silent. */
const IDLE_MS = 125;

export class Flusher {
  private dirty: Cell<unknown>[] = [];
  private soon = false;
  private flushing = false;
  private cancelTick: (() => void) | null = null;
  private tickAt = 0;
  /** When something was shown. */
  private last = -Infinity;
  /** Duration of the last flush and its drawing, in ms. */
  private cost = 0;

  /**
   * `before`: the last word on the cells. `after`: all listeners of cells were called; whether to go on without news.
   */
  constructor(
    private readonly clock: Clock,
    private readonly hooks: { before: (now: number) => void; stale: () => boolean; after: () => boolean },
  ) {}

  /** It is shown anew with the next flush. */
  touch(cell: Cell<unknown>): void {
    if (cell.dirty) return;
    cell.dirty = true;
    this.dirty.push(cell);
  }

  schedule(atOnce: boolean): void {
    if (this.flushing) return;
    const now = this.clock.now();
    const pause = Math.min(LONGEST_FLUSH_MS, this.cost / DRAWING);
    if (atOnce && !this.soon && now - this.last >= pause) {
      this.soon = true;
      this.clock.frame(this.onFrame);
    }
    this.tick(now, Math.max(now, this.last + Math.max(FLUSH_MS, pause)));
  }

  /** The next flush is then, if not earlier. */
  private tick(now: number, at: number): void {
    if (this.cancelTick) {
      if (this.tickAt <= at) return;
      this.cancelTick();
    }
    this.tickAt = at;
    this.cancelTick = this.clock.after(at - now, this.flush);
  }

  private readonly onFrame = (): void => {
    if (this.soon) this.flush();
  };

  private readonly flush = (): void => {
    this.flushing = true;
    this.soon = false;
    this.cancelTick?.();
    this.cancelTick = null;
    const now = this.clock.now();
    this.hooks.before(now);
    const changed = this.dirty;
    if (changed.length > 0) this.last = now;
    this.dirty = [];
    const stale = this.hooks.stale();
    for (const cell of changed) cell.show(stale);
    for (const cell of changed) for (const listener of cell.listeners) listener();
    const again = this.hooks.after();
    this.flushing = false;
    this.clock.drawn(() => void (this.cost = this.clock.now() - now));
    if (again) this.tick(now, now + IDLE_MS);
  };
}

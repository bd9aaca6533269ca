// What moves along the edges of Walks: how often a node's values have left it, and what went between ranks. Gathered
// in place; whoever draws reads it as often as the screen is drawn. No React, no browser.
import { toldBy } from "./calls";
import type { Frame, TransferEvent } from "./frames";

/** What went along an edge of a Walk from rank to rank, of late. */
export interface Traffic {
  transport: string;
  source: number;
  target: number;
  /** Bytes a second over the last seconds. */
  rate: number;
  /** Values and bytes since the figures began. */
  count: number;
  nbytes: number;
}

interface Way extends Traffic {
  /** Second of the page's clock -> bytes in it, of the last few. */
  seconds: Map<number, number>;
}

/** Over which a rate is taken, in seconds. */
const WINDOW = 4;

export class FlowStore {
  /** `walk/node/depth`, the depth in loops, and `walk/node/` for all of them -> calls until now. */
  private readonly calls = new Map<string, number>();
  /** By `walk/edge`. */
  private readonly ways = new Map<string, Way>();
  private readonly listeners = new Set<() => void>();
  private deployment: string | null = null;
  private focus: string | null = null;
  private paused = false;

  constructor(private readonly now: () => number) {}

  /** How many values have left the node's uses in so many loops of a Walk; null: in however many. */
  left(walk: string, node: string, depth: number | null): number {
    return this.calls.get(`${walk}/${node}/${depth ?? ""}`) ?? 0;
  }

  /** What goes along an edge of a Walk between ranks; null: nothing did. */
  traffic(walk: string, edge: number): Traffic | null {
    const way = this.ways.get(`${walk}/${edge}`);
    if (!way) return null;
    const { seconds, ...traffic } = way;
    return { ...traffic, rate: rateOf(seconds, this.now() / 1000) };
  }

  /** Called when something has moved. */
  readonly watch = (moved: () => void): (() => void) => {
    this.listeners.add(moved);
    return () => this.listeners.delete(moved);
  };

  follow(deployment: string | null): void {
    if (deployment === this.deployment) return;
    this.deployment = deployment;
    this.focusOn(null);
  }

  focusOn(run: string | null): void {
    this.focus = run;
    this.calls.clear();
    this.ways.clear();
  }

  setPaused(paused: boolean): void {
    this.paused = paused;
  }

  readonly take = (frame: Frame): void => {
    if (frame.type !== "events" || this.paused || frame.deployment !== this.deployment) return;
    let moved = false;
    for (const event of frame.events) {
      switch (event.type) {
        case "activity":
        case "forward":
        case "launch":
        case "looping":
          for (const { run, walk, node, iteration, calls } of toldBy(event)) {
            if (this.focus !== null && this.focus !== run) continue;
            this.add(`${walk}/${node}/${iteration.length}`, calls);
            this.add(`${walk}/${node}/`, calls);
            moved = true;
          }
          break;
        case "transfer":
          moved = this.crossed(event) || moved;
          break;
        default:
          break;
      }
    }
    if (moved) for (const listener of this.listeners) listener();
  };

  private add(key: string, calls: number): void {
    this.calls.set(key, (this.calls.get(key) ?? 0) + calls);
  }

  private crossed({ run, walk, edge, stream, transport, source, target, count, nbytes }: TransferEvent): boolean {
    if (stream || (this.focus !== null && this.focus !== run)) return false;
    const key = `${walk}/${edge}`;
    let way = this.ways.get(key);
    if (!way)
      this.ways.set(key, (way = { transport, source, target, rate: 0, count: 0, nbytes: 0, seconds: new Map() }));
    way.transport = transport;
    way.source = source;
    way.target = target;
    way.count += count;
    way.nbytes += nbytes;
    const second = Math.floor(this.now() / 1000);
    way.seconds.set(second, (way.seconds.get(second) ?? 0) + nbytes);
    for (const old of way.seconds.keys()) if (old < second - WINDOW) way.seconds.delete(old);
    return true;
  }
}

function rateOf(seconds: ReadonlyMap<number, number>, now: number): number {
  let sum = 0;
  for (const [second, nbytes] of seconds) if (second > now - WINDOW) sum += nbytes;
  return sum / WINDOW;
}

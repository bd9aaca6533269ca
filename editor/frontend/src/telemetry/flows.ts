// Traffic on the edges of Walks: how often values have left a node, and transfers between ranks. Updated
// in place; whoever draws reads it as often as the screen is drawn. No React, no browser.
import { toldBy, useKey } from "./calls";
import type { Frame, TransferEvent } from "../messages/frames";

/** Recent transfers between ranks on an edge of a Walk. */
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
  /** By `useKey` -> calls until now. */
  private readonly uses = new Map<string, number>();
  /** By Walk and node -> calls until now. */
  private readonly nodes = new Map<string, number>();
  /** By `walk/edge`. */
  private readonly ways = new Map<string, Way>();
  private readonly listeners = new Set<() => void>();
  private deployment: string | null = null;
  private focus: string | null = null;
  private paused = false;

  constructor(private readonly now: () => number) {}

  /** How many values have left the use with this key of `useKey`. */
  left(use: string): number {
    return this.uses.get(use) ?? 0;
  }

  /** And all uses of a node in these Walks. */
  leftNode(walks: readonly string[], node: string): number {
    return walks.reduce((sum, walk) => sum + (this.nodes.get(`${walk} ${node}`) ?? 0), 0);
  }

  /** Transfers between ranks on an edge of a Walk; null if there were none. */
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
    this.uses.clear();
    this.nodes.clear();
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
          for (const { run, walk, node, use, calls } of toldBy(event)) {
            if (this.focus !== null && this.focus !== run) continue;
            if (node !== null) add(this.nodes, `${walk} ${node}`, calls);
            if (use !== null) add(this.uses, useKey(walk, use), calls);
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

function add(to: Map<string, number>, key: string, calls: number): void {
  to.set(key, (to.get(key) ?? 0) + calls);
}

function rateOf(seconds: ReadonlyMap<number, number>, now: number): number {
  let sum = 0;
  for (const [second, nbytes] of seconds) if (second > now - WINDOW) sum += nbytes;
  return sum / WINDOW;
}

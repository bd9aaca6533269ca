// The newest gauges of a deployment, and the last call that was told of. No React, no browser.
import type { RankGauge } from "../messages/frames";
import type { Latest } from "./shown";

export class Gauges {
  private readonly listeners = new Set<() => void>();
  private ofRanks: ReadonlyMap<number, RankGauge> = new Map();
  private newest: Latest | null = null;
  private shown: Latest | null = null;
  private changed = false;

  /** The last call that was told of. */
  readonly latest = (): Latest | null => this.shown;
  /** The newest of each rank. */
  readonly ranks = (): ReadonlyMap<number, RankGauge> => this.ofRanks;

  /** Called with a flush after something has changed, until the returned function is called. */
  readonly watch = (changed: () => void): (() => void) => {
    this.listeners.add(changed);
    return () => this.listeners.delete(changed);
  };

  take(event: RankGauge): void {
    this.ofRanks = new Map(this.ofRanks).set(event.rank, event);
    this.touch();
  }

  reached(call: Latest): void {
    this.newest = call;
  }

  clear(): void {
    this.ofRanks = new Map();
    this.touch();
  }

  /** Tell the listeners with the next flush. */
  touch(): void {
    this.changed = true;
  }

  flush(): void {
    if (this.newest !== null) {
      this.shown = this.newest;
      this.newest = null;
      this.touch();
    }
    if (!this.changed) return;
    this.changed = false;
    for (const listener of this.listeners) listener();
  }
}

// Which frames are missing. Pure.
import type { GapFrame, Sent } from "../messages/frames";

/** Follows the numbers over one or more connections to one or more starts of the service. */
export class Sequence {
  private boot: string | null = null;
  private last: number | null = null;

  /** The gap before this frame, or null where nothing is missing. */
  see(frame: Sent): GapFrame | null {
    switch (frame.type) {
      case "welcome": {
        const { boot, last } = this;
        this.boot = frame.boot;
        this.last = frame.seq;
        if (boot === null) return null;
        if (boot !== frame.boot) return { type: "gap", count: null };
        return last === frame.seq ? null : { type: "gap", count: last === null ? null : frame.seq - last };
      }
      case "dropped":
        if (this.last !== null) this.last += frame.count;
        return { type: "gap", count: frame.count };
      default: {
        // The states that come before `welcome` have no number.
        if (frame.seq === undefined) return null;
        const missing = this.last === null ? 0 : frame.seq - this.last - 1;
        this.last = frame.seq;
        return missing > 0 ? { type: "gap", count: missing } : null;
      }
    }
  }
}

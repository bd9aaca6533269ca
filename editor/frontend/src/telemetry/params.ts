// Parameters of runs under way, asked for once where a loop's length depends on them. Pure but for the asking.
import type { Values } from "./times";

const REMEMBERED = 64;
const ASKED_AT_ONCE = 4;
const NONE: Values = {};

export class Params {
  private readonly known = new Map<string, Values>();
  private asking = 0;

  constructor(private readonly ask: (run: string, signal: AbortSignal) => Promise<Values>) {}

  /** None until they have come; none of no run. */
  of(run: string | null): Values {
    if (run === null) return NONE;
    const found = this.known.get(run);
    if (found) return found;
    if (this.asking < ASKED_AT_ONCE) void this.find(run);
    return NONE;
  }

  private async find(run: string): Promise<void> {
    this.asking += 1;
    this.known.set(run, NONE);
    if (this.known.size > REMEMBERED) for (const oldest of this.known.keys()) if (this.known.delete(oldest)) break;
    try {
      this.known.set(run, await this.ask(run, AbortSignal.timeout(10_000)));
    } catch {
      // Nobody answers, or the run is forgotten: its loops go without their ends.
    } finally {
      this.asking -= 1;
    }
  }
}

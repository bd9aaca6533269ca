// A run that stops once, before one use: it starts paused, gets a breakpoint of its own, and is let go.
import { ask } from "../../store/ask";
import type { Editor } from "../../store/editor";
import type { BreakShown, HeldCall, PausedRun, WatchStore } from "../../store/watch";
import { look } from "./actions";
import { isAt, type Spot } from "./breaks";

/** Where a hold isn't told of, the run goes on all the same after this. */
const HELD_MS = 10_000;
const KEEP_S = 900;

/**
 * A run that was started with `hold` goes on to the spot and is shown there. Call what is returned when the run is
 * over: the service has taken its breakpoint away then.
 */
export function arrive(editor: Editor, watch: WatchStore, run: string, spot: Spot): () => void {
  const arrival = new Arrival(editor, watch, run, spot);
  void arrival.begin();
  return arrival.end;
}

class Arrival {
  private own: BreakShown | null = null;
  private over = false;
  private readonly leave: () => void;

  constructor(
    private readonly editor: Editor,
    private readonly watch: WatchStore,
    private readonly run: string,
    private readonly spot: Spot,
  ) {
    this.leave = watch.watch(() => {
      if (this.own && this.here()) this.arrived();
    });
  }

  async begin(): Promise<void> {
    const { watch, run, spot } = this;
    await ask(this.editor, async () => {
      this.own = await watch.addBreakpoint({ ...spot, run, seconds: KEEP_S });
    });
    // It came too late to go with the run.
    if (this.over) return this.clear();
    await until(watch, () => this.over || (this.paused()?.held.length ?? 0) > 0);
    if (this.over) return;
    // It may begin where it is to stop.
    if (this.own && this.here()) return this.arrived();
    await ask(this.editor, () => watch.steer(run, "resume"));
  }

  readonly end = (): void => {
    this.over = true;
    this.leave();
    this.own = null;
  };

  private paused(): PausedRun | undefined {
    return this.watch.get().paused[this.run];
  }

  /** The call that it is held before at the spot. */
  private here(): HeldCall | null {
    return this.paused()?.held.find((held) => !held.loop && isAt(held, this.spot)) ?? null;
  }

  private arrived(): void {
    look(this.editor, this.run, this.here());
    this.clear();
    this.end();
  }

  private clear(): void {
    const { own } = this;
    this.own = null;
    if (own) void ask(this.editor, () => this.watch.removeBreakpoint(own.id));
  }
}

function until(watch: WatchStore, done: () => boolean): Promise<void> {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      leave();
      resolve();
    };
    const timer = setTimeout(finish, HELD_MS);
    const leave = watch.watch(() => done() && finish());
    if (done()) finish();
  });
}

// Which runs are under way, and which nodes they may still call. Pure.
import { isOver, type Steps } from "./steps";

interface Run {
  steps: Steps | null;
  awaited: Set<string>;
  /** The Walk that was heard of last. */
  walk: string | null;
}

const REMEMBERED = 64;

export class Runs {
  private readonly live = new Map<string, Run>();
  /** Ended of late: packets of the ranks may still come after the news of the end. */
  private readonly over = new Set<string>();

  get size(): number {
    return this.live.size;
  }

  has(id: string): boolean {
    return this.live.has(id);
  }

  isOver(id: string): boolean {
    return this.over.has(id);
  }

  begin(id: string): void {
    this.live.set(id, { steps: null, awaited: new Set(), walk: null });
  }

  /** The nodes that a run may call; none where they were told before. */
  expect(id: string, steps: Steps | null): string[] {
    const run = this.live.get(id);
    if (!run || run.steps || !steps) return [];
    run.steps = steps;
    run.awaited = new Set(steps.nodes.keys());
    return [...run.awaited];
  }

  /** A run is in this Walk. The nodes that only Walks before it call, and that no other run may call. */
  reach(id: string, walk: string): string[] {
    const run = this.live.get(id);
    if (!run || run.walk === walk) return [];
    run.walk = walk;
    const { steps } = run;
    if (!steps) return [];
    const passed = [...run.awaited].filter((node) =>
      (steps.nodes.get(node) ?? []).every((one) => isOver(steps, one, walk)),
    );
    for (const node of passed) run.awaited.delete(node);
    return passed.filter((node) => !this.awaits(node));
  }

  /** The nodes that nobody may call any more; null where the news is old. */
  end(id: string): { known: boolean; released: string[] } | null {
    if (this.over.has(id)) return null;
    this.over.add(id);
    if (this.over.size > REMEMBERED) for (const oldest of this.over) if (this.over.delete(oldest)) break;
    const run = this.live.get(id);
    this.live.delete(id);
    return { known: run !== undefined, released: [...(run?.awaited ?? [])].filter((node) => !this.awaits(node)) };
  }

  /** Nothing counts as under way. */
  clear(): void {
    this.live.clear();
  }

  private awaits(node: string): boolean {
    for (const run of this.live.values()) if (run.awaited.has(node)) return true;
    return false;
  }
}

// The undo history, kept for this window through a reload. It belongs to a document's content: a graph that
// is another one by then has no history.
import { sameDocuments } from "./same";
import type { Documents, Step } from "./types";

export interface Undoable {
  documents: Documents;
  past: readonly Step[];
  future: readonly Step[];
}

const PREFIX = "walkgraph:undo:";
/** Characters of one graph's history; a browser gives a window about five million for all. */
const MOST = 1_500_000;

/** `storage`: the window's own (`sessionStorage`), so that no two windows share a history. */
export class UndoStore {
  constructor(
    private readonly name: string,
    private readonly storage: Storage,
    private readonly most = MOST,
  ) {}

  /** Oldest steps go where there is no room for all. */
  write({ documents, past, future }: Undoable): void {
    for (let kept = past.length; ; kept = Math.floor(kept / 2)) {
      if (kept + future.length === 0) return this.drop();
      const text = packed({ documents, past: kept ? past.slice(-kept) : [], future });
      if (text.length <= this.most && this.put(text)) return;
      if (kept === 0) return this.drop();
    }
  }

  /** The steps before and after `documents`; null where they are none that this window has seen. */
  read(documents: Documents): Pick<Undoable, "past" | "future"> | null {
    const kept = unpacked(this.storage.getItem(PREFIX + this.name));
    return kept && around(kept, documents);
  }

  private drop(): void {
    this.storage.removeItem(PREFIX + this.name);
  }

  private put(text: string): boolean {
    try {
      this.storage.setItem(PREFIX + this.name, text);
      return true;
    } catch {
      return false;
    }
  }
}

/**
 * The history as seen from its nearest state that is `now`, the later of two as near; null where it has none. The
 * state that the service has is an earlier one than the last where the last edits were not saved.
 */
export function around(
  { documents, past, future }: Undoable,
  now: Documents,
): Pick<Undoable, "past" | "future"> | null {
  const states = [...past.map((step) => step.before), documents, ...future.map((step) => step.before).reverse()];
  const steps = [...past, ...[...future].reverse()];
  const found = states
    .map((state, index) => ({ index, away: Math.abs(index - past.length), same: sameDocuments(state, now) }))
    .filter(({ same }) => same)
    .sort((a, b) => a.away - b.away || b.index - a.index)[0];
  if (!found) return null;
  const at = found.index;
  // A step's label is of the edit between two states; `before` is the state that taking it leads to.
  const step = (edit: number, to: number): Step => ({ ...steps[edit]!, before: states[to]! });
  return {
    past: states.slice(0, at).map((_, index) => step(index, index)),
    future: states
      .slice(at + 1)
      .map((_, index) => step(at + index, at + index + 1))
      .reverse(),
  };
}

// ── as text ────────────────────────────────────────────────────────────────────────────────────
// States share what no edit between them changed. Every object stands once in a table, those inside it before it; a
// place that holds one names its number, in brackets.

type Slot = string | number | boolean | null | [number];
type Row = { a: Slot[] } | { o: Record<string, Slot> } | { m: Slot[] };

export function packed(value: unknown): string {
  const rows: Row[] = [];
  const numbers = new Map<object, number>();
  const put = (value: unknown): Slot => {
    if (typeof value !== "object" || value === null) return value as Slot;
    const known = numbers.get(value);
    if (known !== undefined) return [known];
    const row = rowOf(value);
    numbers.set(value, rows.push(row) - 1);
    return [rows.length - 1];
  };
  const rowOf = (value: object): Row => {
    if (value instanceof Map) return { m: [...value].flat().map(put) };
    if (Array.isArray(value)) return { a: value.map(put) };
    const fields = Object.entries(value).filter(([, field]) => field !== undefined);
    return { o: Object.fromEntries(fields.map(([key, field]) => [key, put(field)])) };
  };
  put(value);
  return JSON.stringify(rows);
}

function unpacked(text: string | null): Undoable | null {
  const values: unknown[] = [];
  const get = (slot: Slot): unknown => (Array.isArray(slot) ? values[slot[0]] : slot);
  try {
    for (const row of JSON.parse(text ?? "[]") as Row[]) values.push(valueOf(row, get));
  } catch {
    return null;
  }
  const found = values.at(-1) as Partial<Undoable> | undefined;
  return found?.documents?.graph && found.past && found.future ? (found as Undoable) : null;
}

function valueOf(row: Row, get: (slot: Slot) => unknown): unknown {
  if ("a" in row) return row.a.map(get);
  if ("o" in row) return Object.fromEntries(Object.entries(row.o).map(([key, slot]) => [key, get(slot)]));
  const flat = row.m.map(get);
  return new Map(flat.flatMap((key, index) => (index % 2 ? [] : [[key, flat[index + 1]]])));
}

// Keeps unsaved edits in this browser too, so that neither a crash nor a lost service loses an edit.
import type { Documents } from "../store/types";

export interface CrashCopy {
  /** Version of the stored graph that it was made from; null: a new one. */
  etag: string | null;
  /** Milliseconds since 1970. */
  at: number;
  documents: Documents;
}

const PREFIX = "walkgraph:unsaved:";
/** Copies that were found at opening wait here for the user's word, while new ones are written beside. */
const FOUND = "walkgraph:found:";

export class CrashCopies {
  constructor(
    private readonly name: string,
    private readonly storage: Storage,
  ) {}

  /** Replaces the one of this etag. Silent where the browser keeps nothing: then the service alone has it. */
  write(copy: CrashCopy): void {
    try {
      this.storage.setItem(this.key(copy.etag), textOf(copy));
    } catch {
      this.drop();
    }
  }

  /** All is saved. */
  drop(): void {
    for (const key of this.keys(PREFIX)) this.storage.removeItem(key);
  }

  /** The newest copy that an earlier page left; it stays until `forget`. */
  find(): CrashCopy | null {
    const copies = [...this.keys(PREFIX), ...this.keys(FOUND)].flatMap((key) => readCopy(this.storage.getItem(key)));
    const newest = copies.sort((a, b) => b.at - a.at)[0] ?? null;
    this.drop();
    this.forget();
    if (newest) this.storage.setItem(`${FOUND}${this.name}:`, textOf(newest));
    return newest;
  }

  /** The user has decided about the found one. */
  forget(): void {
    for (const key of this.keys(FOUND)) this.storage.removeItem(key);
  }

  private key(etag: string | null): string {
    return `${PREFIX}${this.name}:${etag ?? "new"}`;
  }

  private keys(prefix: string): string[] {
    const all = Array.from({ length: this.storage.length }, (_, index) => this.storage.key(index) ?? "");
    return all.filter((key) => key.startsWith(`${prefix}${this.name}:`));
  }
}

function textOf(copy: CrashCopy): string {
  const { sources, ...documents } = copy.documents;
  return JSON.stringify({ ...copy, documents, sources: [...(sources ?? [])] });
}

function readCopy(text: string | null): CrashCopy[] {
  try {
    const read = JSON.parse(text ?? "null") as (CrashCopy & { sources?: [string, string][] }) | null;
    if (!read?.documents?.graph) return [];
    const { sources = [], documents, ...copy } = read;
    return [{ ...copy, documents: { ...documents, sources: new Map(sources) } }];
  } catch {
    return [];
  }
}

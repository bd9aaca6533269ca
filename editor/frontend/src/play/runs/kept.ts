// The contents of the forms and the selected one, kept by the browser's tab: a reloaded page has them
// again. Pictures and the like are kept up to a bound.
import { renewed } from "../model/form";
import type { Given } from "../model/types";

/** The current selection. */
export interface Look {
  /** Deployment -> task. */
  task: Record<string, string>;
  /** Name of the open graph -> deployment. */
  chosen: Record<string, string>;
}

const FORM = "walkgraph:play:form:";
const LOOK = "walkgraph:play:look";
/** Characters of all files of a form; a tab keeps some five million in all. */
export const MOST_FILES = 1_000_000;

export class Kept {
  private readonly written = new Map<string, Given>();

  /** null: the browser keeps nothing. */
  constructor(private readonly storage: Storage | null) {}

  /** `deployment/task` -> form. */
  form(key: string): Given | null {
    const given = this.read<Given>(FORM + key);
    return given && Array.isArray(given.parts) && typeof given.params === "object" ? renewed(given) : null;
  }

  look(): Look {
    const { task = {}, chosen = {} } = this.read<Partial<Look>>(LOOK) ?? {};
    return { task, chosen };
  }

  /** Those that have changed since. */
  write(forms: Readonly<Record<string, Given>>): void {
    for (const [key, given] of Object.entries(forms)) {
      if (this.written.get(key) === given) continue;
      this.written.set(key, given);
      if (!this.put(FORM + key, bounded(given, MOST_FILES))) this.put(FORM + key, bounded(given, 0));
    }
  }

  writeLook(look: Look): void {
    this.put(LOOK, look);
  }

  private put(key: string, value: unknown): boolean {
    try {
      this.storage?.setItem(key, JSON.stringify(value));
      return true;
    } catch {
      // There is no room.
      return false;
    }
  }

  private read<T>(key: string): T | null {
    try {
      return JSON.parse(this.storage?.getItem(key) ?? "null") as T | null;
    } catch {
      return null;
    }
  }
}

/** Without the files for which there is no room. */
function bounded(given: Given, most: number): Given {
  let room = most;
  const parts = given.parts.map((part) => {
    const size = part.media?.data.length ?? 0;
    if (size > room) return { ...part, media: null };
    room -= size;
    return part;
  });
  return { ...given, parts };
}

/** The tab's own; null where the browser forbids it. */
export function tabStorage(): Storage | null {
  try {
    return globalThis.sessionStorage ?? null;
  } catch {
    return null;
  }
}

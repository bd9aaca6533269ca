// Runs of this browser, in IndexedDB, or in memory if there is none. The oldest runs are removed first.
import type { Given, Result, ResultState } from "../model/types";
import { strings } from "../../strings";

/** One line of the list. */
export interface Head {
  /** The run's. */
  id: string;
  at: number;
  deployment: string;
  task: string;
  state: ResultState;
  seed: number | null;
  seconds: number | null;
  /** A small picture, as a `data:` URL. */
  thumb: string | null;
  /** Short texts of the inputs and outputs. */
  said: string;
  wrote: string;
  /** Bytes that it takes, about. */
  size: number;
}

export interface Entry {
  head: Head;
  given: Given;
  result: Result;
  /** false: of the service's memory, and some inputs are no longer in it. */
  complete?: boolean;
}

export interface History {
  /** Newest first. */
  list(): Promise<Head[]>;
  get(id: string): Promise<Entry | null>;
  put(entry: Entry): Promise<void>;
  remove(ids: readonly string[]): Promise<void>;
}

const MOST_RUNS = 200;
export const MOST_BYTES = 256 * 1024 * 1024;

/** Ids of what must go so that the rest is within bounds. `heads`: newest first. */
export function surplus(heads: readonly Head[], runs = MOST_RUNS, bytes = MOST_BYTES): string[] {
  let room = bytes;
  return heads.filter((head, index) => (room -= head.size) < 0 || index >= runs).map((head) => head.id);
}

export class MemoryHistory implements History {
  private readonly entries = new Map<string, Entry>();

  async list(): Promise<Head[]> {
    return [...this.entries.values()].map((entry) => entry.head).sort((a, b) => b.at - a.at);
  }

  async get(id: string): Promise<Entry | null> {
    return this.entries.get(id) ?? null;
  }

  async put(entry: Entry): Promise<void> {
    this.entries.set(entry.head.id, entry);
    await this.remove(surplus(await this.list(), MOST_RUNS, MOST_BYTES / 4));
  }

  async remove(ids: readonly string[]): Promise<void> {
    for (const id of ids) this.entries.delete(id);
  }
}

const HEADS = "heads";
const BODIES = "bodies";

class StoredHistory implements History {
  constructor(private readonly database: IDBDatabase) {}

  async list(): Promise<Head[]> {
    const heads = (await answer(this.database.transaction(HEADS).objectStore(HEADS).getAll())) as Head[];
    return heads.sort((a, b) => b.at - a.at);
  }

  async get(id: string): Promise<Entry | null> {
    return (
      ((await answer(this.database.transaction(BODIES).objectStore(BODIES).get(id))) as Entry | undefined) ?? null
    );
  }

  async put(entry: Entry): Promise<void> {
    const change = this.database.transaction([HEADS, BODIES], "readwrite");
    change.objectStore(HEADS).put(entry.head);
    change.objectStore(BODIES).put({ ...entry, id: entry.head.id });
    await ended(change);
    await this.remove(surplus(await this.list()));
  }

  async remove(ids: readonly string[]): Promise<void> {
    if (ids.length === 0) return;
    const change = this.database.transaction([HEADS, BODIES], "readwrite");
    for (const id of ids) {
      change.objectStore(HEADS).delete(id);
      change.objectStore(BODIES).delete(id);
    }
    await ended(change);
  }
}

function answer<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error(strings.play.theBrowsersStorageFailed));
  });
}

function ended(change: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    change.oncomplete = () => resolve();
    change.onabort = change.onerror = () => reject(change.error ?? new Error(strings.play.theBrowsersStorageIsFull));
  });
}

let opened: Promise<History> | null = null;

/** This browser's, one for the page. */
export function history(): Promise<History> {
  opened ??= open().catch(() => new MemoryHistory());
  return opened;
}

async function open(): Promise<History> {
  const request = indexedDB.open("walkgraph-play", 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore(HEADS, { keyPath: "id" });
    request.result.createObjectStore(BODIES, { keyPath: "id" });
  };
  return new StoredHistory(await answer(request));
}

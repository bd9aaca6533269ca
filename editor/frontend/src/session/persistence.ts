// The draft in the service follows what is open here: saved a second after the last edit, never over somebody else's
// work, retried while nobody answers. What isn't saved is kept in this browser meanwhile.
import { ApiError } from "../api/client";
import type { CrashCopies } from "./crash";
import { etagsOf, readBoth, remove, write, writeCopy, type StoredDocuments } from "../store/documents";
import type { Editor } from "../store/editor";
import { same, sameDocuments } from "../store/same";
import type { Documents, EditorState, Saving } from "../store/types";
import { strings } from "../strings";

const SAVE_MS = 1000;
/** Somebody who never pauses is saved this often. */
const LONGEST_MS = 5000;
const CRASH_MS = 300;
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 30_000;
/** A browser lets no more than 64 KiB go on after the page is gone. */
const KEEPALIVE_CHARS = 60_000;
/** Writes that meet another's write of equal content each time, before it is called a failure. */
const ATTEMPTS = 4;

export type Choice = "mine" | "theirs" | "copy";

export class Persistence {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private crashTimer: ReturnType<typeof setTimeout> | undefined;
  private unsavedSince: number | null = null;
  private failures = 0;
  private writing: Promise<void> | null = null;
  /** Why nothing may be edited here. */
  private held: string | null = null;
  private theirs: StoredDocuments | null = null;
  /** Documents are being replaced from outside: that is no edit. */
  private applying = false;
  /** A graph that the service doesn't have is written from the first edit on. */
  private untouched: Documents;
  private readonly unsubscribe: () => void;

  constructor(
    private readonly editor: Editor,
    private base: StoredDocuments,
    private readonly crash: CrashCopies,
    private readonly onSaved: () => void = () => undefined,
  ) {
    this.untouched = editor.state.documents;
    editor.store.setState({ saving: { state: "saved", at: null }, etags: etagsOf(base) });
    this.unsubscribe = editor.store.subscribe((state, before) => {
      if (state.documents !== before.documents && !this.applying) this.changed(before);
    });
  }

  dispose(): void {
    this.unsubscribe();
    this.stopTimers();
    clearTimeout(this.crashTimer);
  }

  /** By content: what was changed and changed back is not dirty. */
  get dirty(): boolean {
    const { documents } = this.editor.state;
    if (this.base.graph === null) return documents !== this.untouched;
    return !same(documents.graph, this.base.graph.value) || !same(documents.placement, valueOf(this.base.placement));
  }

  /** Save now what isn't saved. Never raises: `saving` says how it went. */
  async flush(keepalive = false): Promise<void> {
    while (this.writing) await this.writing;
    if (!this.dirty || this.blocked) return;
    if (keepalive) this.keepCrashCopy();
    this.writing = this.attempt(keepalive).finally(() => (this.writing = null));
    await this.writing;
  }

  /** The service answers again. */
  retryNow(): void {
    if (this.editor.state.saving.state === "offline") void this.flush();
  }

  /** Nothing may be edited here from now on; `reason` is for the user. */
  hold(reason: string): void {
    this.held = reason;
    this.stopTimers();
    this.tell({ state: "readonly", reason });
  }

  /** Edit here (again), from what the service has. */
  async release(): Promise<void> {
    await this.follow();
    this.held = null;
    this.settle();
  }

  /** Look whether the service has something newer, and take it where nothing of ours is lost. */
  async follow(): Promise<void> {
    while (this.writing) await this.writing;
    if (this.editor.state.saving.state === "conflict") return;
    try {
      const theirs = await this.fetch();
      if (this.held === null) await this.reconcile(theirs);
      else this.show(theirs);
    } catch (error) {
      this.failed(error);
    }
  }

  /** End a conflict. Raises ApiError where the copy can't be stored; the conflict stays. */
  async resolve(choice: Choice): Promise<string | null> {
    const theirs = this.theirs;
    if (!theirs) return null;
    const mine = this.editor.state.documents;
    const copy = choice === "copy" ? await writeCopy(this.editor.state.name, mine) : null;
    this.theirs = null;
    this.base = theirs;
    if (choice !== "mine") {
      this.apply(() => this.editor.replace(strings.shell.useTheOtherVersion, documentsOf(theirs, mine)));
    }
    this.tell({ state: "unsaved" });
    if (this.dirty) await this.flush();
    else this.settle();
    return copy;
  }

  /** Write the copy in this browser now; for a page that may be about to end. */
  keepCrashCopy(): void {
    clearTimeout(this.crashTimer);
    this.crashTimer = undefined;
    if (!this.dirty || this.held !== null) return;
    const { documents } = this.editor.state;
    this.crash.write({ etag: this.base.graph?.etag ?? null, at: Date.now(), documents });
  }

  private get blocked(): boolean {
    return this.held !== null || this.editor.state.saving.state === "conflict";
  }

  private changed(before: EditorState): void {
    if (this.held !== null) {
      const { documents, past, future } = before;
      this.apply(() => this.editor.store.setState({ documents, past, future }));
      this.editor.say(strings.shell.chooseEditHereToChange(this.held));
      return;
    }
    if (!this.dirty && !this.writing) {
      if (!this.blocked) this.settle();
      return;
    }
    // While nobody answers, the page says that edits are kept in this browser: that has to be true at once.
    if (this.editor.state.saving.state === "offline") this.keepCrashCopy();
    else this.crashTimer ??= setTimeout(() => this.keepCrashCopy(), CRASH_MS);
    if (this.blocked) return;
    if (!this.writing && this.editor.state.saving.state !== "offline") this.tell({ state: "unsaved" });
    this.schedule();
  }

  private schedule(): void {
    this.unsavedSince ??= Date.now();
    const longest = this.unsavedSince + LONGEST_MS - Date.now();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.flush(), Math.max(0, Math.min(SAVE_MS, longest)));
  }

  private async attempt(keepalive: boolean): Promise<void> {
    this.stopTimers();
    if (this.editor.state.saving.state !== "offline") this.tell({ state: "saving" });
    try {
      for (let left = ATTEMPTS; ; left -= 1) {
        try {
          await this.write(keepalive);
          break;
        } catch (error) {
          if (!(error instanceof ApiError) || error.status !== 412 || left === 0) throw error;
          this.merge(await this.fetch());
          if (this.theirs) return;
        }
      }
      this.failures = 0;
      this.settle();
      this.onSaved();
    } catch (error) {
      this.failed(error);
    }
  }

  /** One PUT for each document that differs. */
  private async write(keepalive: boolean): Promise<void> {
    const { name, placementName, documents } = this.editor.state;
    const { graph, placement } = this.base;
    if (!graph || !same(documents.graph, graph.value)) {
      const short = keepalive && JSON.stringify(documents.graph).length < KEEPALIVE_CHARS;
      const options = { keepalive: short, sources: documents.sources };
      this.base = { ...this.base, graph: await write("graphs", name, documents.graph, graph, options) };
    }
    if (!same(documents.placement, valueOf(placement))) {
      const wanted = documents.placement;
      if (wanted === null && placement) await remove("placements", placementName, placement.etag);
      const stored = wanted && (await write("placements", placementName, wanted, placement, { keepalive }));
      this.base = { ...this.base, placement: stored };
    }
    this.editor.store.setState({ etags: etagsOf(this.base) });
  }

  private async reconcile(theirs: StoredDocuments): Promise<void> {
    this.merge(theirs);
    if (this.theirs === null && this.dirty) await this.flush();
    else if (this.theirs === null) this.settle();
  }

  /**
   * Take over what only they changed, keep what only we changed. What both changed differently is a conflict. Equal
   * content is never one, whatever its etag.
   */
  private merge(theirs: StoredDocuments): void {
    const mine = this.editor.state.documents;
    const before = documentsOf(this.base, mine);
    const other = documentsOf(theirs, mine);
    const both = (kind: keyof Documents) =>
      !same(mine[kind], before[kind]) && !same(other[kind], before[kind]) && !same(mine[kind], other[kind]);
    if (both("graph") || both("placement")) {
      this.theirs = theirs;
      this.keepCrashCopy();
      this.tell({ state: "conflict", theirs: other, etags: etagsOf(theirs) });
      return;
    }
    const from = same(mine.graph, before.graph) ? other : mine;
    const merged: Documents = {
      graph: from.graph,
      sources: from.sources,
      placement: same(mine.placement, before.placement) ? other.placement : mine.placement,
    };
    this.base = theirs;
    if (theirs.graph === null && same(mine.graph, before.graph)) this.untouched = mine;
    if (!sameDocuments(merged, mine))
      this.apply(() => this.editor.replace(strings.shell.changesFromElsewhere, merged));
    this.editor.store.setState({ etags: etagsOf(theirs) });
  }

  /** A reader sees their version, without its own history. */
  private show(theirs: StoredDocuments): void {
    const mine = this.editor.state.documents;
    const documents = documentsOf(theirs, mine);
    this.base = theirs;
    const shown = sameDocuments(documents, mine) ? mine : documents;
    this.apply(() => this.editor.store.setState({ documents: shown, past: [], future: [], etags: etagsOf(theirs) }));
  }

  private fetch(): Promise<StoredDocuments> {
    return readBoth(this.editor.state.name, this.editor.state.placementName);
  }

  private settle(): void {
    if (this.blocked) return;
    if (this.dirty) {
      this.tell({ state: "unsaved" });
      this.schedule();
      return;
    }
    this.stopTimers();
    clearTimeout(this.crashTimer);
    this.crashTimer = undefined;
    this.unsavedSince = null;
    this.crash.drop();
    this.tell({ state: "saved", at: this.base.graph ? Date.now() : null });
  }

  private failed(error: unknown): void {
    if (!(error instanceof ApiError)) throw error;
    this.keepCrashCopy();
    if (this.held !== null) return;
    this.tell({ state: "offline", message: wordsOf(error) });
    if (error.status !== 0 && error.status < 500 && error.status !== 401) return;
    const wait = Math.min(FIRST_RETRY_MS * 2 ** this.failures, LONGEST_RETRY_MS);
    this.failures = Math.min(this.failures + 1, 10);
    clearTimeout(this.retry);
    this.retry = setTimeout(() => void (this.dirty ? this.flush() : this.follow()), wait);
  }

  private apply(change: () => void): void {
    this.applying = true;
    try {
      change();
    } finally {
      this.applying = false;
    }
  }

  private stopTimers(): void {
    clearTimeout(this.timer);
    clearTimeout(this.retry);
    this.unsavedSince = null;
  }

  private tell(saving: Saving): void {
    this.editor.store.setState({ saving });
  }
}

function valueOf<T>(stored: { value: T } | null): T | null {
  return stored ? stored.value : null;
}

/** `mine` stands in for a graph that is gone from the service. */
function documentsOf(stored: StoredDocuments, mine: Documents): Documents {
  const { value: graph, sources } = stored.graph ?? { value: mine.graph, sources: mine.sources };
  return { graph, placement: valueOf(stored.placement), sources };
}

function wordsOf(error: ApiError): string {
  if (error.status === 0) return strings.shell.offlineKeptInThisBrowser;
  if (error.status === 401) return strings.shell.signedOutKeptInThis;
  return strings.shell.notSavedKeptInThis(error.message);
}

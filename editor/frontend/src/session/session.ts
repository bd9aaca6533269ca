// An open document with all that keeps it in step with the service. Sessions outlive the component's mounts, so that
// history and view survive a change of page.
import { createStore, type StoreApi } from "zustand/vanilla";
import type { Catalogue } from "../messages/answers";
import { loadCatalogue } from "../catalogue/catalogue";
import { Following } from "./following";
import { telemetry } from "../api/socket";
import { Checking } from "./checking";
import { CrashCopies, type CrashCopy } from "./crash";
import { Deployments } from "../store/deployments";
import { openDocuments, type Opened } from "../store/documents";
import { Editor } from "../store/editor";
import { Persistence } from "./persistence";
import { Planning } from "./planning";
import { Renewing } from "./renewing";
import { leave } from "./scratch";
import { sameDocuments } from "../store/same";
import { Tabs, type Channel } from "./tabs";
import { UndoStore } from "../store/undo";
import { strings } from "../strings";

/** Another tab that edits has answered by then. */
const ANSWER_MS = 250;

interface Attached {
  dispose: () => void;
}

export class Session {
  readonly editor: Editor;
  readonly persistence: Persistence;
  /** Unsaved changes that an earlier page left in this browser. */
  readonly found: StoreApi<{ copy: CrashCopy | null }> = createStore(() => ({ copy: null }));
  readonly tabs: Tabs;
  private readonly copies: CrashCopies;
  private readonly undo: UndoStore;
  private attached: Attached[] = [];
  private mounts = 0;
  /** Then the service may have something newer by now. */
  private shownBefore = false;

  constructor(name: string, opened: Opened, catalogue: Catalogue) {
    this.editor = new Editor(name, opened.documents, catalogue);
    this.editor.store.setState({ placementName: opened.placementName });
    this.undo = new UndoStore(name, sessionStorage);
    this.editor.store.setState(this.undo.read(opened.documents) ?? {});
    this.copies = new CrashCopies(name, localStorage);
    this.tabs = new Tabs(() => new BroadcastChannel(`walkgraph:${name}`) as Channel, {
      reading: (reason) => this.persistence.hold(reason),
      editing: () => void this.persistence.release(),
      saved: () => void this.persistence.follow(),
      flush: () => this.persistence.flush(),
    });
    this.persistence = new Persistence(this.editor, opened.stored, this.copies, () => this.tabs.saved());
    sessionsOf.set(this.editor, this);
  }

  /** The component shows it: follow the service. */
  mount(): void {
    this.mounts += 1;
    if (this.mounts > 1) return;
    const { editor, persistence } = this;
    this.attached = [
      new Checking(editor),
      new Planning(editor),
      new Deployments(editor),
      new Following(editor),
      new Renewing(editor),
      this.listen(),
    ];
    this.tabs.start();
    if (this.shownBefore) void persistence.follow();
    this.shownBefore = true;
    const settled = setTimeout(() => this.settle(), ANSWER_MS);
    this.attached.push({ dispose: () => clearTimeout(settled) });
  }

  /** Not shown any more. Resolves when everything is saved, or kept in this browser. */
  async unmount(): Promise<void> {
    this.mounts -= 1;
    if (this.mounts > 0) return;
    for (const attached of this.attached) attached.dispose();
    this.attached = [];
    this.undo.write(this.editor.state);
    await this.persistence.flush(true);
    if (this.mounts === 0) this.tabs.stop();
  }

  restoreFound(): void {
    const { copy } = this.found.getState();
    if (copy) this.editor.restore(strings.shell.restoreUnsavedChanges, copy.documents);
    this.forgetFound();
  }

  forgetFound(): void {
    this.copies.forget();
    this.found.setState({ copy: null });
  }

  private settle(): void {
    if (!this.tabs.isEditing) return;
    if (this.editor.state.saving.state === "readonly") void this.persistence.release();
    if (this.persistence.dirty) return;
    const copy = this.copies.find();
    const { documents } = this.editor.state;
    if (copy && !sameDocuments(copy.documents, documents)) this.found.setState({ copy });
    else this.copies.forget();
  }

  private listen(): Attached {
    const { editor, persistence, tabs, undo } = this;
    const stop = new AbortController();
    const on = (target: EventTarget, type: string, run: () => void) =>
      target.addEventListener(type, run, { signal: stop.signal });
    on(window, "blur", () => void persistence.flush());
    on(document, "visibilitychange", () => {
      if (document.visibilityState !== "hidden") return;
      undo.write(editor.state);
      void persistence.flush();
    });
    on(window, "online", () => persistence.retryNow());
    on(window, "pagehide", () => {
      undo.write(editor.state);
      void persistence.flush(true);
      tabs.stop();
      leave(editor);
    });
    on(window, "pageshow", () => tabs.start());
    let before = telemetry.status().state;
    const unwatch = telemetry.watch(() => {
      const { state } = telemetry.status();
      if (state === "open" && before !== "open") persistence.retryNow();
      before = state;
    });
    return {
      dispose: () => {
        stop.abort();
        unwatch();
      },
    };
  }
}

const sessions = new Map<string, Promise<Session>>();
const sessionsOf = new WeakMap<Editor, Session>();

/** The open document of a name; the same one for as long as the page lives. Raises ApiError. */
export function openSession(name: string): Promise<Session> {
  const open = sessions.get(name);
  if (open) return open;
  const opening = Promise.all([openDocuments(name), loadCatalogue()]).then(
    ([opened, catalogue]) => new Session(name, opened, catalogue),
  );
  sessions.set(name, opening);
  opening.catch(() => sessions.delete(name));
  return opening;
}

/** Save what isn't saved; for whoever needs the service to have what is on the screen. */
export async function flush(editor: Editor): Promise<void> {
  await sessionsOf.get(editor)?.persistence.flush();
}

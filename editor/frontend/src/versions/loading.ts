// Versions from the service, and keeping one.
import { useEffect, useState } from "react";
import { ApiError, call } from "../api/client";
import type { VersionEntry } from "../messages/answers";
import type { Sources } from "../document/json";
import type { GraphDocument } from "../document/types";
import type { Editor } from "../store/editor";
import { flush } from "../session/session";
import { useEditor } from "../store/react";
import { strings } from "../strings";

export type Loaded =
  | { state: "loading" }
  | { state: "here"; graph: GraphDocument; sources?: Sources }
  | { state: "failed"; message: string };

/** One version's graph; `null` loads nothing. Versions never change: the view that mounts this asks once. */
export function useVersion(name: string, id: number | null): Loaded {
  const [loaded, setLoaded] = useState<Loaded>({ state: "loading" });
  useEffect(() => {
    if (id === null) return;
    const control = new AbortController();
    setLoaded({ state: "loading" });
    call<GraphDocument>(`/api/v1/graphs/${encodeURIComponent(name)}/versions/${id}`, { signal: control.signal }).then(
      ({ value, sources }) => setLoaded({ state: "here", graph: value, sources }),
      (error: unknown) => {
        if (!control.signal.aborted) setLoaded({ state: "failed", message: messageOf(error) });
      },
    );
    return () => control.abort();
  }, [name, id]);
  return loaded;
}

/** Keep the draft as a version; what isn't saved yet is saved before. Raises Error with words for the user. */
export async function keepVersion(editor: Editor, note: string): Promise<void> {
  await flush(editor);
  obstacle(editor);
  try {
    const path = `/api/v1/graphs/${encodeURIComponent(editor.state.name)}/versions`;
    await call<VersionEntry>(path, { method: "POST", body: { note } });
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 404) throw error;
    throw new Error(strings.versions.changeSomethingFirstTheService);
  }
}

export function useKeep(): { keep: (note: string) => Promise<boolean>; busy: boolean } {
  const editor = useEditor();
  const [busy, setBusy] = useState(false);
  const keep = async (note: string) => {
    setBusy(true);
    try {
      await keepVersion(editor, note);
      return true;
    } catch (error) {
      editor.say(strings.versions.theVersionWasNotSaved(messageOf(error)), "error");
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { keep, busy };
}

/** Why the service doesn't have what is open here. Raises Error with it. */
function obstacle(editor: Editor): void {
  const { saving } = editor.state;
  if (saving.state === "saved" || saving.state === "readonly") return;
  const reason =
    saving.state === "conflict" ? strings.versions.somebodyElseSavedThisGraph : strings.versions.theDraftCouldNot;
  throw new Error(saving.state === "offline" ? saving.message : reason);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

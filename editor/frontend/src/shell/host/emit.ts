// How the open document stands, told to Streamlit: a few words, seldom, and only when they change.
import type { Editor } from "../../store/editor";
import type { EditorState } from "../../store/types";

export interface DocumentState {
  name: string;
  /** Edits since it was opened here; an undo is one more. */
  rev: number;
  etag: string | null;
  dirty: boolean;
  errors: number;
  warnings: number;
}

export type Emit = (state: DocumentState) => void;

const WAIT_MS = 300;
const revisions = new WeakMap<Editor, number>();

/** Tells at the start, since a page that was left forgets, and after changes. Returns how to stop. */
export function emitter(editor: Editor, emit: Emit): () => void {
  let told = "";
  let timer: ReturnType<typeof setTimeout> | undefined;
  const tell = () => {
    timer = undefined;
    const state = stateOf(editor.state, revisions.get(editor) ?? 0);
    const text = JSON.stringify(state);
    if (text !== told) emit(state);
    told = text;
  };
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(tell, WAIT_MS);
  };
  soon();
  const unsubscribe = editor.store.subscribe((state, before) => {
    if (state.documents !== before.documents) revisions.set(editor, (revisions.get(editor) ?? 0) + 1);
    const changed =
      state.documents !== before.documents ||
      state.saving !== before.saving ||
      state.etags !== before.etags ||
      state.checked !== before.checked;
    if (changed) soon();
  });
  return () => {
    clearTimeout(timer);
    unsubscribe();
  };
}

function stateOf({ name, saving, etags, checked }: EditorState, rev: number): DocumentState {
  const errors = checked.problems.filter((problem) => problem.severity === "error").length;
  const dirty = saving.state !== "saved" && saving.state !== "readonly";
  return { name, rev, etag: etags.graph, dirty, errors, warnings: checked.problems.length - errors };
}

// Edits asked for by a form: what the document refuses comes back as a sentence.
import { useMemo } from "react";
import type { Problem } from "../../messages/answers";
import { EditRefused } from "../../document/edits/parts/records";
import type { GraphDocument, Pointer } from "../../document/types";
import { useEditor, useEditorState } from "../../store/react";
import type { Editor } from "../../store/editor";

export type GraphEdit = (graph: GraphDocument) => GraphDocument;

/** One undoable step on the graph; the reason where it is refused, else null. */
export function apply(editor: Editor, label: string, edit: GraphEdit, merge?: string): string | null {
  try {
    editor.editGraph(label, edit, merge);
    return null;
  } catch (error) {
    if (error instanceof EditRefused) return error.message;
    throw error;
  }
}

/** The same from a button: the reason is said in passing. */
export function attempt(editor: Editor, label: string, edit: GraphEdit): boolean {
  const refused = apply(editor, label, edit);
  if (refused !== null) editor.say(refused, "error");
  return refused === null;
}

export interface Apply {
  editor: Editor;
  apply: (label: string, edit: GraphEdit, merge?: string) => string | null;
  attempt: (label: string, edit: GraphEdit) => boolean;
}

export function useApply(): Apply {
  const editor = useEditor();
  return useMemo(
    () => ({
      editor,
      apply: (label, edit, merge) => apply(editor, label, edit, merge),
      attempt: (label, edit) => attempt(editor, label, edit),
    }),
    [editor],
  );
}

/** The problems at a place and below; `own` those at it alone. */
export function useProblems(pointer: Pointer, own = false): readonly Problem[] {
  const problems = useEditorState((state) => state.checked.problems);
  return useMemo(() => problems.filter((problem) => isAt(problem.pointer, pointer, own)), [problems, pointer, own]);
}

function isAt(found: Pointer, pointer: Pointer, own: boolean): boolean {
  return found === pointer || (!own && found.startsWith(`${pointer}/`));
}

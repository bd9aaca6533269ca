// Edits that may be refused: the reason is said, nothing is changed.
import { EditRefused } from "../../document/edits/parts/records";
import type { GraphDocument } from "../../document/types";
import type { Editor } from "../../store/editor";

/** Returns true if it was done. Any failure other than a refusal is a defect and is thrown. */
export function attempt(editor: Editor, label: string, change: (graph: GraphDocument) => GraphDocument): boolean {
  try {
    editor.editGraph(label, change);
    return true;
  } catch (error) {
    if (!(error instanceof EditRefused)) throw error;
    editor.say(error.message, "error");
    return false;
  }
}

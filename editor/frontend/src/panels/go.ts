// Showing a place: the tab, the canvas, and what is selected there.
import type { Editor } from "../store/editor";
import type { Located } from "./locate";

export function go(editor: Editor, { tab, canvas, selection }: Pick<Located, "tab" | "canvas" | "selection">): void {
  if (tab === "graph") editor.open(canvas, selection);
  else editor.see({ tab, selection });
}

// From a problem to where it is mended.
import type { Pointer } from "../document/types";
import { locate } from "../panels/locate";
import type { Editor } from "../store/editor";

/** Shows the place with what stands there selected. `/graph` may lead the pointer; places of a request show nothing. */
export function goTo(editor: Editor, pointer: Pointer): void {
  const inGraph = pointer.replace(/^\/graph(?=\/)/, "");
  if (/^\/(params|inputs|parts|task)(\/|$)/.test(inGraph)) return;
  const { tab, canvas, selection } = locate(editor.graph, inGraph);
  editor.see(tab === "graph" ? { tab, canvas, selection } : { tab, selection });
}

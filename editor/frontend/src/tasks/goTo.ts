// From a place of the document to where it is edited.
import { entries, flat } from "../document/tree";
import { split } from "../document/pointer";
import type { Pointer } from "../document/types";
import type { Editor } from "../store/editor";

/** Opens the canvas or tab on which this place is shown, with what stands there selected; `/graph` may lead it. */
export function goTo(editor: Editor, pointer: Pointer): void {
  const [section, name = "", ...rest] = split(pointer.replace(/^\/graph(?=\/)/, ""));
  const walk = section === "walks" ? editor.graph.walks?.[name] : undefined;
  if (walk) {
    const inside = `/${rest.join("/")}`;
    const held = flat(entries(walk)).filter(
      (entry) => inside === entry.pointer || inside.startsWith(`${entry.pointer}/`),
    );
    const edge = rest[0] === "edges" && rest[1] !== undefined ? [`edge:${rest[1]}`] : [];
    editor.open({ kind: "walk", walk: name, inside: null }, held.length > 0 ? [held.at(-1)!.id] : edge);
  } else if (section === "nodes" && name) editor.open({ kind: "components" }, [`node:${name}`]);
  else if (section === "streams") {
    const stream = editor.graph.streams?.[Number(name)]?.name;
    editor.open({ kind: "components" }, stream ? [`stream:${stream}`] : []);
  } else if (section === "tasks") editor.see({ tab: "tasks", selection: [`task:${name}`] });
}

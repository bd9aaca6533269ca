// Another component, or another node, where one is: wires that fit stay.
import { replaceUse, setNodeComponent } from "../../document/edits";
import type { GraphDocument } from "../../document/types";
import { walkOfBoard, type Board, type Replaced } from "./board";
import { payloadName, type Payload } from "./dragging";
import { attempt } from "./attempt";
import { settled } from "./move";
import { strings } from "../../strings";

export function replaceWith(board: Board, { id, node }: Replaced, payload: Payload): void {
  const { editor, canvas } = board;
  const { catalogue } = editor.state;
  const walk = walkOfBoard(board);
  let made = id;
  const change = (graph: GraphDocument): GraphDocument => {
    const before = settled(graph, canvas, board.model());
    if (payload.kind === "component") return setNodeComponent(before, node, payload.component, catalogue);
    if (payload.kind !== "node" || walk === null) return graph;
    const replaced = replaceUse(before, walk, id, payload.node, catalogue);
    made = replaced.id;
    return replaced.graph;
  };
  if (!attempt(editor, strings.canvas.replace(node), change)) return;
  editor.select(made);
  board.announce(strings.canvas.replaced(node, payloadName(payload)));
}

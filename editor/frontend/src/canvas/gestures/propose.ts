// A wire was dropped on a port that doesn't take it: what would make it fit is proposed, and put in between by a press.
import { accepts } from "../../document/typing";
import type { GraphDocument } from "../../document/types";
import { between, type Between } from "../model/between";
import type { Point } from "../shapes/types";
import type { Board } from "./board";
import { attempt } from "./attempt";
import { connected } from "./connect";
import { inserted } from "./insert";
import { strings } from "../../strings";

/** Pixels from one new component to the next. */
const APART = 260;

interface Wanted {
  from: string;
  to: string;
  fromType: string;
  toType: string;
  why: string;
}

/** True if something was proposed. */
export function propose(
  board: Board,
  { from, to, fromType, toType, why }: Wanted,
  at: { x: number; y: number },
): boolean {
  const { editor, canvas } = board;
  if (canvas.kind !== "walk" || !fromType || !toType || accepts(toType, fromType) === null) return false;
  const used = new Set(Object.values(editor.graph.nodes ?? {}).map(({ component }) => component));
  const ways = between(editor.state.catalogue, fromType, toType, used);
  if (ways.length === 0) return false;
  const { x, y } = board.flow.screenToFlowPosition(at);
  board.ask({
    at,
    entries: [
      { label: why.replaceAll("`", ""), disabled: true, run: () => undefined },
      ...ways.map((way, index) => ({
        label: strings.canvas.putBetween(way.map(({ component }) => component).join(" → ")),
        apart: index === 0,
        run: () => void putBetween(board, canvas.walk, from, to, way, [x - APART * way.length, y]),
      })),
    ],
  });
  return true;
}

function putBetween(board: Board, walk: string, from: string, to: string, way: Between, [x, y]: Point): void {
  const { editor, canvas } = board;
  const { catalogue } = editor.state;
  const done = attempt(editor, strings.canvas.putBetween(""), (before) => {
    let graph: GraphDocument = before;
    let source = from;
    way.forEach(({ component, input, output }, index) => {
      const where = { canvas, model: board.model(), catalogue, at: [x + APART * index, y] as Point };
      const made = inserted(graph, { kind: "component", component }, where);
      const use = made.id.slice("use:".length);
      graph = connected(made.graph, walk, source, `${use}.${input}`, catalogue);
      source = `${use}.${output}`;
    });
    return connected(graph, walk, source, to, catalogue);
  });
  if (done) board.announce(strings.canvas.connected(from, to));
}

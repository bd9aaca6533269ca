// A wire was dropped on a port. What the ports with a plus stand for is made on the way.
import { connect, reconnect } from "../../document/edits/edges";
import { place } from "../../document/edits/parts/layout";
import { EditRefused } from "../../document/edits/parts/records";
import { addStream, setStream } from "../../document/edits/streams";
import { addToMerge } from "../../document/edits/choices";
import { setHead, withList } from "../../document/edits/heads";
import { addInput, joinResult, setResult } from "../../document/edits/walks";
import { freshName, type Collect } from "../../document/names";
import { portType } from "../../document/ports";
import { parseType } from "../../document/typing";
import { endOf, factsOf, headId, mapLeft } from "../../document/routes";
import type { GraphDocument } from "../../document/types";
import type { Catalogue } from "../../messages/answers";
import { walkOfBoard, type Board, type OpenMenu } from "./board";
import { joined, joinsOf, type Join } from "../model/joins";
import type { Canvas } from "../../store/types";
import { snapped } from "../shapes/geometry";
import type { Model, Point } from "../shapes/types";
import { portName } from "../model/ports";
import { attempt } from "./attempt";
import { settled } from "./move";
import { strings } from "../../strings";

/** Connects two ports by what edges name them; says why where that can't be. Whether it was done. */
export function connectEnds(board: Board, from: string, to: string, [x, y]: Point): boolean {
  const { editor, canvas } = board;
  const walk = canvas.kind === "walk" ? canvas.walk : editor.state.view.lit;
  if (walk === null) return joinNodes(board, from, to, { x, y });
  const [source, target] =
    canvas.kind === "walk" ? [from, to] : [useOf(editor.graph, walk, from), useOf(editor.graph, walk, to)];
  const done = attempt(editor, strings.canvas.connect, (graph) => {
    const made = connected(graph, walk, source, target, editor.state.catalogue);
    return target === NEW_STREAM ? newStreamPlaced(made, canvas, board.model()) : made;
  });
  if (done) board.announce(strings.canvas.connected(source, target));
  if (done) tellMerge(board, walk, target);
  const made = editor.graph.streams?.at(-1);
  if (done && target === NEW_STREAM && made) editor.select(`stream:${made.name}`);
  return done;
}

/** A wire that came to share its port with another branch's: the merge in between is new to its author. */
function tellMerge({ editor }: Board, walk: string, target: string): void {
  const body = editor.graph.walks?.[walk];
  if (!body) return;
  const { routes, results } = factsOf(body);
  const route = [...routes, ...results].find((each) => each.to === target && each.source.kind === "merge");
  if (route) editor.say(strings.canvas.merged(route.source.name));
}

/** The port that stands for a stream still to be made. */
const NEW_STREAM = "@sink.+";

/** A stream of what one step makes; its chunks are single items until somebody says otherwise. */
function newStream(graph: GraphDocument, walk: string, from: string): GraphDocument {
  if (from.startsWith("@") && !from.startsWith("@merge.")) throw new EditRefused(strings.canvas.onlyAStepsOutputCan2);
  const facts = factsOf(graph.walks![walk]!);
  const map = mapLeft(facts, { left: endOf(from, facts, "source").place?.loops ?? [] });
  if (map !== null) throw new EditRefused(strings.canvas.itemsCantFeedAStream(map));
  return addStream(graph, { from, walks: [walk], chunks: { policy: "fixed", size: 1 } }).graph;
}

/** The newest stream's end stands below what leaves the Walk already. */
export function newStreamPlaced(graph: GraphDocument, canvas: Canvas, model: Model): GraphDocument {
  const name = graph.streams?.at(-1)?.name;
  const out = model.boxes.get("@out");
  if (name === undefined || !out) return graph;
  const leaving = [...model.boxes].flatMap(([id, box]) => (id === "@out" || id.startsWith("stream:") ? [box] : []));
  const below = Math.max(...leaving.map((box) => box.y + box.h)) + 24;
  return place(settled(graph, canvas, model), canvas, { [`stream:${name}`]: snapped([out.x, below]) });
}

/** An end of a Walk's edge was dragged to another port. */
export function moveEnd(board: Board, index: number, from: string, to: string): void {
  const { editor } = board;
  const walk = walkOfBoard(board);
  if (walk === null || index < 0) return;
  const { catalogue } = editor.state;
  const change = (graph: GraphDocument) => reconnect(graph, walk, index, { from, to }, catalogue).graph;
  if (attempt(editor, strings.canvas.moveAWire, change)) board.announce(strings.canvas.connected(from, to));
}

/** While no Walk is lit: into the Walk that uses both; as a stream between two Walks; a choice asks. */
function joinNodes(board: Board, from: string, to: string, at: OpenMenu["at"]): boolean {
  const { editor } = board;
  const { graph } = editor;
  const joins = joinsOf(graph, from, to);
  const called = (walk: string) => graph.walks?.[walk]?.label || walk;
  const draw = (join: Join): boolean => {
    const done = attempt(
      editor,
      join.kind === "edge" ? strings.canvas.connect : strings.canvas.drawAStream,
      (before) => joined(before, join, editor.state.catalogue),
    );
    if (done && join.kind === "edge") editor.say(strings.canvas.connectedWithWalk(called(join.walk)));
    return done;
  };
  const [first, ...others] = joins;
  if (!first) editor.say(strings.canvas.noWalkUsesBoth);
  else if (first.kind === "edge" && !others.length) return draw(first);
  else
    board.ask({
      at,
      entries: joins.map((join) => ({
        label:
          join.kind === "edge"
            ? `In “${called(join.walk)}”`
            : strings.canvas.from(
                join.stream ? strings.canvas.theStream(join.stream) : strings.canvas.aNewStream,
                called(join.producer),
                called(join.consumer),
              ),
        run: () => void draw(join),
      })),
    });
  return false;
}

/** On the components canvas ports are those of nodes; in a Walk, of the first use of the node. */
function useOf(graph: GraphDocument, walk: string, ref: string): string {
  const body = graph.walks?.[walk];
  const node = ref.slice(0, ref.indexOf("."));
  const entry = body && [...factsOf(body).uses.values()].find((one) => one.node === node);
  return `${entry?.name ?? node}.${portName(ref)}`;
}

/** All of a loop's text is kept, rather than the last piece. */
function keptWhole(graph: GraphDocument, walk: string, from: string, catalogue: Catalogue): boolean {
  const place = endOf(from, factsOf(graph.walks![walk]!), "source").entry;
  const type = parseType(portType(graph, catalogue, walk, from, "source") ?? "");
  return type?.modality === "text" && !!place?.loops.length;
}

export function connected(
  graph: GraphDocument,
  walk: string,
  from: string,
  to: string,
  catalogue: Catalogue,
  wish: { each?: boolean; collect?: Collect } = {},
): GraphDocument {
  const body = graph.walks?.[walk];
  const facts = body ? factsOf(body) : null;
  if (to.startsWith("@merge.")) return addToMerge(graph, walk, portName(to), from, catalogue);
  const head = headId(to);
  if (head !== null) return setHead(graph, walk, head, from, catalogue);
  if (to === NEW_STREAM) return newStream(graph, walk, from);
  if (to.startsWith("@sink.")) return setStream(graph, portName(to), { from });
  if (to.startsWith("@result.")) {
    const taken = Object.keys(body?.results ?? {});
    const collect = wish.collect ?? keptWhole(graph, walk, from, catalogue);
    if (to === "@result.+") return setResult(graph, walk, freshName(portName(from), taken), from, collect);
    return joinResult(graph, walk, portName(to), from, collect);
  }
  if (from === "@in.+") {
    const name = freshName(portName(to), Object.keys(body?.inputs ?? {}));
    const type = portType(graph, catalogue, walk, to, "target") ?? "tensor";
    const made = addInput(graph, walk, name, type);
    return withList(connect(made, walk, `@in.${name}`, to, catalogue, wish), walk, catalogue);
  }
  if (to === "@out.+") {
    const outs = facts?.routes.flatMap((route) => (route.target.kind === "out" ? route.target.name : [])) ?? [];
    return connect(graph, walk, from, `@out.${freshName(portName(from), outs)}`, catalogue, wish).graph;
  }
  return withList(connect(graph, walk, from, to, catalogue, wish), walk, catalogue);
}

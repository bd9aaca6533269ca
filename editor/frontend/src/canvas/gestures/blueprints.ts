// Blueprints on the canvas: made of a selection, opened into the Walk, shared with the library and as files. The service
// makes the changed graph; it becomes one undoable step.
import { ApiError, call } from "../../api/client";
import { BLUEPRINT, blueprintOf } from "../../document/blueprints/inside";
import { freshName } from "../../document/names";
import { factsOf } from "../../document/routes";
import type { Blueprint, GraphDocument } from "../../document/types";
import { list, read, write } from "../../store/documents";
import type { Editor } from "../../store/editor";
import { download } from "../../ui/handing";
import { strings } from "../../strings";
import type { Point } from "../shapes/types";
import { itemsIn, walkOfBoard, type Board, type OpenMenu } from "./board";
import { insertAt } from "./drop";
import { settled } from "./move";

interface Edited {
  graph: GraphDocument;
  name: string;
}

/** Ask the service for a changed graph and make it one step, unless the graph has changed meanwhile. */
async function changed(editor: Editor, label: string, action: string, graph: GraphDocument, body: object) {
  const before = editor.graph;
  try {
    const { value } = await call<Edited>(`/api/v1/blueprints/${action}`, {
      method: "POST",
      body: { graph, ...body },
    });
    if (editor.graph !== before) {
      editor.say(strings.canvas.theGraphHasChanged, "error");
      return null;
    }
    editor.editGraph(label, () => value.graph);
    return value;
  } catch (error) {
    said(editor, error);
    return null;
  }
}

function said(editor: Editor, error: unknown): void {
  if (!(error instanceof ApiError)) throw error;
  editor.say(error.message, "error");
}

/** Make a blueprint of the selected items; a node in their place stands for it. */
export async function makeBlueprint(board: Board): Promise<void> {
  const { editor } = board;
  const walk = walkOfBoard(board);
  const items = itemsIn(board);
  if (walk === null || !items.length) return editor.say(strings.canvas.selectTheStepsToWrap);
  const graph = settled(editor.graph, board.canvas, board.model());
  const { byId } = factsOf(graph.walks![walk]!);
  const pointers = items.flatMap((id) => byId.get(id)?.pointer ?? []);
  const name = freshName("blueprint", Object.keys(graph.blueprints ?? {}));
  const body = { walk, items: pointers, name };
  const made = await changed(editor, strings.canvas.makeABlueprint, "pack", graph, body);
  if (!made) return;
  const standing = Object.entries(made.graph.nodes ?? {}).find(([, node]) => node.component === BLUEPRINT + name);
  editor.select(...(standing ? [`use:${standing[0]}`] : []));
  board.announce(strings.canvas.madeABlueprint(name));
}

/** Put a copy of its blueprint in the place of a node. */
export async function unpackBlueprint(editor: Editor, node: string): Promise<void> {
  const done = await changed(editor, strings.canvas.unpackABlueprint, "unpack", editor.graph, { node });
  if (done) editor.select();
}

/** Copy an entry of the library, or a file, into the graph; `replaces`: the blueprint to update. */
export async function takeBlueprint(editor: Editor, blueprint: unknown, replaces?: string): Promise<string | null> {
  const label = replaces ? strings.canvas.updateABlueprint : strings.canvas.addABlueprint;
  const body = { blueprint, ...(replaces ? { replaces } : {}) };
  return (await changed(editor, label, "take", editor.graph, body))?.name ?? null;
}

/** Choose a graph, then one of its Walks: a blueprint of it is copied into this graph, and a node put at `spot`. */
export async function addOtherWalk(board: Board, at: OpenMenu["at"], spot: Point): Promise<void> {
  const { editor } = board;
  try {
    const others = (await list("graphs")).filter(({ name }) => name !== editor.state.name);
    const entries = others.map(({ name }) => ({ label: name, run: () => void chooseWalk(board, name, at, spot) }));
    if (entries.length) board.ask({ at, entries });
    else editor.say(strings.canvas.thereIsNoOtherGraph);
  } catch (error) {
    said(editor, error);
  }
}

async function chooseWalk(board: Board, graph: string, at: OpenMenu["at"], spot: Point): Promise<void> {
  const { editor } = board;
  try {
    const walks = Object.entries((await read<GraphDocument>("graphs", graph))?.value.walks ?? {});
    const entries = walks.map(([walk, { label }]) => ({
      label: label ? `${label} (${walk})` : walk,
      run: () => void takeWalk(board, graph, walk, spot),
    }));
    if (entries.length) board.ask({ at, entries });
    else editor.say(strings.canvas.hasNoWalks(graph));
  } catch (error) {
    said(editor, error);
  }
}

async function takeWalk(board: Board, graph: string, walk: string, spot: Point): Promise<void> {
  const { editor } = board;
  try {
    const { value } = await call<object>("/api/v1/blueprints/entry", { method: "POST", body: { graph, walk } });
    const name = await takeBlueprint(editor, value);
    if (name !== null) insertAt(board, { kind: "component", component: BLUEPRINT + name }, spot);
  } catch (error) {
    said(editor, error);
  }
}

/** Store a blueprint of the graph in the library; the graph's copy then is one of that entry. */
export async function saveBlueprint(editor: Editor, name: string): Promise<void> {
  try {
    const entry = await entryOf(editor.graph, name);
    // Asking for what isn't there would be an error in the browser's log.
    const known = (await list("blueprints")).some((one) => one.name === name);
    const before = known ? await read<object>("blueprints", name) : null;
    const { etag } = await write("blueprints", name, entry, before);
    await call(`/api/v1/blueprints/${encodeURIComponent(name)}/versions`, { method: "POST", body: { note: "" } });
    // The header has it in quotes.
    const version = etag.replaceAll('"', "");
    editor.editGraph(strings.canvas.saveToTheLibrary, (graph) => withOrigin(graph, name, version));
    editor.say(strings.canvas.savedToTheLibrary(name));
  } catch (error) {
    said(editor, error);
  }
}

/** Give a blueprint of the graph as a file. */
export async function exportBlueprint(editor: Editor, name: string): Promise<void> {
  try {
    const entry = await entryOf(editor.graph, name);
    download(`${name}.blueprint.json`, JSON.stringify(entry, null, 2), "application/json");
  } catch (error) {
    said(editor, error);
  }
}

async function entryOf(graph: GraphDocument, blueprint: string): Promise<object> {
  return (await call<object>("/api/v1/blueprints/entry", { method: "POST", body: { graph, blueprint } })).value;
}

function withOrigin(graph: GraphDocument, name: string, version: string): GraphDocument {
  const found = graph.blueprints?.[name];
  if (!found) return graph;
  const copy: Blueprint = { ...found, origin: { name, version } };
  return { ...graph, blueprints: { ...graph.blueprints, [name]: copy } };
}

/** The blueprint that a node of the graph stands for. */
export function blueprintAt(graph: GraphDocument, node: string): string | null {
  const name = blueprintOf(String(graph.nodes?.[node]?.component ?? ""));
  return name !== null && graph.blueprints?.[name] ? name : null;
}

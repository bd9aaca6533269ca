// What the command palette can do to the open graph.
import { arrange } from "../inspector/forms/align";
import { itemsAmong } from "../inspector/forms/ManyForm";
import { attempt, type GraphEdit } from "../common/apply";
import * as items from "../../document/edits/items";
import { unwrap, wrap } from "../../document/edits/wrap";
import { bypass, mute, mutedOf, unmute } from "../../document/edits/mute";
import { addTask } from "../../document/edits/tasks";
import { addWalk, duplicateWalk } from "../../document/edits/walks";
import { canvasLayout, unplace } from "../../document/edits/parts/layout";
import type { Editor } from "../../store/editor";
import type { Tab } from "../../store/types";
import { hint, shown, type Overrides } from "../../ui/keys";
import type { Command } from "./goto";

const TABS: readonly [Tab, string][] = [
  ["graph", "Graph"],
  ["tasks", "Tasks"],
  ["placement", "Placement"],
  ["deploy", "Deploy"],
  ["play", "Play"],
  ["trace", "Trace"],
];

/** Every command, as it stands to what is open and selected now; with the keys that the user chose. */
export function commands(editor: Editor, overrides: Overrides = {}): Command[] {
  return [
    ...history(editor, overrides),
    ...views(editor, overrides),
    ...additions(editor),
    ...selection(editor),
    ...drawing(editor),
  ];
}

function history(editor: Editor, overrides: Overrides): Command[] {
  const { past, future } = editor.state;
  return [
    {
      name: past.length ? `Undo: ${past.at(-1)!.label}` : "Undo",
      keys: hint("undo", overrides),
      blocked: past.length ? null : "nothing to undo",
      run: () => editor.undo(),
    },
    {
      name: future.length ? `Redo: ${future.at(-1)!.label}` : "Redo",
      keys: hint("redo", overrides),
      blocked: future.length ? null : "nothing to redo",
      run: () => editor.redo(),
    },
  ];
}

function views(editor: Editor, overrides: Overrides): Command[] {
  const { lens, canvas, lit } = editor.state.view;
  const open = canvas.kind === "walk" ? canvas.walk : null;
  return [
    ...TABS.map(([tab, name]) => ({
      name: tab === "play" ? "Run: open Play" : tab === "deploy" ? "Deploy: open Deploy" : `Open ${name}`,
      keys: hint(`tab.${tab}`, overrides),
      blocked: null,
      run: () => editor.see({ tab }),
    })),
    {
      name: "Show all components",
      blocked: canvas.kind === "components" ? "they are shown" : null,
      run: () => editor.open({ kind: "components" }),
    },
    {
      name: lens === "kind" ? "Colour by rank" : "Colour by kind",
      blocked: null,
      run: () => editor.see({ lens: lens === "kind" ? "rank" : "kind" }),
    },
    {
      name: lit === null ? "Light this Walk's way among the components" : "Put out the lit Walk",
      blocked: lit === null && open === null ? "open a Walk first" : null,
      run: () =>
        lit === null
          ? editor.see({ tab: "graph", canvas: { kind: "components" }, selection: [], lit: open })
          : editor.see({ lit: null }),
    },
  ];
}

function additions(editor: Editor): Command[] {
  const { canvas } = editor.state.view;
  const walk = canvas.kind === "walk" ? canvas.walk : null;
  const made = (
    label: string,
    make: (graph: typeof editor.graph) => { graph: typeof editor.graph; name: string },
  ) => {
    let name = "";
    const done = attempt(editor, label, (graph) => {
      const answer = make(graph);
      name = answer.name;
      return answer.graph;
    });
    return done ? name : null;
  };
  const openWalk = (name: string | null) => {
    if (name !== null) editor.open({ kind: "walk", walk: name, inside: null });
  };
  return [
    { name: "Add a Walk", blocked: null, run: () => openWalk(made("Add a Walk", (graph) => addWalk(graph))) },
    {
      name: walk === null ? "Duplicate the Walk" : `Duplicate the Walk ${walk}`,
      blocked: walk === null ? "open a Walk first" : null,
      run: () => openWalk(made(`Duplicate ${walk}`, (graph) => duplicateWalk(graph, walk!))),
    },
    {
      name: "Add a task",
      blocked: null,
      run: () => {
        const name = made("Add a task", (graph) => addTask(graph));
        if (name !== null) editor.see({ tab: "tasks", selection: [`task:${name}`] });
      },
    },
  ];
}

function selection(editor: Editor): Command[] {
  const { view, documents, catalogue } = editor.state;
  const walk = view.canvas.kind === "walk" ? view.canvas.walk : null;
  const chosen = itemsAmong(documents.graph, walk, view.selection);
  const blocked = chosen.length ? null : "select uses or containers in a Walk first";
  const edit = (name: string, change: (walk: string) => GraphEdit, keys?: string): Command => ({
    name,
    ...(keys ? { keys } : {}),
    blocked,
    run: () => void attempt(editor, name, change(walk!)),
  });
  const muted = walk === null ? null : mutedOf(documents.graph, walk);
  const off = chosen.length > 0 && chosen.every((id) => muted?.has(id));
  const wrapped = (kind: items.WrapKind, name: string): Command => ({
    name: `Wrap in a ${name}`,
    blocked,
    run: () => {
      let made = "";
      const done = attempt(editor, `Wrap in a ${name}`, (graph) => {
        const answer = wrap(graph, walk!, chosen, kind);
        made = answer.id;
        return answer.graph;
      });
      if (done) editor.select(made);
    },
  });
  return [
    wrapped("loop", "Loop"),
    wrapped("parallel", "Parallel"),
    wrapped("sequence", "Sequence"),
    edit("Take the container apart", (walk) => (graph) => unwrap(graph, walk, chosen[0]!)),
    ...(off
      ? [edit("Bring back (muted or bypassed)", (walk) => (graph) => unmute(graph, walk, chosen), shown("Mod+M"))]
      : [
          edit("Mute", (walk) => (graph) => mute(graph, walk, chosen), shown("Mod+M")),
          edit("Bypass", (walk) => (graph) => bypass(graph, walk, chosen, catalogue), shown("Mod+B")),
        ]),
    edit(
      "Remove and bridge",
      (walk) => (graph) => items.removeItems(graph, walk, chosen, { bridge: true, catalogue }),
    ),
    edit("Align left edges", () => (graph) => arrange(graph, view.canvas, catalogue, chosen, "left")),
    edit("Align top edges", () => (graph) => arrange(graph, view.canvas, catalogue, chosen, "top")),
  ];
}

function drawing(editor: Editor): Command[] {
  const { canvas } = editor.state.view;
  const placed = Object.keys(canvasLayout(editor.graph, canvas).at ?? {});
  return [
    {
      name: "Lay out this canvas anew",
      blocked: placed.length ? null : "nothing was moved by hand",
      run: () => void attempt(editor, "Lay out", (graph) => unplace(graph, canvas, placed)),
    },
  ];
}

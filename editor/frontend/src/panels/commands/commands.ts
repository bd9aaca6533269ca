// Commands of the palette for the open graph.
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
import { strings } from "../../strings";

const TABS: readonly [Tab, string][] = [
  ["graph", strings.panels.graph],
  ["tasks", strings.panels.tasks],
  ["placement", strings.panels.placement],
  ["deploy", strings.panels.deploy],
  ["play", strings.panels.play],
  ["trace", strings.panels.trace],
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
      name: past.length ? strings.panels.undo(past.at(-1)!.label) : strings.panels.undo2,
      keys: hint("undo", overrides),
      blocked: past.length ? null : strings.panels.nothingToUndo,
      run: () => editor.undo(),
    },
    {
      name: future.length ? strings.panels.redo(future.at(-1)!.label) : strings.panels.redo2,
      keys: hint("redo", overrides),
      blocked: future.length ? null : strings.panels.nothingToRedo,
      run: () => editor.redo(),
    },
  ];
}

function views(editor: Editor, overrides: Overrides): Command[] {
  const { lens, canvas, lit } = editor.state.view;
  const open = canvas.kind === "walk" ? canvas.walk : null;
  return [
    ...TABS.map(([tab, name]) => ({
      name:
        tab === "play"
          ? strings.panels.runOpenPlay
          : tab === "deploy"
            ? strings.panels.deployOpenDeploy
            : strings.panels.open(name),
      keys: hint(`tab.${tab}`, overrides),
      blocked: null,
      run: () => editor.see({ tab }),
    })),
    {
      name: strings.panels.showAllComponents,
      blocked: canvas.kind === "components" ? strings.panels.alreadyShown : null,
      run: () => editor.open({ kind: "components" }),
    },
    {
      name: lens === "kind" ? strings.panels.colourByRank : strings.panels.colourByOutputType,
      blocked: null,
      run: () => editor.see({ lens: lens === "kind" ? "rank" : "kind" }),
    },
    {
      name: lit === null ? strings.panels.highlightThisWalkAmong : strings.panels.stopHighlightingTheWalk,
      blocked: lit === null && open === null ? strings.panels.openAWalkFirst : null,
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
    {
      name: strings.panels.addAWalk,
      blocked: null,
      run: () => openWalk(made(strings.panels.addAWalk, (graph) => addWalk(graph))),
    },
    {
      name: walk === null ? strings.panels.duplicateTheWalk : strings.panels.duplicateTheWalkWithWalk(walk),
      blocked: walk === null ? strings.panels.openAWalkFirst : null,
      run: () => openWalk(made(strings.panels.duplicate(walk), (graph) => duplicateWalk(graph, walk!))),
    },
    {
      name: strings.panels.addATask,
      blocked: null,
      run: () => {
        const name = made(strings.panels.addATask, (graph) => addTask(graph));
        if (name !== null) editor.see({ tab: "tasks", selection: [`task:${name}`] });
      },
    },
  ];
}

function selection(editor: Editor): Command[] {
  const { view, documents, catalogue } = editor.state;
  const walk = view.canvas.kind === "walk" ? view.canvas.walk : null;
  const chosen = itemsAmong(documents.graph, walk, view.selection);
  const blocked = chosen.length ? null : strings.panels.selectUsesOrContainers;
  const edit = (name: string, change: (walk: string) => GraphEdit, keys?: string): Command => ({
    name,
    ...(keys ? { keys } : {}),
    blocked,
    run: () => void attempt(editor, name, change(walk!)),
  });
  const muted = walk === null ? null : mutedOf(documents.graph, walk);
  const off = chosen.length > 0 && chosen.every((id) => muted?.has(id));
  const wrapped = (kind: items.WrapKind, name: string): Command => ({
    name: strings.panels.wrap(name),
    blocked,
    run: () => {
      let made = "";
      const done = attempt(editor, strings.panels.wrap(name), (graph) => {
        const answer = wrap(graph, walk!, chosen, kind);
        made = answer.id;
        return answer.graph;
      });
      if (done) editor.select(made);
    },
  });
  return [
    wrapped("loop", strings.panels.loop2),
    wrapped("map", strings.panels.map),
    wrapped("parallel", strings.panels.parallel),
    wrapped("choose", strings.panels.choice),
    wrapped("sequence", strings.panels.sequence),
    edit(strings.panels.unwrapTheContainer, (walk) => (graph) => unwrap(graph, walk, chosen[0]!)),
    ...(off
      ? [edit(strings.panels.runNormallyAgainMuted, (walk) => (graph) => unmute(graph, walk, chosen), shown("Mod+M"))]
      : [
          edit(strings.panels.mute, (walk) => (graph) => mute(graph, walk, chosen), shown("Mod+M")),
          edit(strings.panels.bypass, (walk) => (graph) => bypass(graph, walk, chosen, catalogue), shown("Mod+B")),
        ]),
    edit(
      strings.panels.deleteAndJoinWhat,
      (walk) => (graph) => items.removeItems(graph, walk, chosen, { bridge: true, catalogue }),
    ),
    edit(strings.panels.alignLeftEdges, () => (graph) => arrange(graph, view.canvas, catalogue, chosen, "left")),
    edit(strings.panels.alignTopEdges, () => (graph) => arrange(graph, view.canvas, catalogue, chosen, "top")),
  ];
}

function drawing(editor: Editor): Command[] {
  const { canvas } = editor.state.view;
  const placed = Object.keys(canvasLayout(editor.graph, canvas).at ?? {});
  return [
    {
      name: strings.panels.layOutThisCanvasAgain,
      blocked: placed.length ? null : strings.panels.nothingWasMovedByHand,
      run: () => void attempt(editor, strings.panels.layOut, (graph) => unplace(graph, canvas, placed)),
    },
  ];
}

// The actions of the bar, the keys and the menu, in one list.
import { call } from "../../api/client";
import type { VersionEntry } from "../../messages/answers";
import { onDebugKey } from "../../debug/model/actions";
import type { GraphDocument } from "../../document/types";
import { withGraph, type Editor } from "../../store/editor";
import type { Command } from "../../panels/commands/goto";
import { download } from "../../ui/handing";
import { drawnOf } from "../../play/runs/drawn";
import { pretty } from "../../versions/pretty";
import { hint, type Action, type Overrides } from "../../ui/keys";
import { chooseTheme, THEMES, type Theme } from "../host/theme";
import { strings } from "../../strings";

/** The note of the version that the first draft over a bundled graph leaves; the service's word. */
const ORIGINAL = strings.shell.asItComesWithWalkgraph;

export type DialogName = "version" | "find" | "sheet" | "conflict";

export interface Commands {
  run: () => void;
  deploy: () => void;
  version: () => void;
  find: () => void;
  focus: () => void;
  sheet: () => void;
  conflict: () => void;
  download: () => void;
  /** null: there is none. */
  restoreOriginal: (() => void) | null;
}

interface Shell {
  show: (dialog: DialogName) => void;
  toggleFocus: () => void;
  original: number | null;
}

export function commandsOf(editor: Editor, { show, toggleFocus, original }: Shell): Commands {
  return {
    run: () => void drawnOf(editor).run(),
    deploy: () => editor.see({ tab: "deploy" }),
    version: () => show("version"),
    find: () => show("find"),
    sheet: () => show("sheet"),
    conflict: () => show("conflict"),
    focus: toggleFocus,
    download: () =>
      download(
        `${editor.state.name}.json`,
        `${pretty(editor.graph, editor.state.documents.sources)}\n`,
        "application/json",
      ),
    restoreOriginal: original === null ? null : () => void restore(editor, original),
  };
}

/** The shell's commands in the command palette. */
export function listed(commands: Commands, overrides: Overrides, theme: Theme): Command[] {
  const entry = (name: string, run: () => void, keys = ""): Command => ({
    name,
    run,
    blocked: null,
    ...(keys ? { keys } : {}),
  });
  return [
    entry(strings.shell.saveAVersion2, commands.version, hint("version", overrides)),
    entry(strings.shell.downloadAsJson, commands.download),
    ...(commands.restoreOriginal ? [entry(strings.shell.restoreTheOriginal, commands.restoreOriginal)] : []),
    entry(strings.shell.focusModeShowOnly, commands.focus, hint("focus", overrides)),
    entry(strings.shell.keyboardListOfKeys, commands.sheet, hint("sheet", overrides)),
    ...THEMES.filter((other) => other !== theme).map((other) =>
      entry(strings.shell.useTheme(strings.shell.themes[other]), () => chooseTheme(other)),
    ),
  ];
}

/** Do what a key asks for; false: it means nothing now, and the browser may have it. */
export function perform(action: Action, editor: Editor, commands: Commands): boolean {
  switch (action) {
    case "debug.break":
    case "debug.resume":
    case "debug.step":
    case "debug.iteration":
      return onDebugKey(editor, action);
    case "undo":
      editor.undo();
      return true;
    case "redo":
      editor.redo();
      return true;
    case "tab.graph":
    case "tab.tasks":
    case "tab.placement":
    case "tab.deploy":
    case "tab.play":
    case "tab.trace":
      editor.see({ tab: action.slice(4) as "graph" });
      return true;
    default:
      commands[action]();
      return true;
  }
}

/** The version that holds a bundled graph as it came; null: it never was another, or isn't bundled. */
export async function originalOf(name: string): Promise<number | null> {
  const path = `/api/v1/graphs/${encodeURIComponent(name)}/versions`;
  const { value } = await call<VersionEntry[]>(path);
  return value.find((version) => version.note === ORIGINAL)?.id ?? null;
}

async function restore(editor: Editor, version: number): Promise<void> {
  try {
    const name = encodeURIComponent(editor.state.name);
    const { value, sources } = await call<GraphDocument>(`/api/v1/graphs/${name}/versions/${version}`);
    editor.edit(strings.shell.restoreTheOriginal, (documents) => withGraph(documents, value, sources));
    editor.say(strings.shell.thisIsTheGraph);
  } catch (error) {
    editor.say(error instanceof Error ? error.message : String(error), "error");
  }
}

// The editor of one open document: the bar, and below it what its tab shows.
import { useCallback, useEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { debugCommands } from "../debug/commands";
import { DebugDock } from "../debug/Dock";
import { DeployView } from "../deploy/DeployView";
import { CommandPalette } from "../panels/commands/CommandPalette";
import { PlacementView } from "../placement/PlacementView";
import { PlayView } from "../play/PlayView";
import { Banners } from "./bar/Banners";
import { Boundary } from "./frame/Boundary";
import { commandsOf, listed, originalOf, perform, type Commands, type DialogName } from "./bar/commands";
import { ConflictDialog } from "./dialogs/ConflictDialog";
import { GraphTab } from "./pages/GraphTab";
import { actionOf, chordOf, isTyping } from "../ui/keys";
import { KeySheet } from "./dialogs/KeySheet";
import { useKeys } from "../store/preferences";
import { Toasts } from "./frame/Toasts";
import { TopBar } from "./bar/TopBar";
import { useChosenTheme } from "./host/theme";
import { VersionDialog } from "./dialogs/VersionDialog";
import type { Editor } from "../store/editor";
import { useEditor, useEditorState } from "../store/react";
import type { Tab } from "../store/types";
import { TasksView } from "../tasks/TasksView";
import { TraceView } from "../trace/TraceView";
import { strings } from "../strings";

const NAMES: Record<Tab, string> = {
  graph: strings.shell.theGraph,
  tasks: strings.shell.theTasks,
  placement: strings.shell.thePlacement,
  deploy: strings.shell.theDeployment,
  play: strings.shell.thePlayground,
  trace: strings.shell.theTrace,
};

const MENU_MS = 400;

interface AppProps {
  toggleFocus: () => void;
}

export function App({ toggleFocus }: AppProps) {
  const editor = useEditor();
  const overrides = useKeys();
  const tab = useEditorState((state) => state.view.tab);
  const [dialog, show] = useState<DialogName | null>(null);
  const original = useOriginal();
  const close = useCallback(() => show(null), []);
  const commands = useMemo(
    () => commandsOf(editor, { show, toggleFocus, original }),
    [editor, toggleFocus, original],
  );
  const theme = useChosenTheme();
  const more = useMemo(
    () => [...listed(commands, overrides, theme), ...debugCommands(editor, overrides)],
    [editor, commands, overrides, theme],
  );
  useConflict(show);
  const root = useRef<HTMLDivElement>(null);
  const onKeyDown = useShortcuts(editor, commands);
  useEffect(() => {
    if (document.activeElement === document.body) root.current?.focus({ preventScroll: true });
  }, []);
  return (
    // Pressing an element that can't be focused focuses the editor, which keeps the keyboard.
    <div ref={root} className="wg-app" tabIndex={-1} onKeyDown={onKeyDown}>
      <TopBar commands={commands} />
      <Banners />
      <main className="wg-main" aria-label={NAMES[tab]}>
        <Boundary key={tab} what={NAMES[tab]}>
          <View tab={tab} />
        </Boundary>
      </main>
      <Boundary what={strings.shell.theDebugger}>
        <DebugDock />
      </Boundary>
      {dialog === "version" && <VersionDialog onClose={close} />}
      {dialog === "sheet" && <KeySheet onClose={close} />}
      {dialog === "conflict" && <ConflictDialog onClose={close} />}
      {dialog === "find" && <CommandPalette onClose={close} more={more} />}
      <Toasts />
    </div>
  );
}

/** The focused panel handles keys first: in a code field, Ctrl+Enter applies it. */
function useShortcuts(editor: Editor, commands: Commands) {
  const overrides = useKeys();
  const take = useCallback(
    (event: globalThis.KeyboardEvent) => {
      const path = event.composedPath();
      if (event.defaultPrevented || path.some((target) => target instanceof HTMLDialogElement)) return;
      const action = actionOf(chordOf(event), isTyping(path), overrides);
      if (!action) return;
      if (!perform(action, editor, commands)) return;
      event.preventDefault();
      if (event.key === "F10" && event.shiftKey) withoutMenu();
    },
    [editor, commands, overrides],
  );
  useEffect(() => {
    // A button that was pressed and then disabled leaves the focus nowhere.
    const adrift = (event: globalThis.KeyboardEvent) => event.target === document.body && take(event);
    window.addEventListener("keydown", adrift);
    return () => window.removeEventListener("keydown", adrift);
  }, [take]);
  return (event: KeyboardEvent) => take(event.nativeEvent);
}

/** With Shift+F10 some systems ask for a context menu besides, a moment later. */
function withoutMenu(): void {
  const swallow = (event: Event) => {
    event.preventDefault();
    event.stopPropagation();
  };
  window.addEventListener("contextmenu", swallow, {
    capture: true,
    once: true,
    signal: AbortSignal.timeout(MENU_MS),
  });
}

function View({ tab }: { tab: Tab }) {
  switch (tab) {
    case "graph":
      return <GraphTab />;
    case "tasks":
      return <TasksView />;
    case "placement":
      return <PlacementView />;
    case "deploy":
      return <DeployView />;
    case "play":
      return <PlayView />;
    case "trace":
      return <TraceView />;
  }
}

/** A conflict asks at once; closed without a choice it waits in the bar. */
function useConflict(show: (dialog: DialogName) => void): void {
  const conflict = useEditorState((state) => state.saving.state === "conflict");
  useEffect(() => {
    if (conflict) show("conflict");
  }, [conflict, show]);
}

/** The version with the graph as it came, for those that come with Walkgraph; looked for anew after each save. */
function useOriginal(): number | null {
  const name = useEditorState((state) => state.name);
  const etag = useEditorState((state) => state.etags.graph);
  const [original, set] = useState<number | null>(null);
  useEffect(() => {
    let gone = false;
    originalOf(name)
      .then((found) => !gone && set(found))
      // Nobody answers: the menu offers nothing to restore.
      .catch(() => undefined);
    return () => {
      gone = true;
    };
  }, [name, etag]);
  return original;
}

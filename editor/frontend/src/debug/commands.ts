// What the command palette can do about paused runs and breakpoints.
import { ask } from "../store/ask";
import type { Editor } from "../store/editor";
import { watchOf } from "../store/watch";
import { hint, type Overrides } from "../ui/keys";
import { onDebugKey, type DebugAction } from "./model/actions";
import { showPane } from "./model/state";

/** As the palette takes it. */
interface Command {
  name: string;
  keys: string;
  blocked: null;
  run: () => void;
}

export function debugCommands(editor: Editor, overrides: Overrides): Command[] {
  const act = (name: string, action: DebugAction, none: string): Command => ({
    name,
    keys: hint(action, overrides),
    blocked: null,
    run: () => {
      if (!onDebugKey(editor, action)) editor.say(none);
    },
  });
  const none = "No run is paused.";
  return [
    act("Breakpoint: set or clear at what is selected", "debug.break", none),
    act("Debug: resume the paused run, or pause the newest", "debug.resume", none),
    act("Debug: step one call", "debug.step", none),
    act("Debug: step to the next iteration", "debug.iteration", none),
    { name: "Breakpoints: remove all", keys: "", blocked: null, run: () => void removeAll(editor) },
    { name: "Breakpoints: show them", keys: "", blocked: null, run: () => showAll(editor) },
  ];
}

async function removeAll(editor: Editor): Promise<void> {
  const ids = Object.keys(editor.state.deployments);
  await ask(editor, () => Promise.all(ids.map((id) => watchOf(id).removeBreakpoints())));
}

function showAll(editor: Editor): void {
  const ids = Object.keys(editor.state.deployments);
  if (ids.some((id) => watchOf(id).get().breakpoints.length)) showPane(editor, "breakpoints");
  else editor.say("No breakpoint is set. Press F9 on a selected step, or click at its upper left corner.");
}

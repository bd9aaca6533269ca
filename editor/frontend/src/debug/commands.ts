// Commands of the palette for paused runs and breakpoints.
import { ask } from "../store/ask";
import type { Editor } from "../store/editor";
import { watchOf } from "../store/watch";
import { hint, type Overrides } from "../ui/keys";
import { onDebugKey, type DebugAction } from "./model/actions";
import { showPane } from "./model/state";
import { strings } from "../strings";

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
  const none = strings.debug.noRunIsPaused;
  return [
    act(strings.debug.breakpointSetOrClear, "debug.break", none),
    act(strings.debug.debugResumeThePausedRun, "debug.resume", none),
    act(strings.debug.debugStepOneCall, "debug.step", none),
    act(strings.debug.debugStepToTheNext, "debug.iteration", none),
    { name: strings.debug.breakpointsRemoveAll, keys: "", blocked: null, run: () => void removeAll(editor) },
    { name: strings.debug.breakpointsShowThem, keys: "", blocked: null, run: () => showAll(editor) },
  ];
}

async function removeAll(editor: Editor): Promise<void> {
  const ids = Object.keys(editor.state.deployments);
  await ask(editor, () => Promise.all(ids.map((id) => watchOf(id).removeBreakpoints())));
}

function showAll(editor: Editor): void {
  const ids = Object.keys(editor.state.deployments);
  if (ids.some((id) => watchOf(id).get().breakpoints.length)) showPane(editor, "breakpoints");
  else editor.say(strings.debug.noBreakpointIsSetPress);
}

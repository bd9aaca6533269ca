// Replays: the same inputs, parameters and seed once more, here or on another deployment, and what came out otherwise.
import { ApiError, call, send } from "../../api/client";
import type { RunEvent, RunShown } from "../../messages/answers";
import { ask } from "../../store/ask";
import type { Editor } from "../../store/editor";
import { eventsOf } from "../../api/sse";
import type { MenuEntry } from "../../ui/kit";
import type { Differences } from "./differences";
import { debuggingOf, showPane, type Comparison } from "./state";
import { strings } from "../../strings";

export interface Replayed {
  run: string;
  deployment: string;
}

/** The entries of a finished run's menu. `done`: a replay without a comparison is over. */
export function replayEntries(
  editor: Editor,
  of: Replayed,
  done: (run: Replayed) => void = () => undefined,
): MenuEntry[] {
  const others = Object.values(editor.state.deployments)
    .filter(({ id, state }) => id !== of.deployment && (state === "ready" || state === "degraded"))
    .map(({ id }) => id)
    .sort();
  return [
    { label: strings.debug.replay, run: () => void replay(editor, of, of.deployment, done) },
    { label: strings.debug.replayAndCompare, run: () => void compareReplay(editor, of, of.deployment) },
    ...others.flatMap((id, index): MenuEntry[] => [
      { label: strings.debug.replayWithId(id), apart: index === 0, run: () => void replay(editor, of, id, done) },
      { label: strings.debug.replayOnAndCompare(id), run: () => void compareReplay(editor, of, id) },
    ]),
  ];
}

async function replay(
  editor: Editor,
  of: Replayed,
  deployment: string,
  done: (run: Replayed) => void,
): Promise<void> {
  await ask(editor, async () => {
    const made = await start(of.run, deployment, false);
    editor.say(strings.debug.replaying(made.run.slice(0, 8)));
    await over(made.run);
    done(made);
  });
}

/** Both must be recorded: where the first was not, it is replayed where it ran, and that replay is compared. */
export async function compareReplay(editor: Editor, of: Replayed, deployment: string): Promise<void> {
  let mine = working(editor, of.run, strings.debug.replayingTheRun);
  const tell = (comparison: Comparison) => (mine = put(editor, mine, comparison));
  try {
    let first = of.run;
    if (!(await isRecorded(of))) {
      tell({
        phase: "working",
        run: of.run,
        words: strings.debug.theRunWasNotRecorded,
      });
      first = (await start(of.run, of.deployment, true)).run;
      await over(first);
    }
    tell({ phase: "working", run: of.run, words: strings.debug.replayingWithDeployment(deployment) });
    const second = (await start(of.run, deployment, true)).run;
    await over(second);
    tell({ phase: "working", run: of.run, words: strings.debug.comparing });
    tell({ phase: "shown", run: of.run, value: await differences(first, second) });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    tell({ phase: "failed", run: of.run, message: error.message });
  }
}

/** Two runs that are over, as they were recorded. */
export async function compareRuns(editor: Editor, a: string, b: string): Promise<void> {
  const mine = working(editor, a, strings.debug.comparing);
  try {
    put(editor, mine, { phase: "shown", run: a, value: await differences(a, b) });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    put(editor, mine, { phase: "failed", run: a, message: error.message });
  }
}

function working(editor: Editor, run: string, words: string): Comparison {
  const comparison: Comparison = { phase: "working", run, words };
  debuggingOf(editor).setState({ comparison });
  showPane(editor, "differences");
  return comparison;
}

/** Unless another comparison was begun, or this one closed. */
function put(editor: Editor, mine: Comparison, next: Comparison): Comparison {
  const store = debuggingOf(editor);
  if (store.getState().comparison !== mine) return mine;
  store.setState({ comparison: next });
  return next;
}

// ── the service ─────────────────────────────────────────────────────────────────────────────────
// All raise ApiError.

async function start(run: string, deployment: string, record: boolean): Promise<Replayed> {
  const { value } = await call<RunShown>(`/api/v1/runs/${encodeURIComponent(run)}/replay`, {
    method: "POST",
    body: { deployment, record },
  });
  return { run: value.id, deployment: value.deployment };
}

/** Once it is over. Raises ApiError for a run that failed: there is nothing to compare. */
async function over(run: string): Promise<void> {
  const path = `/api/v1/runs/${encodeURIComponent(run)}`;
  try {
    for await (const event of eventsOf<RunEvent>(await send(`${path}/events`)))
      if (event.event === "done" || event.event === "error") break;
  } catch (error) {
    // The service remembers the events of the newest runs alone; how it ended it always knows.
    if (!(error instanceof ApiError)) throw error;
  }
  const { state, error } = (await call<RunShown>(path)).value;
  if (state === "done") return;
  if (error) throw new ApiError(0, error.code, strings.debug.theReplayFailed(error.message));
  throw new ApiError(0, "offline", strings.debug.theReplay(state));
}

async function differences(a: string, b: string): Promise<Differences> {
  const path = `/api/v1/runs/${encodeURIComponent(a)}/differences/${encodeURIComponent(b)}`;
  return (await call<Differences>(path)).value;
}

interface TraceRow {
  run: string;
  recorded: boolean;
}

/** True if its values were recorded; false if unknown. */
async function isRecorded({ run, deployment }: Replayed): Promise<boolean> {
  try {
    const path = `/api/v1/deployments/${encodeURIComponent(deployment)}/traces?limit=1000`;
    const { value } = await call<TraceRow[]>(path);
    return value.some((row) => row.run === run && row.recorded);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return false;
  }
}

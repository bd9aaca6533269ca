// Breakpoints set and taken away, runs paused, stepped and let go: what menus, keys and buttons do. What the service
// refuses is said.
import { call } from "../../api/client";
import type { RunShown } from "../../messages/answers";
import { factsOf } from "../../document/routes";
import { ask } from "../../store/ask";
import { shownOn } from "../../store/deployments";
import type { Editor } from "../../store/editor";
import { go } from "../../store/locate";
import { watchOf, type HeldCall, type PausedRun, type SteerAction } from "../../store/watch";
import type { MenuEntry } from "../../ui/kit";
import { plural } from "../../ui/words";
import { breaksAt, spotsOf, type Spot } from "./breaks";
import { keyOfCall, locateCall, nextOf } from "./calls";
import { debuggingOf, showPane } from "./state";
import { strings } from "../../strings";

/** A paused run and whose it is. */
export interface PausedShown extends PausedRun {
  deployment: string;
}

// ── breakpoints ─────────────────────────────────────────────────────────────────────────────────

const NOT_DEPLOYED = strings.debug.deployTheGraphFirstBreakpoints;

/** Set one where there is none, else take all of these places away. */
export async function toggleBreak(editor: Editor, spots: readonly Spot[]): Promise<void> {
  const deployment = shownOn(editor.state);
  if (!deployment) return editor.say(NOT_DEPLOYED);
  const watch = watchOf(deployment.id);
  const found = breaksAt(watch.get().breakpoints, spots);
  await ask(editor, () =>
    found.length
      ? Promise.all(found.map(({ id }) => watch.removeBreakpoint(id)))
      : Promise.all(spots.map((spot) => watch.addBreakpoint(spot))),
  );
  if (!found.length && spots.length > 1) editor.say(strings.debug.setBeforeEach(plural(spots.length, "use")));
}

/** Another iteration (from 0), or every call with null: a new breakpoint in the old one's place. */
export async function setIteration(
  editor: Editor,
  deployment: string,
  { id, walk, use, run }: Spot & { id: string; run: string | null },
  iteration: number | null,
): Promise<void> {
  const watch = watchOf(deployment);
  await ask(editor, async () => {
    await watch.addBreakpoint({ walk, use, run, iteration });
    await watch.removeBreakpoint(id);
  });
}

/** The uses that are selected, of the canvas that is open. */
export function selectedSpots(editor: Editor): Spot[] {
  const { canvas, selection } = editor.state.view;
  if (canvas.kind === "components")
    return selection.flatMap((id) => (id.startsWith("node:") ? spotsOf(editor.graph, id.slice("node:".length)) : []));
  const body = editor.graph.walks?.[canvas.walk];
  if (!body) return [];
  const { byId } = factsOf(body);
  return selection.flatMap((id) => {
    const entry = byId.get(id);
    return entry?.kind === "use" ? [{ walk: canvas.walk, use: entry.name }] : [];
  });
}

/** For the menu of a use: `spots` as the graph names them. */
export function breakEntries(editor: Editor, spots: readonly Spot[]): MenuEntry[] {
  const deployment = shownOn(editor.state);
  const set = deployment !== null && breaksAt(watchOf(deployment.id).get().breakpoints, spots).length > 0;
  const [only] = spots;
  return [
    {
      label: set ? strings.debug.removeTheBreakpoint : strings.debug.breakBefore,
      keys: "F9",
      apart: true,
      disabled: spots.length === 0,
      run: () => void toggleBreak(editor, spots),
    },
    ...(spots.length === 1 && only ? [{ label: strings.debug.runUpToHere, run: () => runUpTo(editor, only) }] : []),
  ];
}

/** The next run of the playground pauses there. */
export function runUpTo(editor: Editor, spot: Spot): void {
  if (!shownOn(editor.state)) return editor.say(NOT_DEPLOYED);
  debuggingOf(editor).setState({ upTo: spot });
  editor.see({ tab: "play" });
}

// ── runs ────────────────────────────────────────────────────────────────────────────────────────

/** Every run that is paused, of every deployment that the editor knows. */
export function pausedRuns(editor: Editor): PausedShown[] {
  return Object.keys(editor.state.deployments).flatMap((deployment) =>
    Object.values(watchOf(deployment).get().paused).map((paused) => ({ ...paused, deployment })),
  );
}

/** The one that is looked at; null: none is paused. */
export function currentRun(editor: Editor, all: readonly PausedShown[] = pausedRuns(editor)): PausedShown | null {
  const { run } = debuggingOf(editor).getState();
  return all.find((paused) => paused.run === run) ?? all[0] ?? null;
}

/** The held call that is chosen, else what comes next; null: none is held yet. */
export function currentCall(editor: Editor, { deployment, held, breakpoint }: PausedShown): HeldCall | null {
  const { call } = debuggingOf(editor).getState();
  const spot = watchOf(deployment)
    .get()
    .breakpoints.find(({ id }) => id === breakpoint);
  return held.find((one) => keyOfCall(one) === call) ?? nextOf(held, spot ?? null);
}

export function steer(editor: Editor, paused: PausedShown, action: SteerAction): Promise<boolean> {
  const of = action === "step" || action === "iteration" ? currentCall(editor, paused) : null;
  return ask(editor, () => watchOf(paused.deployment).steer(paused.run, action, of));
}

export function abort(editor: Editor, run: string): Promise<boolean> {
  return ask(editor, () => call(`/api/v1/runs/${encodeURIComponent(run)}`, { method: "DELETE" }));
}

/** Hold a run before its next calls. */
export async function pause(editor: Editor, deployment: string, run: string): Promise<void> {
  if (await ask(editor, () => watchOf(deployment).steer(run, "pause"))) look(editor, run);
}

/** Hold the newest run of the open graph's deployment. */
async function pauseNewest(editor: Editor): Promise<void> {
  const deployment = shownOn(editor.state);
  if (!deployment) return editor.say(strings.debug.nothingRunsHereTheGraph);
  await ask(editor, async () => {
    const path = `/api/v1/runs?deployment=${encodeURIComponent(deployment.id)}&state=running&limit=1`;
    const [newest] = (await call<RunShown[]>(path)).value;
    if (newest) await pause(editor, deployment.id, newest.id);
    else editor.say(strings.debug.noRunIsActiveABreakpoint);
  });
}

/** Choose the paused run that is looked at, and which of its calls. */
export function look(editor: Editor, run: string, of: HeldCall | null = null): void {
  debuggingOf(editor).setState({ run, call: of && keyOfCall(of) });
  showPane(editor, "paused");
}

/** The held call on the canvas. */
export function showCall(editor: Editor, held: HeldCall): void {
  const place = locateCall(editor.graph, held);
  if (place) go(editor, place);
  else editor.say(strings.debug.theOpenGraphHasNoWithWalk(held.use, held.walk));
}

// ── keys ────────────────────────────────────────────────────────────────────────────────────────

export type DebugAction = "debug.break" | "debug.resume" | "debug.step" | "debug.iteration";

/** Runs the action of a key; false if there is none, so that the browser handles it. */
export function onDebugKey(editor: Editor, action: DebugAction): boolean {
  if (action === "debug.break") {
    const spots = editor.state.view.tab === "graph" ? selectedSpots(editor) : [];
    if (spots.length) void toggleBreak(editor, spots);
    else editor.say(strings.debug.selectAStep);
    return true;
  }
  const current = currentRun(editor);
  if (current) {
    void steer(
      editor,
      current,
      action === "debug.resume" ? "resume" : action === "debug.step" ? "step" : "iteration",
    );
    return true;
  }
  if (action === "debug.resume") void pauseNewest(editor);
  return action === "debug.resume";
}

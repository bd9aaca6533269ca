// Below everything while there is something to debug: the paused runs with the buttons that step them, the
// breakpoints that are armed, what a replay did otherwise.
import { ChevronDown, ChevronUp, CirclePause, Crosshair, Play, Square, StepForward, Repeat1, X } from "lucide-react";
import { useEffect, useMemo, useRef } from "react";
import { useStore } from "zustand";
import type { Editor } from "../store/editor";
import { useKeys } from "../store/preferences";
import { useEditor, useEditorState } from "../store/react";
import { actionOf, chordOf, hint, isTyping } from "../ui/keys";
import { IconButton, Prose, Select, Tabs } from "../ui/kit";
import { abort, currentCall, currentRun, onDebugKey, showCall, steer, type PausedShown } from "./model/actions";
import { Breakpoints, type BreakRow } from "./Breakpoints";
import { keyOfCall, locateCall, pausedWords } from "./model/calls";
import { DifferencesPane } from "./DifferencesPane";
import { pausedIn, useWatches } from "./model/hooks";
import { PausedPane } from "./PausedPane";
import { debuggingOf, showPane, useDebugging, type Pane } from "./model/state";
import { strings } from "../strings";

export function DebugDock({ alone = false }: { alone?: boolean }) {
  const editor = useEditor();
  const watches = useWatches();
  const { run, pane: wanted, open, comparison } = useStore(debuggingOf(editor));
  const all = useMemo(() => pausedIn(watches), [watches]);
  const breaks = useMemo(
    (): BreakRow[] =>
      watches.flatMap(({ deployment, state }) => state.breakpoints.map((one) => ({ ...one, deployment }))),
    [watches],
  );
  const current = useMemo(() => currentRun(editor, all), [editor, all, run]);
  useOpening(editor, all);
  useFollowing(editor, current, alone);
  useOwnKeys(editor, alone && current !== null);
  const panes: { value: Pane; label: string }[] = [];
  if (all.length)
    panes.push({ value: "paused", label: all.length > 1 ? strings.debug.paused(all.length) : strings.debug.paused2 });
  if (breaks.length) panes.push({ value: "breakpoints", label: strings.debug.breakpoints(breaks.length) });
  if (comparison) panes.push({ value: "differences", label: strings.debug.differences });
  const [first] = panes;
  if (!first) return null;
  const pane = panes.some(({ value }) => value === wanted) ? wanted : first.value;
  const toggle = () => debuggingOf(editor).setState({ open: !open });
  return (
    <section
      className={`wg-dock ${open ? "open" : ""} ${current ? "paused" : ""}`}
      aria-label={strings.debug.debugger}
    >
      <header>
        <Tabs
          label={strings.debug.debugger}
          value={pane}
          onChange={(value) => showPane(editor, value)}
          tabs={panes}
        />
        {current && <Controls paused={current} all={all} alone={alone} />}
        <i className="spring" />
        {pane === "differences" && (
          <IconButton
            label={strings.debug.closeTheComparison}
            onClick={() => debuggingOf(editor).setState({ comparison: null })}
          >
            <X size={15} />
          </IconButton>
        )}
        <IconButton
          label={open ? strings.debug.collapseTheDebugger : strings.debug.expandTheDebugger}
          aria-expanded={open}
          onClick={toggle}
        >
          {open ? <ChevronDown size={15} /> : <ChevronUp size={15} />}
        </IconButton>
      </header>
      {open && (
        <div className={`body ${pane}`}>
          {pane === "paused" && current && <PausedPane key={current.run} paused={current} />}
          {pane === "breakpoints" && <Breakpoints rows={breaks} several={watches.length > 1} />}
          {pane === "differences" && comparison && <DifferencesPane comparison={comparison} alone={alone} />}
        </div>
      )}
    </section>
  );
}

interface ControlsProps {
  paused: PausedShown;
  all: readonly PausedShown[];
  /** There is no graph to show anything on. */
  alone: boolean;
}

function Controls({ paused, all, alone }: ControlsProps) {
  const editor = useEditor();
  const keys = useKeys();
  useDebugging((state) => state.call);
  const next = currentCall(editor, paused);
  const options = all.map(({ run, deployment }) => ({ value: run, label: `${deployment} · ${run.slice(0, 8)}` }));
  const button = (label: string, key: string) => (key ? `${label} (${key})` : label);
  return (
    <div className="controls" role="toolbar" aria-label={strings.debug.stepsOfThePausedRun}>
      {all.length > 1 && (
        <Select
          aria-label={strings.debug.pausedRun}
          value={paused.run}
          options={options}
          onChange={(run) => debuggingOf(editor).setState({ run, call: null })}
        />
      )}
      <IconButton
        label={button(strings.debug.resume, hint("debug.resume", keys))}
        onClick={() => void steer(editor, paused, "resume")}
      >
        <Play size={15} />
      </IconButton>
      <IconButton
        label={button(strings.debug.stepMakeOneCallThen, hint("debug.step", keys))}
        disabled={!next}
        onClick={() => void steer(editor, paused, "step")}
      >
        <StepForward size={15} />
      </IconButton>
      <IconButton
        label={button(strings.debug.continueToTheLoopsNext, hint("debug.iteration", keys))}
        disabled={!next?.iteration.length}
        onClick={() => void steer(editor, paused, "iteration")}
      >
        <Repeat1 size={15} />
      </IconButton>
      <IconButton label={strings.debug.abortTheRun} onClick={() => void abort(editor, paused.run)}>
        <Square size={13} />
      </IconButton>
      <span className="words" role="status">
        <CirclePause size={14} aria-hidden />
        <span>
          <Prose text={pausedWords(next, paused.held.length - 1)} />
        </span>
      </span>
      {!alone && next && (
        <IconButton label={strings.debug.showItOnTheCanvas} onClick={() => showCall(editor, next)}>
          <Crosshair size={15} />
        </IconButton>
      )}
    </div>
  );
}

/** The first run that pauses opens the dock, and the last one that goes on folds what was opened for it. */
function useOpening(editor: Editor, all: readonly PausedShown[]): void {
  const before = useRef(0);
  const opened = useRef(false);
  useEffect(() => {
    const { open, pane } = debuggingOf(editor).getState();
    if (all.length > 0 && before.current === 0) {
      opened.current = !open;
      showPane(editor, "paused");
    } else if (all.length === 0 && before.current > 0 && opened.current && pane === "paused")
      debuggingOf(editor).setState({ open: false });
    before.current = all.length;
  }, [editor, all.length]);
}

/** Where no shell takes the keys. */
function useOwnKeys(editor: Editor, wanted: boolean): void {
  const overrides = useKeys();
  useEffect(() => {
    if (!wanted) return;
    const take = (event: KeyboardEvent) => {
      const action = actionOf(chordOf(event), isTyping(event.composedPath()), overrides);
      if (action !== "debug.resume" && action !== "debug.step" && action !== "debug.iteration") return;
      if (onDebugKey(editor, action)) event.preventDefault();
    };
    window.addEventListener("keydown", take);
    return () => window.removeEventListener("keydown", take);
  }, [editor, wanted, overrides]);
}

/** An open canvas goes along with what comes next in the run that is looked at. */
function useFollowing(editor: Editor, current: PausedShown | null, alone: boolean): void {
  useDebugging((state) => state.call);
  const tab = useEditorState((state) => state.view.tab);
  const next = current && currentCall(editor, current);
  const key = next ? `${current?.run} ${keyOfCall(next)}` : "";
  const shown = useRef("");
  useEffect(() => {
    if (!next || alone || tab !== "graph" || key === shown.current) return;
    shown.current = key;
    const place = locateCall(editor.graph, next);
    const { canvas } = editor.state.view;
    // A canvas of components, or the inside of a container, stays: its nodes are marked there.
    if (place?.canvas.kind !== "walk" || canvas.kind !== "walk") return;
    if (canvas.walk === place.canvas.walk) editor.see({ selection: place.selection });
    else editor.see(place);
  }, [editor, key, tab, alone]);
}

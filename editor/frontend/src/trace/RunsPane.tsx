// Runs whose traces are kept, and those that go on; the newest first, live above them.
import { Columns2, Ellipsis, Radio } from "lucide-react";
import { useState } from "react";
import { replayEntries } from "../debug/model/replay";
import { standingOf, type Standing } from "../session/queue";
import { useQueue } from "../session/react";
import { StandingMark } from "../session/StandingMark";
import type { Editor } from "../store/editor";
import { Badge, IconButton, Menu } from "../ui/kit";
import { ago, plural, showSeconds } from "../ui/words";
import type { TraceSession, TraceState } from "./model/session";
import type { RunState } from "./model/types";
import { strings } from "../strings";

interface Props {
  session: TraceSession;
  state: TraceState;
  deployment: string;
  editor: Editor;
}

interface Line {
  run: string;
  task: string;
  state: RunState;
  seconds: number | null;
  at: number;
  about: string;
  title: string;
}

const MARKS: Record<Exclude<RunState, "done">, [kind: string, words: string]> = {
  failed: ["bad", "failed"],
  cancelled: ["warn", "stopped"],
  running: ["busy", "running"],
  waiting: ["warn", "waits for approval"],
};

function Mark({ state, standing }: { state: RunState; standing: Standing | null }) {
  if (state === "done") return null;
  if (state === "running" && standing) return <StandingMark standing={standing} />;
  const [kind, words] = MARKS[state];
  return <Badge kind={kind}>{words}</Badge>;
}

export function RunsPane({ session, state, deployment, editor }: Props) {
  const [menu, setMenu] = useState<{ run: string; x: number; y: number } | null>(null);
  const { told } = useQueue(deployment);
  const lines = linesOf(state);
  const other = state.other?.trace.run ?? null;
  return (
    <aside className="wg-trace-runs" aria-label={strings.trace.runs}>
      <button
        type="button"
        className={`live ${state.run === null ? "shown" : ""}`}
        aria-current={state.run === null}
        onClick={() => void session.show(null)}
      >
        <Radio size={14} aria-hidden /> {strings.trace.liveAllRuns}
      </button>
      {state.comparing && <p className="note">{strings.trace.chooseTheRunToCompare}</p>}
      {state.problem && <p className="note bad">{state.problem}</p>}
      {lines.length === 0 && !state.problem && <p className="note">{strings.trace.runsAreListedHereOnce}</p>}
      <ul>
        {lines.map((line) => (
          <li
            key={line.run}
            className={`${line.run === state.run ? "shown" : ""} ${line.run === other ? "other" : ""}`}
          >
            <button
              type="button"
              className="open"
              title={line.title}
              aria-current={line.run === state.run}
              onClick={() => void session.show(line.run)}
            >
              <span className="task">{line.task}</span>
              <code>{line.run.slice(0, 8)}</code>
              <span className="when">
                <Mark state={line.state} standing={standingOf(told, line.run)} />
                {ago(line.at, Date.now() / 1000)}
                {line.seconds !== null && ` · ${showSeconds(line.seconds)}`}
                {line.about && ` · ${line.about}`}
              </span>
            </button>
            {line.state !== "running" && (
              <IconButton
                label={strings.trace.replayThisRun}
                aria-haspopup="menu"
                onClick={(event) => {
                  const { left, bottom } = event.currentTarget.getBoundingClientRect();
                  setMenu({ run: line.run, x: left, y: bottom });
                }}
              >
                <Ellipsis size={14} />
              </IconButton>
            )}
          </li>
        ))}
      </ul>
      {state.run !== null && state.shown && (
        <IconButton
          label={state.comparing || state.other ? strings.trace.stopComparing : strings.trace.compareWithAnotherRun}
          aria-pressed={state.comparing || state.other !== null}
          className="compare"
          onClick={() => (state.comparing || state.other ? session.endComparing() : session.startComparing())}
        >
          <Columns2 size={14} />{" "}
          {state.comparing || state.other ? strings.trace.stopComparing : strings.trace.compare}
        </IconButton>
      )}
      {menu && (
        <Menu
          at={menu}
          entries={replayEntries(editor, { run: menu.run, deployment }, () => void session.list())}
          onClose={() => setMenu(null)}
        />
      )}
    </aside>
  );
}

function linesOf({ rows, running }: TraceState): Line[] {
  const kept = new Set(rows.map((row) => row.run));
  const lines: Line[] = [
    ...rows.map(({ run, task, state, seconds, at, level, blocks, recorded }) => ({
      run,
      task,
      state,
      seconds: state === "running" ? null : seconds,
      at,
      about: recorded ? "recorded" : "",
      title: strings.trace.telemetry(run, plural(blocks, "block"), level),
    })),
    ...running
      .filter(({ id }) => !kept.has(id))
      .map(({ id, task, state, created_at }) => ({
        run: id,
        task,
        state,
        seconds: null,
        at: created_at,
        about: "",
        title: id,
      })),
  ];
  return lines.sort((a, b) => b.at - a.at);
}

// The breakpoints that are armed: where, when, for how long; changed and taken away.
import { Trash2 } from "lucide-react";
import { useEffect, useState } from "react";
import { ask } from "../store/ask";
import { go } from "../store/locate";
import { useEditor, useEditorState } from "../store/react";
import { watchOf, type BreakShown } from "../store/watch";
import { Button, IconButton, Input } from "../ui/kit";
import { Table } from "../ui/Table";
import { showAge } from "../ui/words";
import { setIteration } from "./model/actions";
import { breakWords, isLooped, readIteration } from "./model/breaks";
import { entryOf } from "./model/calls";
import { strings } from "../strings";

export interface BreakRow extends BreakShown {
  deployment: string;
}

const TICK_MS = 15_000;

export function Breakpoints({ rows, several }: { rows: readonly BreakRow[]; several: boolean }) {
  const editor = useEditor();
  const now = useNow();
  const ids = [...new Set(rows.map((row) => row.deployment))];
  const clear = () => void ask(editor, () => Promise.all(ids.map((id) => watchOf(id).removeBreakpoints())));
  return (
    <div className="wg-breaks">
      <Table
        columns={[
          strings.debug.before,
          strings.debug.inIteration,
          strings.debug.runs,
          strings.debug.expires,
          {
            children: (
              <Button kind="quiet" onClick={clear}>
                {strings.debug.removeAll}
              </Button>
            ),
          },
        ]}
      >
        <tbody>
          {rows.map((row) => (
            <tr key={row.id}>
              <td>
                <Where row={row} several={several} />
                {row.inside && <small>{strings.debug.whileItIsSetNew}</small>}
              </td>
              <td>
                <Iteration key={String(row.iteration)} row={row} />
              </td>
              <td>{row.run === null ? "all" : <code>{row.run.slice(0, 8)}</code>}</td>
              <td>{showAge(row.expires_at - now)}</td>
              <td>
                <IconButton
                  label={strings.debug.removeTheBreakpointBefore(row.use)}
                  onClick={() => void ask(editor, () => watchOf(row.deployment).removeBreakpoint(row.id))}
                >
                  <Trash2 size={13} />
                </IconButton>
              </td>
            </tr>
          ))}
        </tbody>
      </Table>
    </div>
  );
}

function Where({ row, several }: { row: BreakRow; several: boolean }) {
  const editor = useEditor();
  const graph = useEditorState((state) => state.documents.graph);
  const entry = entryOf(graph, { ...row, loop: "" });
  const canvas = { kind: "walk", walk: row.walk, inside: null } as const;
  return (
    <>
      <button
        type="button"
        className="wg-dock-link"
        disabled={!entry}
        title={entry ? strings.debug.showItOnTheCanvas : strings.debug.theOpenGraphHasNo}
        onClick={() => entry && go(editor, { tab: "graph", canvas, selection: [entry.id] })}
      >
        <i className="wg-break-sign" aria-hidden /> {row.use}
      </button>{" "}
      {strings.debug.in(row.walk)}
      {several && strings.debug.of(row.deployment)}
    </>
  );
}

/** Counted from 1; empty: at every call. */
function Iteration({ row }: { row: BreakRow }) {
  const editor = useEditor();
  const graph = useEditorState((state) => state.documents.graph);
  const [wrong, setWrong] = useState(false);
  if (row.iteration === null && !isLooped(graph, row)) return breakWords(row);
  const enter = (input: HTMLInputElement) => {
    const iteration = readIteration(input.value);
    setWrong(iteration === undefined);
    if (iteration === undefined || iteration === row.iteration) return;
    void setIteration(editor, row.deployment, row, iteration);
  };
  return (
    <Input
      aria-label={strings.debug.iterationInWhichRunsPause(row.use)}
      aria-invalid={wrong}
      inputMode="numeric"
      placeholder={strings.debug.every}
      defaultValue={row.iteration === null ? "" : String(row.iteration + 1)}
      onBlur={(event) => enter(event.currentTarget)}
      onKeyDown={(event) => event.key === "Enter" && enter(event.currentTarget)}
    />
  );
}

function useNow(): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return now;
}

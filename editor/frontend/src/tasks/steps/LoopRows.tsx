// The head of a loop of steps: how often, until when, and what its results start as.
import { Plus, RefreshCw, X } from "lucide-react";
import type { Problem } from "../../messages/answers";
import type { GraphDocument, Task } from "../../document/types";
import { useEditorState } from "../../store/react";
import { IconButton } from "../../ui/kit";
import { ProblemLines, TextCell } from "../cells/widgets";
import type { useTaskEdits } from "../model/actions";
import { endings, isReference, readLiteral, startable } from "../model/bindings";
import type { LoopRow } from "../model/rows";
import { Grip, MenuButton } from "./Grip";
import { indent, type RowHandle } from "./handle";
import { strings } from "../../strings";

interface LoopLineProps {
  graph: GraphDocument;
  task: Task;
  row: LoopRow;
  columns: number;
  handle: RowHandle;
  drop: string;
  problems: readonly Problem[];
  edits: ReturnType<typeof useTaskEdits>;
}

export function LoopLine({ graph, task, row, columns, handle, drop, problems, edits }: LoopLineProps) {
  const catalogue = useEditorState((state) => state.catalogue);
  const what = strings.tasks.loopOfSteps;
  const { times, until } = row.step;
  const found = endings(graph, catalogue, task, row);
  const bad = (field: string) => problems.some((problem) => problem.pointer === `${row.pointer}/${field}`);
  return (
    <tr data-pointer={row.pointer} className={`block ${drop}`}>
      <td className="grip">
        <Grip row={row} what={what} handle={handle} edits={edits} />
      </td>
      <th colSpan={columns - 2} scope="rowgroup" style={{ paddingLeft: indent(row.depth) }}>
        <div className="block-head loop-head">
          <RefreshCw size={14} aria-hidden />
          {what}
          <span className="note">{strings.tasks.upTo}</span>
          <TextCell
            mono
            label={strings.tasks.mostPasses}
            value={String(times ?? "")}
            invalid={bad("times")}
            onCommit={(text) => edits.setLoop(row.pointer, { times: text.trim() })}
          />
          <span className="note">
            {strings.tasks.passes}, {strings.tasks.untilItIs}
          </span>
          <select
            className="wg-input wg-mono choose-by"
            aria-label={strings.tasks.flagThatEndsTheLoop}
            aria-invalid={bad("until") || undefined}
            value={until ?? ""}
            onChange={(event) => edits.setLoop(row.pointer, { until: event.target.value || undefined })}
          >
            <option value="">{strings.tasks.allPassesRun}</option>
            {typeof until === "string" && !found.includes(until) && <option value={until}>{until}</option>}
            {found.map((value) => (
              <option key={value} value={value}>
                {value}
              </option>
            ))}
          </select>
        </div>
        <Starts {...{ graph, task, row, edits, problems }} />
        <ProblemLines problems={problems} />
      </th>
      <td className="actions">
        <MenuButton row={row} what={what} handle={handle} />
      </td>
    </tr>
  );
}

type StartsProps = Pick<LoopLineProps, "graph" | "task" | "row" | "edits" | "problems">;

/** What results of the loop stand for before their steps have run. */
function Starts({ graph, task, row, edits, problems }: StartsProps) {
  const entries = Object.entries(row.step.start ?? {});
  const free = startable(graph, task, row);
  const request = Object.keys(task.inputs ?? {})[0];
  const first = request === undefined ? "" : `@task.${request}`;
  return (
    <div className="loop-starts">
      {entries.map(([result, binding]) => (
        <span key={result} className="case-head">
          <code>{result}</code>
          <span className="note">{strings.tasks.startsAs}</span>
          <TextCell
            mono
            label={strings.tasks.whatItStartsAs(result)}
            value={String(binding)}
            invalid={problems.some((problem) => problem.pointer === `${row.pointer}/start/${result}`)}
            onCommit={(text) =>
              edits.startLoop(row.pointer, result, isReference(text.trim()) ? text.trim() : readLiteral(text, ""))
            }
          />
          <IconButton
            label={strings.tasks.removeTheStart(result)}
            onClick={() => edits.startLoop(row.pointer, result, undefined)}
          >
            <X size={13} />
          </IconButton>
        </span>
      ))}
      {free.length > 0 && (
        <label className="case-head">
          <Plus size={13} aria-hidden />
          <select
            className="wg-input wg-mono"
            aria-label={strings.tasks.addAStart}
            value=""
            onChange={(event) => edits.startLoop(row.pointer, event.target.value, first)}
          >
            <option value="">{strings.tasks.startsAs}…</option>
            {free.map((value) => (
              <option key={value} value={value}>
                {value}
              </option>
            ))}
          </select>
        </label>
      )}
    </div>
  );
}

// A choice by a value among the steps, and the heads of its cases.
import { Signpost, Plus, X } from "lucide-react";
import type { Problem } from "../../messages/answers";
import type { GraphDocument, Task } from "../../document/types";
import { useEditorState } from "../../store/react";
import { Button, IconButton } from "../../ui/kit";
import { ProblemLines, TextCell } from "../cells/widgets";
import type { useTaskEdits } from "../model/actions";
import { choiceValues } from "../model/bindings";
import type { BranchRow, ChooseRow } from "../model/rows";
import { Grip, MenuButton } from "./Grip";
import { indent, type RowHandle } from "./handle";
import { strings } from "../../strings";

type Edits = ReturnType<typeof useTaskEdits>;

interface ChooseLineProps {
  graph: GraphDocument;
  task: Task;
  row: ChooseRow;
  columns: number;
  handle: RowHandle;
  drop: string;
  problems: readonly Problem[];
  edits: Edits;
}

export function ChooseLine({ graph, task, row, columns, handle, drop, problems, edits }: ChooseLineProps) {
  const catalogue = useEditorState((state) => state.catalogue);
  const what = strings.tasks.chooseBy;
  const { choose, otherwise } = row.step;
  const found = choiceValues(graph, catalogue, task, row);
  const known = choose === "" || found.some((option) => option.value === choose);
  const bad = problems.some((problem) => problem.pointer === `${row.pointer}/choose`);
  return (
    <tr data-pointer={row.pointer} className={`block ${drop}`}>
      <td className="grip">
        <Grip row={row} what={what} handle={handle} edits={edits} />
      </td>
      <th colSpan={columns - 2} scope="rowgroup" style={{ paddingLeft: indent(row.depth) }}>
        <div className="block-head">
          <Signpost size={14} aria-hidden />
          {what}
          <select
            className="wg-input wg-mono choose-by"
            aria-label={strings.tasks.valueThatTheChoiceGoesBy}
            aria-invalid={bad || undefined}
            value={choose}
            onChange={(event) => edits.setChoice(row.pointer, event.target.value)}
          >
            <option value="">{strings.tasks.nothingYet}</option>
            {!known && <option value={choose}>{choose}</option>}
            {(["The request", "Earlier steps"] as const).map((group) => {
              const entries = found.filter((option) => option.group === group);
              return entries.length === 0 ? null : (
                <optgroup key={group} label={group}>
                  {entries.map(({ value }) => (
                    <option key={value} value={value}>
                      {value}
                    </option>
                  ))}
                </optgroup>
              );
            })}
          </select>
          <span className="note">{strings.tasks.oneCaseRuns}</span>
          <span className="add-parts">
            <Button kind="quiet" onClick={() => edits.addCase(row.pointer)} title={strings.tasks.addACase}>
              <Plus size={13} aria-hidden /> {strings.tasks.case}
            </Button>
            {!Array.isArray(otherwise) && (
              <Button kind="quiet" onClick={() => edits.addOtherwise(row.pointer)} title={strings.tasks.addOtherwise}>
                <Plus size={13} aria-hidden /> {strings.tasks.otherwise2}
              </Button>
            )}
          </span>
        </div>
        <ProblemLines problems={problems} />
      </th>
      <td className="actions">
        <MenuButton row={row} what={what} handle={handle} />
      </td>
    </tr>
  );
}

interface BranchHeaderProps {
  row: BranchRow;
  columns: number;
  drop: string;
  problems: readonly Problem[];
  edits: Edits;
}

export function BranchHeader({ row, columns, drop, problems, edits }: BranchHeaderProps) {
  const { name } = row;
  return (
    <tr data-pointer={row.pointer} className={`part branch ${drop}`}>
      <td className="grip" />
      <th colSpan={columns - 2} scope="rowgroup" style={{ paddingLeft: indent(row.depth) }}>
        <span className="case-head">
          {name === null ? (
            <span className="case-name">{strings.tasks.otherwise2}</span>
          ) : (
            <TextCell
              mono
              label={strings.tasks.valueOfTheCase(name)}
              value={name}
              onCommit={(to) => edits.nameCase(row.list, name, to)}
            />
          )}
          <span aria-hidden>→</span>
        </span>
        <ProblemLines problems={problems} />
      </th>
      <td className="actions">
        <IconButton
          label={strings.tasks.removeTheCase(name ?? strings.tasks.otherwise2)}
          onClick={() => edits.removeCase(row.list, name)}
        >
          <X size={14} />
        </IconButton>
      </td>
    </tr>
  );
}

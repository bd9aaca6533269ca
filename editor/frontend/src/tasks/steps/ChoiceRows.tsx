// A choice by a value among the steps, and the heads of its cases.
import { Signpost, Plus } from "lucide-react";
import { useEditorState } from "../../store/react";
import { Button } from "../../ui/kit";
import { TextCell } from "../cells/widgets";
import { choiceValues } from "../model/bindings";
import type { BranchRow, ChooseRow } from "../model/rows";
import { BlockHead, PartHead, ValueSelect, type BlockProps, type ValuesProps } from "./Head";
import { strings } from "../../strings";

export function ChooseLine(props: ValuesProps<ChooseRow>) {
  const { graph, task, row, problems, edits } = props;
  const catalogue = useEditorState((state) => state.catalogue);
  const { choose, otherwise } = row.step;
  const found = choiceValues(graph, catalogue, task, row);
  const of = (group: string) =>
    [group, found.filter((option) => option.group === group).map((option) => option.value)] as const;
  return (
    <BlockHead {...props} what={strings.tasks.chooseBy} icon={<Signpost size={14} aria-hidden />}>
      <ValueSelect
        className="choose-by"
        label={strings.tasks.valueThatTheChoiceGoesBy}
        value={choose}
        empty={strings.tasks.nothingYet}
        groups={[of("The request"), of("Earlier steps")]}
        invalid={problems.some((problem) => problem.pointer === `${row.pointer}/choose`)}
        onChange={(value) => edits.setChoice(row.pointer, value)}
      />
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
    </BlockHead>
  );
}

export function BranchHeader(props: Omit<BlockProps<BranchRow>, "handle">) {
  const { row, edits } = props;
  const { name } = row;
  const remove = {
    label: strings.tasks.removeTheCase(name ?? strings.tasks.otherwise2),
    run: () => edits.removeCase(row.list, name),
  };
  return (
    <PartHead {...props} className="part branch" remove={remove}>
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
    </PartHead>
  );
}

// A step that waits for a person: what is shown, the question, the time to answer, and the name of the answer.
import { UserCheck, X } from "lucide-react";
import { useEditorState } from "../../store/react";
import { IconButton } from "../../ui/kit";
import { showAge } from "../../ui/words";
import { NumberCell, TextCell } from "../cells/widgets";
import { showable, shownBy } from "../model/bindings";
import type { ApproveRow } from "../model/rows";
import { BlockHead, ValueSelect, type ValuesProps } from "./Head";
import { strings } from "../../strings";

/** The most results that a person is shown at once. */
const MOST_SHOWN = 8;
/** Seconds to answer where none are given. */
const USUAL_WITHIN = 86_400;

export function ApproveLine(props: ValuesProps<ApproveRow>) {
  return (
    <BlockHead
      {...props}
      what={strings.tasks.waitForApproval}
      icon={<UserCheck size={14} aria-hidden />}
      className="approve-head"
      below={<Terms {...props} />}
    >
      <Shown {...props} />
    </BlockHead>
  );
}

function Shown({ graph, task, row, problems, edits }: ValuesProps<ApproveRow>) {
  const catalogue = useEditorState((state) => state.catalogue);
  const shown = shownBy(row);
  const { earlier, before } = showable(graph, catalogue, task, row);
  const isBad = (pointer: string) => problems.some((problem) => problem.pointer === row.pointer + pointer);
  const show = (results: string[]) => edits.setApproval(row.pointer, { approve: results });
  return (
    <>
      <span className="note">{strings.tasks.shows}</span>
      {shown.map((result, index) => (
        <span key={`${index} ${result}`} className={`shown ${isBad(`/approve/${index}`) ? "bad" : ""}`}>
          <code>{result}</code>
          <IconButton
            label={strings.tasks.dontShow(result)}
            onClick={() => show(shown.filter((_, other) => other !== index))}
          >
            <X size={13} />
          </IconButton>
        </span>
      ))}
      {shown.length < MOST_SHOWN && (
        <ValueSelect
          className="choose-by"
          label={strings.tasks.resultToShow}
          value=""
          empty={shown.length > 0 ? strings.tasks.showMore : strings.tasks.showAResult}
          groups={[
            [strings.tasks.earlierSteps, earlier],
            [strings.tasks.thePassBefore, before],
          ]}
          invalid={isBad("/approve")}
          onChange={(result) => show([...shown, result])}
        />
      )}
    </>
  );
}

function Terms({ row, problems, edits }: ValuesProps<ApproveRow>) {
  const { label, within, as } = row.step;
  const isBad = (field: string) => problems.some((problem) => problem.pointer === `${row.pointer}/${field}`);
  return (
    <div className="approve-terms">
      <TextCell
        grows
        label={strings.tasks.questionToThePerson}
        value={label ?? ""}
        placeholder={strings.tasks.questionToThePerson}
        invalid={isBad("label")}
        onCommit={(text) => edits.setApproval(row.pointer, { label: text || undefined })}
      />
      <label className="case-head">
        <span className="note">{strings.tasks.answerWithin}</span>
        <NumberCell
          whole
          label={strings.tasks.secondsToAnswer}
          value={within}
          placeholder={String(USUAL_WITHIN)}
          wrong={isBad("within")}
          onCommit={(seconds) => edits.setApproval(row.pointer, { within: seconds })}
        />
        <span className="note">{strings.tasks.secondsOr(showAge(Number(within ?? USUAL_WITHIN)))}</span>
      </label>
      <label className="case-head">
        <span className="note">{strings.tasks.answerKnownAs}</span>
        <TextCell
          mono
          label={strings.tasks.nameOfTheAnswer}
          value={as ?? ""}
          placeholder={strings.tasks.noAnswerName}
          invalid={isBad("as")}
          onCommit={(name) => edits.nameStep(row, name.trim() || undefined)}
        />
        <span className="note">{as ? strings.tasks.aRefusedRunGoesOn : strings.tasks.aRefusedRunEnds}</span>
      </label>
    </div>
  );
}

// The head of a loop of steps: how often, until when, its name where runs tell why it ended, and what its results
// start as.
import { Plus, RefreshCw, X } from "lucide-react";
import { useEditorState } from "../../store/react";
import { IconButton } from "../../ui/kit";
import { TextCell } from "../cells/widgets";
import { endings, isReference, readLiteral, startable } from "../model/bindings";
import type { LoopRow } from "../model/rows";
import { BlockHead, ValueSelect, type ValuesProps } from "./Head";
import { strings } from "../../strings";

export function LoopLine(props: ValuesProps<LoopRow>) {
  const { graph, task, row, problems, edits } = props;
  const catalogue = useEditorState((state) => state.catalogue);
  const { times, until, as } = row.step;
  const bad = (field: string) => problems.some((problem) => problem.pointer === `${row.pointer}/${field}`);
  return (
    <BlockHead
      {...props}
      what={strings.tasks.loopOfSteps}
      icon={<RefreshCw size={14} aria-hidden />}
      className="loop-head"
      below={<Starts {...props} />}
    >
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
      <ValueSelect
        className="choose-by"
        label={strings.tasks.flagThatEndsTheLoop}
        value={typeof until === "string" ? until : ""}
        empty={strings.tasks.allPassesRun}
        groups={[["", endings(graph, catalogue, task, row)]]}
        invalid={bad("until")}
        onChange={(flag) => edits.setLoop(row.pointer, { until: flag || undefined })}
      />
      {(until || as) && (
        <>
          <span className="note">{strings.tasks.runsTellWhyAs}</span>
          <TextCell
            mono
            label={strings.tasks.nameOfTheLoop}
            value={as ?? ""}
            placeholder={strings.tasks.itsFlagsStep}
            invalid={bad("as")}
            onCommit={(name) => edits.setLoop(row.pointer, { as: name.trim() || undefined })}
          />
        </>
      )}
    </BlockHead>
  );
}

/** The values that results of the loop stand for before their steps have run. */
function Starts({ graph, task, row, edits, problems }: ValuesProps<LoopRow>) {
  const catalogue = useEditorState((state) => state.catalogue);
  const entries = Object.entries(row.step.start ?? {});
  const free = startable(graph, catalogue, task, row);
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
          <ValueSelect
            label={strings.tasks.addAStart}
            value=""
            empty={`${strings.tasks.startsAs}…`}
            groups={[["", free]]}
            onChange={(result) => edits.startLoop(row.pointer, result, first)}
          />
        </label>
      )}
    </div>
  );
}

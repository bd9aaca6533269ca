// The problems of the graph and its plan, with links to their places.
import { CircleAlert, CircleCheck, LoaderCircle, TriangleAlert, Wrench } from "lucide-react";
import { useDeferredValue, useMemo, useState } from "react";
import type { Problem } from "../../messages/answers";
import { useEditor, useEditorState } from "../../store/react";
import { Button, Empty, Input, Prose } from "../../ui/kit";
import { problemCount } from "../../ui/words";
import { go } from "../../store/locate";
import { useApply } from "../common/apply";
import { grouped, together } from "./problems";
import { repairsOf } from "./repairs";
import { strings } from "../../strings";

/** The edit that mends it. While the graph is checked anew, its problems may be others. */
function Repairs({ problem, stale }: { problem: Problem; stale: boolean }) {
  const { attempt } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const catalogue = useEditorState((state) => state.catalogue);
  const repairs = useMemo(() => repairsOf(graph, catalogue, problem), [graph, catalogue, problem]);
  return repairs.map(({ label, edit }) => (
    <Button key={label} disabled={stale} onClick={() => attempt(label, edit)}>
      <Wrench size={12} aria-hidden="true" /> {label}
    </Button>
  ));
}

const NONE: readonly Problem[] = [];

export function Problems() {
  const editor = useEditor();
  const graph = useEditorState((state) => state.documents.graph);
  const checked = useEditorState((state) => state.checked);
  const planned = useEditorState(({ planned: { placing, plan } }) => (placing && plan?.problems) || NONE);
  const [text, setText] = useState("");
  const words = useDeferredValue(text);
  const problems = useMemo(() => together(checked.problems, planned), [checked.problems, planned]);
  const groups = useMemo(() => grouped(graph, problems, words), [graph, problems, words]);
  const errors = problems.filter((problem) => problem.severity === "error").length;
  const stale = checked.of !== graph;
  return (
    <div className="wg-problems">
      <header>
        <p className="status" role="status">
          {stale ? (
            <>
              <LoaderCircle size={13} className="wg-turning" aria-hidden="true" /> {strings.panels.checking}
            </>
          ) : (
            problemCount(errors, problems.length - errors) || strings.panels.checked
          )}
        </p>
        {problems.length > 4 && (
          <Input
            type="search"
            aria-label={strings.panels.filterTheProblems}
            placeholder={strings.panels.filter2}
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        )}
      </header>
      <div className={`list${stale ? " stale" : ""}`}>
        {problems.length === 0 && !stale && (
          <Empty title={strings.panels.noProblems}>
            <CircleCheck size={22} aria-hidden="true" />
          </Empty>
        )}
        {problems.length > 0 && groups.length === 0 && (
          <p className="wg-quiet">{strings.panels.noProblemContains(words.trim())}</p>
        )}
        {groups.map((group) => (
          <section key={group.place} aria-label={group.place}>
            <h3>{group.place}</h3>
            <ul>
              {group.shown.map(({ problem, at }) => (
                <li key={`${problem.code} ${problem.pointer} ${problem.message}`}>
                  <button
                    type="button"
                    className={problem.severity}
                    title={`${problem.code} ${problem.pointer}`}
                    onClick={() => go(editor, at)}
                  >
                    {problem.severity === "error" ? (
                      <CircleAlert size={14} aria-label={strings.panels.error} />
                    ) : (
                      <TriangleAlert size={14} aria-label={strings.panels.warning} />
                    )}
                    <span>
                      {at.part && <strong>{at.part}</strong>}
                      <span className="message">
                        <Prose text={problem.message} />
                      </span>
                    </span>
                  </button>
                  <Repairs problem={problem} stale={stale} />
                </li>
              ))}
            </ul>
          </section>
        ))}
      </div>
    </div>
  );
}

// Choices of a Walk, their branches, and the merges behind them.
import { Plus, Trash2 } from "lucide-react";
import { useMemo } from "react";
import * as choices from "../../../document/edits/choices";
import { setHead } from "../../../document/edits/heads";
import type { WithId } from "../../../document/edits/items";
import { Judge } from "../../../document/edits/judge";
import { unwrap } from "../../../document/edits/wrap";
import { portsOf, portType } from "../../../document/ports";
import { join } from "../../../document/pointer";
import { headRef, factsOf } from "../../../document/routes";
import type { Entry } from "../../../document/tree";
import type { Choose, GraphDocument } from "../../../document/types";
import type { Catalogue } from "../../../messages/answers";
import { useEditorState } from "../../../store/react";
import { Button, IconButton } from "../../../ui/kit";
import { ProblemLines, Removal, Section } from "../../common/bits";
import { useApply, useProblems } from "../../common/apply";
import { ChoiceField, NameField, TextField } from "../fields/fields";
import { WhenField, type ItemProps } from "./ItemForms";
import { strings } from "../../../strings";

export function ChooseForm({ walk, entry }: ItemProps) {
  const { attempt, editor } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const catalogue = useEditorState((state) => state.catalogue);
  const pointer = join("walks", walk) + entry.pointer;
  const own = useProblems(pointer, true);
  const listed = useProblems(`${pointer}/cases`, true);
  const value = useProblems(`${pointer}/choose`);
  const { choose } = entry.item as Choose;
  const values = useMemo(() => valuesOf(graph, catalogue, walk, entry), [graph, catalogue, walk, entry]);
  const merges = choices.mergesBehind(graph, walk, entry);
  const add = (label: string, change: (graph: GraphDocument) => WithId) => {
    let made = "";
    const done = attempt(label, (graph) => {
      const answer = change(graph);
      made = answer.id;
      return answer.graph;
    });
    if (done) editor.select(made);
  };
  const type = portType(graph, catalogue, walk, choose, "source");
  const takeApart = () => {
    if (attempt(strings.inspector.unwrap(strings.inspector.choice), (graph) => unwrap(graph, walk, entry.id)))
      editor.select();
  };
  return (
    <>
      <p className="wg-quiet">{strings.inspector.oneOfItsCasesRuns}</p>
      <ProblemLines problems={[...own, ...listed]} />
      <ChoiceField
        label={strings.inspector.chooseBy}
        value={choose}
        options={[{ value: "", label: strings.inspector.nothingYet }, ...values]}
        onChoose={(from) =>
          void attempt(strings.inspector.setWhatTheChoiceGoesBy, (graph) =>
            setHead(graph, walk, entry.id, from || null, catalogue),
          )
        }
        hint={strings.inspector.aFlagAWholeNumber}
        problems={value}
      />
      <Section title={strings.inspector.cases} aside={<small>{entry.children.length}</small>}>
        {entry.children.map((branch) => (
          <Case key={branch.id} walk={walk} entry={branch} />
        ))}
        <div className="wg-actions">
          <Button
            onClick={() =>
              add(strings.inspector.addACase, (graph) => choices.addCase(graph, walk, entry.id, undefined, type))
            }
          >
            <Plus size={13} aria-hidden /> {strings.inspector.case}
          </Button>
          {!entry.children.some(({ kind }) => kind === "otherwise") && (
            <Button
              onClick={() =>
                add(strings.inspector.addABranchForOtherValues, (graph) =>
                  choices.addOtherwise(graph, walk, entry.id),
                )
              }
            >
              <Plus size={13} aria-hidden /> {strings.inspector.otherwise}
            </Button>
          )}
        </div>
      </Section>
      <WhenField walk={walk} entry={entry} />
      {merges.length > 0 && (
        <Section title={strings.inspector.mergesBehindIt}>
          <div className="wg-links">
            {merges.map((name) => (
              <Button key={name} kind="quiet" onClick={() => editor.select(`merge:${name}`)}>
                {name}
              </Button>
            ))}
          </div>
        </Section>
      )}
      <div className="wg-actions">
        <Button onClick={takeApart}>{strings.inspector.unwrap2}</Button>
      </div>
    </>
  );
}

/** A branch as a line: its value, what it holds, and its removal. */
function Case({ walk, entry }: ItemProps) {
  const { attempt, editor } = useApply();
  const problems = useProblems(join("walks", walk) + entry.pointer, true);
  const remove = () => {
    if (attempt(strings.inspector.removeABranch, (graph) => choices.removeBranch(graph, walk, entry.id)))
      editor.select(entry.parent!.id);
  };
  return (
    <div className="wg-record">
      <CaseValue walk={walk} entry={entry} />
      <IconButton label={strings.inspector.removeTheCase(entry.name || strings.inspector.otherwise)} onClick={remove}>
        <Trash2 size={14} />
      </IconButton>
      <ProblemLines problems={problems} />
    </div>
  );
}

function CaseValue({ walk, entry, follow = false }: ItemProps & { follow?: boolean }) {
  const { apply, editor } = useApply();
  const about = strings.inspector.stepsInside(entry.children.length);
  if (entry.kind === "otherwise")
    return (
      <p className="wg-quiet">
        <strong>{strings.inspector.otherwise}</strong> · {about}
      </p>
    );
  const rename = (name: string) => {
    let made = "";
    const refused = apply(strings.inspector.nameACase, (graph) => {
      const answer = choices.renameCase(graph, walk, entry.id, name);
      made = answer.id;
      return answer.graph;
    });
    if (refused === null && follow) editor.select(made);
    return refused;
  };
  return <TextField label={strings.inspector.caseWithSteps(about)} value={entry.name} mono onEnter={rename} />;
}

export function BranchForm({ walk, entry }: ItemProps) {
  const { attempt, editor } = useApply();
  const problems = useProblems(join("walks", walk) + entry.pointer, true);
  const remove = () => {
    if (attempt(strings.inspector.removeABranch, (graph) => choices.removeBranch(graph, walk, entry.id)))
      editor.select(entry.parent!.id);
  };
  return (
    <>
      <p className="wg-quiet">
        {entry.kind === "case" ? strings.inspector.itsStepsRunWhere : strings.inspector.itsStepsRunForOther}
      </p>
      <ProblemLines problems={problems} />
      <CaseValue walk={walk} entry={entry} follow />
      <div className="wg-links">
        <Button kind="quiet" onClick={() => editor.select(entry.parent!.id)}>
          {strings.inspector.showTheChoice}
        </Button>
      </div>
      <Removal onRemove={remove}>{strings.inspector.removeABranch}</Removal>
    </>
  );
}

export function MergeForm({ walk, name }: { walk: string; name: string }) {
  const { apply, attempt, editor } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const catalogue = useEditorState((state) => state.catalogue);
  const merge = factsOf(graph.walks![walk]!).merges.get(name);
  const pointer = join("walks", walk, "merges", name);
  const own = useProblems(pointer, true);
  const all = useProblems(pointer);
  const free = useMemo(() => moreSources(graph, catalogue, walk, name), [graph, catalogue, walk, name]);
  if (!merge) return null;
  const rename = (to: string) => {
    const refused = apply(strings.inspector.renameTheMerge(name), (graph) =>
      choices.renameMerge(graph, walk, name, to),
    );
    if (refused === null) editor.select(`merge:${to}`);
    return refused;
  };
  return (
    <>
      <p className="wg-quiet">{strings.inspector.theValueOfWhicheverBranch}</p>
      <NameField label={strings.inspector.name} value={name} onEnter={rename} problems={own} />
      <Section title={strings.inspector.sources} aside={<small>{merge.sources.length}</small>}>
        {merge.sources.map((source, index) => (
          <div key={source} className="wg-record">
            <p>
              <code>{source}</code>
            </p>
            <IconButton
              label={strings.inspector.removeTheSource(source)}
              onClick={() =>
                attempt(strings.inspector.removeTheSource(source), (graph) =>
                  choices.removeFromMerge(graph, walk, name, index),
                )
              }
            >
              <Trash2 size={14} />
            </IconButton>
            <ProblemLines problems={all.filter((problem) => problem.pointer === `${pointer}/${index}`)} />
          </div>
        ))}
        {free.length > 0 && (
          <ChoiceField
            label={strings.inspector.addASource}
            value=""
            options={[{ value: "", label: strings.inspector.chooseAPort }, ...free]}
            onChoose={(from) =>
              from &&
              attempt(strings.inspector.addASource, (graph) => choices.addToMerge(graph, walk, name, from, catalogue))
            }
          />
        )}
      </Section>
      <Removal
        onRemove={() => attempt(strings.inspector.removeTheMerge, (graph) => choices.removeMerge(graph, walk, name))}
      >
        {strings.inspector.removeTheMerge}
      </Removal>
    </>
  );
}

/** The values that a choice or a map could take at its head: outputs, inputs and merges before it of its types. */
export function valuesOf(graph: GraphDocument, catalogue: Catalogue, walk: string, head: Entry): string[] {
  const judge = new Judge(graph, walk, catalogue);
  return sourcesIn(graph, catalogue, walk).filter(
    (from) =>
      portType(graph, catalogue, walk, from, "source") && typeof judge.judge(from, headRef(head.id)) !== "string",
  );
}

function moreSources(graph: GraphDocument, catalogue: Catalogue, walk: string, name: string): string[] {
  const judge = new Judge(graph, walk, catalogue);
  return sourcesIn(graph, catalogue, walk).filter((from) => typeof judge.judge(from, `@merge.${name}`) !== "string");
}

function sourcesIn(graph: GraphDocument, catalogue: Catalogue, walk: string): string[] {
  const body = graph.walks![walk]!;
  const { uses, merges } = factsOf(body);
  return [
    ...[...uses.values()].flatMap((entry) =>
      portsOf(graph, catalogue, entry.node).outputs.map((port) => `${entry.name}.${port.name}`),
    ),
    ...Object.keys(body.inputs ?? {}).map((input) => `@in.${input}`),
    ...[...merges.keys()].map((merge) => `@merge.${merge}`),
  ];
}

// The items of a Walk's body: uses, loops, parallels and sequences, forks.
import { useMemo } from "react";
import type { Catalogue } from "../../../messages/answers";
import { BreakField } from "../../../debug/marks";
import * as items from "../../../document/edits/items";
import { mutedOf, unmute } from "../../../document/edits/mute";
import { unwrap } from "../../../document/edits/wrap";
import { whenOf } from "../../../document/names";
import { portsOf, portType } from "../../../document/ports";
import { join } from "../../../document/pointer";
import { factsOf, isInside } from "../../../document/routes";
import { flat, type Entry } from "../../../document/tree";
import type { GraphDocument, Loop } from "../../../document/types";
import { loopMark, loopReason, loopShown } from "../../../session/loops";
import { useEditorState } from "../../../store/react";
import { modalityOf } from "../../../ui/modality";
import { Badge, Button, Prose } from "../../../ui/kit";
import { ProblemLines, Section } from "../../common/bits";
import { scopeOfWalk } from "../../common/scope";
import { useApply, useProblems } from "../../common/apply";
import { CheckField, ChoiceField, ExpressionField, NameField } from "../fields/fields";
import { NodeForm } from "./NodeForm";
import { strings } from "../../../strings";

export interface ItemProps {
  walk: string;
  entry: Entry;
}

const WHEN_HINT = strings.inspector.emptyAlwaysForExampleSteps;

/** Fields of one item entered into the document. */
export function useItem({ walk, entry }: ItemProps) {
  const { apply, attempt, editor } = useApply();
  const set = (label: string, fields: Parameters<typeof items.setItem>[3]) =>
    apply(label, (graph) => items.setItem(graph, walk, entry.id, fields));
  return { apply, attempt, editor, set, pointer: join("walks", walk) + entry.pointer };
}

export function WhenField({ walk, entry }: ItemProps) {
  const { set, pointer, attempt } = useItem({ walk, entry });
  const graph = useEditorState((state) => state.documents.graph);
  const scope = useMemo(() => scopeOfWalk(graph, walk, entry.loops), [graph, walk, entry.loops]);
  const problems = useProblems(`${pointer}/when`);
  const muted = useMemo(() => mutedOf(graph, walk).get(entry.id), [graph, walk, entry.id]);
  if (muted)
    return (
      <div className="wg-muted" role="status">
        <span>
          {muted === "muted" ? strings.inspector.mutedItDoesNotRun : strings.inspector.bypassedItsInputsPassThrough}
        </span>
        <Button
          onClick={() =>
            attempt(strings.inspector.runNormally(entry.name || entry.kind), (graph) =>
              unmute(graph, walk, [entry.id]),
            )
          }
        >
          {strings.inspector.runNormally2}
        </Button>
      </div>
    );
  return (
    <ExpressionField
      label={strings.inspector.onlyWhen}
      value={whenOf(entry.item) ?? ""}
      placeholder={strings.inspector.always}
      hint={WHEN_HINT}
      scope={scope}
      problems={problems}
      onEnter={(when) => set(strings.inspector.setWhenRuns(entry.name || entry.kind), { when: when || null })}
    />
  );
}

export function UseForm({ walk, entry }: ItemProps) {
  const { set, pointer, editor } = useItem({ walk, entry });
  const problems = useProblems(pointer, true);
  const naming = useProblems(`${pointer}/as`);
  const rename = (name: string) => {
    const refused = set(strings.inspector.renameTheUse(entry.name), { as: name === entry.node ? null : name });
    if (refused === null) editor.select(`use:${name}`);
    return refused;
  };
  const follow = (to: string) => {
    // A use without a name of its own has its node's.
    if (entry.name === entry.node) editor.select(entry.id.replace(`use:${entry.node}`, `use:${to}`));
  };
  return (
    <>
      <Section title={strings.inspector.in(walk)}>
        <NameField
          label={strings.inspector.used2}
          value={entry.name}
          onEnter={rename}
          hint={strings.inspector.edgesOfThisWalkRefer}
          problems={naming}
        />
        <ProblemLines problems={problems} />
        <WhenField walk={walk} entry={entry} />
        <BreakField walk={walk} use={entry.name} />
      </Section>
      <Section title={strings.inspector.component(entry.node)}>
        <NodeForm name={entry.node} shared onRename={follow} />
      </Section>
    </>
  );
}

export function LoopForm({ walk, entry }: ItemProps) {
  const { set, pointer, editor } = useItem({ walk, entry });
  const graph = useEditorState((state) => state.documents.graph);
  const catalogue = useEditorState((state) => state.catalogue);
  const loop = entry.item as Loop;
  const flags = useMemo(
    () => [...flagsIn(graph, catalogue, entry), ...mergedFlags(graph, catalogue, walk, entry)],
    [graph, catalogue, walk, entry],
  );
  const scope = useMemo(() => scopeOfWalk(graph, walk, entry.loops), [graph, walk, entry.loops]);
  const own = useProblems(pointer, true);
  const empty = useProblems(`${pointer}/body`, true);
  const naming = useProblems(`${pointer}/loop`);
  const times = useProblems(`${pointer}/times`);
  const until = useProblems(`${pointer}/until`);
  const dropping = useProblems(`${pointer}/drop_last`);
  const rename = (name: string) => {
    const refused = set(strings.inspector.renameTheLoop(entry.name), { loop: name });
    if (refused === null) editor.select(`loop:${name}`);
    return refused;
  };
  return (
    <>
      <NameField
        label={strings.inspector.name}
        value={entry.name}
        onEnter={rename}
        hint={
          <>
            {strings.inspector.inside} <code>{strings.inspector.loop(entry.name)}</code>{" "}
            {strings.inspector.countsItsIterationsFrom0}
          </>
        }
        problems={naming}
      />
      <ProblemLines problems={[...own, ...empty]} />
      <ExpressionField
        label={strings.inspector.times}
        value={String(loop.times)}
        scope={scope}
        problems={times}
        onEnter={(text) =>
          text
            ? set(strings.inspector.setHowOftenTheLoop, { times: text })
            : strings.inspector.writeTheMostIterationsSuch
        }
        hint={loop.until ? strings.inspector.theMostIterationsItsFlag : strings.inspector.aNumberOrAnExpression}
      />
      <ChoiceField
        label={strings.inspector.until}
        value={loop.until ?? ""}
        options={[
          {
            value: "",
            label: flags.length ? strings.inspector.allIterationsAreDone : strings.inspector.allIterationsAreDoneNo,
          },
          ...flags.map((flag) => ({ value: flag, label: strings.inspector.isRaised(flag) })),
        ]}
        onChoose={(flag) =>
          set(strings.inspector.setWhatEndsTheLoop, { until: flag || null, ...(flag ? {} : { drop_last: null }) })
        }
        hint={strings.inspector.theIterationThatRaises}
        problems={until}
      />
      <CheckField
        label={strings.inspector.dropTheLastIterationsValues}
        value={loop.drop_last ?? false}
        disabled={!loop.until && !loop.drop_last}
        onChange={(drop) => set(strings.inspector.setWhetherTheLastIteration, { drop_last: drop || null })}
        hint={loop.until ? strings.inspector.theOutputsOfItsOwn : strings.inspector.onlyWithAFlag}
        problems={dropping}
      />
      <WhenField walk={walk} entry={entry} />
      <Iterated walk={walk} loop={entry.name} />
    </>
  );
}

function Iterated({ walk, loop }: { walk: string; loop: string }) {
  const shown = useEditorState((state) => loopShown(state, walk, loop));
  if (!shown) return <p className="wg-quiet">{strings.inspector.thePlanDecidesWhere}</p>;
  return (
    <p className="wg-quiet">
      <Badge kind={shown.resident ? "good" : ""}>{loopMark(shown)}</Badge> <Prose text={loopReason(shown)} />
    </p>
  );
}

/** The boolean ports of the uses inside a loop: what can end it. */
export function flagsIn(graph: GraphDocument, catalogue: Catalogue, loop: Entry): string[] {
  return flat(loop.children)
    .filter((entry) => entry.kind === "use")
    .flatMap((entry) =>
      portsOf(graph, catalogue, entry.node)
        .outputs.filter((port) => modalityOf(port.type) === "flag")
        .map((port) => `${entry.name}.${port.name}`),
    );
}

/** The merges of such ports, of choices inside the loop. */
function mergedFlags(graph: GraphDocument, catalogue: Catalogue, walk: string, loop: Entry): string[] {
  return [...factsOf(graph.walks![walk]!).merges.values()].flatMap(({ name, choice }) => {
    const reference = `@merge.${name}`;
    const type = portType(graph, catalogue, walk, reference, "source");
    return choice && isInside(choice, loop) && type !== null && modalityOf(type) === "flag" ? reference : [];
  });
}

const GROUP_TEXT = {
  parallel: strings.inspector.itsBranchesDontWait,
  sequence: strings.inspector.itsStepsRunOneAfter,
};

export function GroupForm({ walk, entry }: ItemProps) {
  const { attempt, editor, pointer } = useItem({ walk, entry });
  const kind = entry.kind as "parallel" | "sequence";
  const own = useProblems(pointer, true);
  const empty = useProblems(`${pointer}/${kind}`, true);
  const takeApart = () => {
    if (attempt(strings.inspector.unwrap(kind), (graph) => unwrap(graph, walk, entry.id)))
      editor.select(...entry.children.map((child) => child.id));
  };
  return (
    <>
      <p className="wg-quiet">{GROUP_TEXT[kind]}</p>
      <ProblemLines problems={[...own, ...empty]} />
      <WhenField walk={walk} entry={entry} />
      <div className="wg-actions">
        <Button onClick={takeApart}>{strings.inspector.unwrap2}</Button>
      </div>
    </>
  );
}

export function ForkForm({ walk, entry }: ItemProps) {
  const { set, pointer } = useItem({ walk, entry });
  const graph = useEditorState((state) => state.documents.graph);
  const problems = useProblems(pointer);
  const at = (key: string) => problems.filter((problem) => problem.pointer === `${pointer}/${key}`);
  const rest = problems.filter((problem) => problem.pointer === pointer);
  const { fork, into } = entry.item as { fork: string; into: string };
  const states = Object.entries(graph.states ?? {}).map(([name, state]) => ({
    value: name,
    label: `${name} (${state.kind})`,
  }));
  return (
    <>
      <p className="wg-quiet">
        <code>{into}</code> {strings.inspector.becomesACopy} <code>{fork}</code>
        {strings.inspector.positionIncludedPagesAreShared}
      </p>
      <ChoiceField
        label={strings.inspector.copy}
        value={fork}
        options={states}
        onChoose={(state) => set(strings.inspector.setWhatIsCopied, { fork: state })}
        problems={[...rest, ...at("fork")]}
      />
      <ChoiceField
        label={strings.inspector.into}
        value={into}
        options={states.filter((state) => state.value !== fork)}
        onChoose={(state) => set(strings.inspector.setWhereItIsCopied, { into: state })}
        problems={at("into")}
      />
      <WhenField walk={walk} entry={entry} />
    </>
  );
}

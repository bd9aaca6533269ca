// The items of a Walk's body: uses, loops, parallels and sequences, forks.
import { useMemo } from "react";
import type { Catalogue } from "../../../messages/answers";
import { BreakField } from "../../../debug/marks";
import * as items from "../../../document/edits/items";
import { mutedOf, unmute } from "../../../document/edits/mute";
import { unwrap } from "../../../document/edits/wrap";
import { whenOf } from "../../../document/names";
import { portsOf } from "../../../document/ports";
import { join } from "../../../document/pointer";
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

interface ItemProps {
  walk: string;
  entry: Entry;
}

const WHEN_HINT = "Empty: always. For example steps > 10 and not fast";

/** Fields of one item entered into the document. */
function useItem({ walk, entry }: ItemProps) {
  const { apply, attempt, editor } = useApply();
  const set = (label: string, fields: Parameters<typeof items.setItem>[3]) =>
    apply(label, (graph) => items.setItem(graph, walk, entry.id, fields));
  return { apply, attempt, editor, set, pointer: join("walks", walk) + entry.pointer };
}

function WhenField({ walk, entry }: ItemProps) {
  const { set, pointer, attempt } = useItem({ walk, entry });
  const graph = useEditorState((state) => state.documents.graph);
  const scope = useMemo(() => scopeOfWalk(graph, walk, entry.loops), [graph, walk, entry.loops]);
  const problems = useProblems(`${pointer}/when`);
  const muted = useMemo(() => mutedOf(graph, walk).get(entry.id), [graph, walk, entry.id]);
  if (muted)
    return (
      <div className="wg-muted" role="status">
        <span>{muted === "muted" ? "Muted: it does not run." : "Bypassed: values go past it."}</span>
        <Button
          onClick={() =>
            attempt(`Bring ${entry.name || entry.kind} back`, (graph) => unmute(graph, walk, [entry.id]))
          }
        >
          Bring back
        </Button>
      </div>
    );
  return (
    <ExpressionField
      label="Only when"
      value={whenOf(entry.item) ?? ""}
      placeholder="always"
      hint={WHEN_HINT}
      scope={scope}
      problems={problems}
      onEnter={(when) => set(`Set when ${entry.name || entry.kind} runs`, { when: when || null })}
    />
  );
}

export function UseForm({ walk, entry }: ItemProps) {
  const { set, pointer, editor } = useItem({ walk, entry });
  const problems = useProblems(pointer, true);
  const naming = useProblems(`${pointer}/as`);
  const rename = (name: string) => {
    const refused = set(`Rename the use ${entry.name}`, { as: name === entry.node ? null : name });
    if (refused === null) editor.select(`use:${name}`);
    return refused;
  };
  const follow = (to: string) => {
    // A use without a name of its own has its node's.
    if (entry.name === entry.node) editor.select(entry.id.replace(`use:${entry.node}`, `use:${to}`));
  };
  return (
    <>
      <Section title={`In ${walk}`}>
        <NameField
          label="Used as"
          value={entry.name}
          onEnter={rename}
          hint="Edges of this Walk name it so."
          problems={naming}
        />
        <ProblemLines problems={problems} />
        <WhenField walk={walk} entry={entry} />
        <BreakField walk={walk} use={entry.name} />
      </Section>
      <Section title={`Component ${entry.node}`}>
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
  const flags = useMemo(() => flagsIn(graph, catalogue, entry), [graph, catalogue, entry]);
  const scope = useMemo(() => scopeOfWalk(graph, walk, entry.loops), [graph, walk, entry.loops]);
  const own = useProblems(pointer, true);
  const empty = useProblems(`${pointer}/body`, true);
  const naming = useProblems(`${pointer}/loop`);
  const times = useProblems(`${pointer}/times`);
  const until = useProblems(`${pointer}/until`);
  const dropping = useProblems(`${pointer}/drop_last`);
  const rename = (name: string) => {
    const refused = set(`Rename the loop ${entry.name}`, { loop: name });
    if (refused === null) editor.select(`loop:${name}`);
    return refused;
  };
  return (
    <>
      <NameField
        label="Name"
        value={entry.name}
        onEnter={rename}
        hint={
          <>
            Inside, <code>@loop.{entry.name}</code> counts its iterations from 0.
          </>
        }
        problems={naming}
      />
      <ProblemLines problems={[...own, ...empty]} />
      <ExpressionField
        label="Times"
        value={String(loop.times)}
        scope={scope}
        problems={times}
        onEnter={(text) =>
          text ? set("Set how often the loop runs", { times: text }) : "Say how often it runs at most, such as 8."
        }
        hint={loop.until ? "At most so often; its flag may end it sooner." : "A number, or an expression."}
      />
      <ChoiceField
        label="Until"
        value={loop.until ?? ""}
        options={[
          { value: "", label: flags.length ? "all times are over" : "all times are over (no flag inside)" },
          ...flags.map((flag) => ({ value: flag, label: `${flag} is raised` })),
        ]}
        onChoose={(flag) =>
          set("Set what ends the loop", { until: flag || null, ...(flag ? {} : { drop_last: null }) })
        }
        hint="The iteration that raises the flag is the last."
        problems={until}
      />
      <CheckField
        label="Drop the last iteration's values"
        value={loop.drop_last ?? false}
        disabled={!loop.until && !loop.drop_last}
        onChange={(drop) => set("Set whether the last iteration is dropped", { drop_last: drop || null })}
        hint={
          loop.until
            ? "What its own uses would send on in the iteration that raised the flag is held back."
            : "Only with a flag that ends the loop."
        }
        problems={dropping}
      />
      <WhenField walk={walk} entry={entry} />
      <Iterated walk={walk} loop={entry.name} />
    </>
  );
}

function Iterated({ walk, loop }: { walk: string; loop: string }) {
  const shown = useEditorState((state) => loopShown(state, walk, loop));
  if (!shown)
    return <p className="wg-quiet">Where it is iterated is said here once the graph is placed: see Placement.</p>;
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

const GROUP_TEXT = {
  parallel: "Its branches don't wait for each other; what follows waits for all of them.",
  sequence: "Its steps run one after the other, as one branch or under one condition.",
};

export function GroupForm({ walk, entry }: ItemProps) {
  const { attempt, editor, pointer } = useItem({ walk, entry });
  const kind = entry.kind as "parallel" | "sequence";
  const own = useProblems(pointer, true);
  const empty = useProblems(`${pointer}/${kind}`, true);
  const takeApart = () => {
    if (attempt(`Take the ${kind} apart`, (graph) => unwrap(graph, walk, entry.id)))
      editor.select(...entry.children.map((child) => child.id));
  };
  return (
    <>
      <p className="wg-quiet">{GROUP_TEXT[kind]}</p>
      <ProblemLines problems={[...own, ...empty]} />
      <WhenField walk={walk} entry={entry} />
      <div className="wg-actions">
        <Button onClick={takeApart}>Take apart</Button>
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
        <code>{into}</code> becomes a copy of <code>{fork}</code>, position included; pages are shared until one
        writes.
      </p>
      <ChoiceField
        label="Copy"
        value={fork}
        options={states}
        onChoose={(state) => set("Set what is copied", { fork: state })}
        problems={[...rest, ...at("fork")]}
      />
      <ChoiceField
        label="Into"
        value={into}
        options={states.filter((state) => state.value !== fork)}
        onChoose={(state) => set("Set where it is copied", { into: state })}
        problems={at("into")}
      />
      <WhenField walk={walk} entry={entry} />
    </>
  );
}

// A Walk: its label, what it takes, what it sends to the client and keeps for later steps.
import { Trash2 } from "lucide-react";
import { useMemo } from "react";
import * as walks from "../../../document/edits/walks";
import { readResult, type Collect } from "../../../document/names";
import { portsOf } from "../../../document/ports";
import { MODALITIES, parseType } from "../../../document/typing";
import { join } from "../../../document/pointer";
import { endOf, factsOf, mapLeft } from "../../../document/routes";
import type { GraphDocument, Walk } from "../../../document/types";
import { useEditorState } from "../../../store/react";
import { Button, IconButton } from "../../../ui/kit";
import { plural } from "../../../ui/words";
import { Glyph, ProblemLines, Section } from "../../common/bits";
import { tasksOfWalk } from "../../common/scope";
import { useApply, useProblems } from "../../common/apply";
import { AddField, ChoiceField, NameField, TextField } from "../fields/fields";
import { COLLECTS, collectOf, optionOf } from "./EdgeForm";
import { strings } from "../../../strings";

interface WalkProps {
  name: string;
}

export function WalkForm({ name }: WalkProps) {
  const { apply, attempt, editor } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const walk = graph.walks?.[name];
  const own = useProblems(join("walks", name), true);
  const body = useProblems(join("walks", name, "body"), true);
  const tasks = useMemo(() => tasksOfWalk(graph, name), [graph, name]);
  if (!walk) return null;
  const rename = (to: string) => {
    const refused = apply(strings.inspector.renameTheWalk(name), (graph) => walks.renameWalk(graph, name, to));
    if (refused === null) editor.open({ kind: "walk", walk: to, inside: null });
    return refused;
  };
  const duplicate = () => {
    let made = "";
    const copied = attempt(strings.inspector.duplicateTheWalk(name), (graph) => {
      const answer = walks.duplicateWalk(graph, name);
      made = answer.name;
      return answer.graph;
    });
    if (copied) editor.open({ kind: "walk", walk: made, inside: null });
  };
  return (
    <>
      <NameField label={strings.inspector.name} value={name} onEnter={rename} problems={[...own, ...body]} />
      <TextField
        label={strings.inspector.label}
        value={walk.label ?? ""}
        placeholder={strings.inspector.whatItDoesInAFew}
        live
        onEnter={(label) =>
          apply(
            strings.inspector.labelTheWalk(name),
            (graph) => walks.setWalkLabel(graph, name, label),
            `walk/${name}/label`,
          )
        }
      />
      <Section title={strings.inspector.inputs} aside={<Count of={Object.keys(walk.inputs ?? {}).length} />}>
        <Inputs name={name} walk={walk} />
      </Section>
      <Section title={strings.inspector.used4} aside={<small>{plural(tasks.length, "task")}</small>}>
        {tasks.length === 0 && <p className="wg-quiet">{strings.inspector.noTaskCallsThisWalk}</p>}
        <div className="wg-links">
          {tasks.map((task) => (
            <Button key={task} kind="quiet" onClick={() => editor.see({ tab: "tasks", selection: [`task:${task}`] })}>
              {task}
            </Button>
          ))}
        </div>
      </Section>
      <div className="wg-actions">
        <Button onClick={duplicate}>{strings.inspector.duplicate}</Button>
        <Button
          kind="danger"
          onClick={() => attempt(strings.inspector.removeTheWalk(name), (graph) => walks.removeWalk(graph, name))}
        >
          {strings.inspector.remove2}
        </Button>
      </div>
    </>
  );
}

function Count({ of }: { of: number }) {
  return <small>{of}</small>;
}

export function InputsForm({ name }: WalkProps) {
  const walk = useEditorState((state) => state.documents.graph.walks?.[name]);
  if (!walk) return null;
  return (
    <>
      <p className="wg-quiet">{strings.inspector.valuesThatATasksStep}</p>
      <Inputs name={name} walk={walk} />
    </>
  );
}

function Inputs({ name, walk }: WalkProps & { walk: Walk }) {
  const { apply, attempt } = useApply();
  const problems = useProblems(join("walks", name, "inputs"));
  return (
    <>
      {Object.entries(walk.inputs ?? {}).map(([input, type]) => (
        <div key={input} className="wg-record">
          <div className="wg-pair">
            <NameField
              label={strings.inspector.name}
              value={input}
              onEnter={(to) =>
                apply(strings.inspector.rename(input), (graph) => walks.renameInput(graph, name, input, to))
              }
            />
            <TextField
              label={
                <>
                  <Glyph type={type} /> {strings.inspector.type}
                </>
              }
              value={type}
              mono
              onEnter={(text) =>
                parseType(text) === null
                  ? strings.inspector.writeOneOfOrLike(MODALITIES.slice(0, 4).join(", "))
                  : apply(strings.inspector.setTheType(input), (graph) =>
                      walks.setInput(graph, name, input, text.trim()),
                    )
              }
            />
          </div>
          <IconButton
            label={strings.inspector.removeTheInput(input)}
            onClick={() =>
              attempt(strings.inspector.removeTheInput(input), (graph) => walks.removeInput(graph, name, input))
            }
          >
            <Trash2 size={14} />
          </IconButton>
          <ProblemLines
            problems={problems.filter((problem) => problem.pointer === join("walks", name, "inputs", input))}
          />
        </div>
      ))}
      <AddField
        label={strings.inspector.addAnInput}
        placeholder={strings.inspector.addAnInputItsName}
        onAdd={(input) =>
          apply(strings.inspector.addTheInput(input), (graph) => walks.addInput(graph, name, input, guess(input)))
        }
      />
    </>
  );
}

/** An input called `image` is most likely one. */
function guess(name: string): string {
  return MODALITIES.find((modality) => name.startsWith(modality)) ?? "text";
}

export function OutputsForm({ name }: WalkProps) {
  const { apply, attempt } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const catalogue = useEditorState((state) => state.catalogue);
  const problems = useProblems(join("walks", name, "results"));
  const walk = graph.walks?.[name];
  const sources = useMemo(() => (walk ? sourcesOf(graph, walk, catalogue) : []), [graph, walk, catalogue]);
  if (!walk) return null;
  const outputs = [...walks.outputsOf(walk)];
  const set = (result: string, from: string | null, collect: Collect = false) =>
    apply(strings.inspector.setTheResult(result), (graph) => walks.setResult(graph, name, result, from, collect));
  return (
    <>
      <Section title={strings.inspector.toTheClient} aside={<Count of={outputs.length} />}>
        {outputs.length === 0 && <p className="wg-quiet">{strings.inspector.connectAPortToOutput}</p>}
        {outputs.map((output) => (
          <NameField
            key={output}
            label={<code>{strings.inspector.out(output)}</code>}
            value={output}
            onEnter={(to) =>
              apply(strings.inspector.rename(output), (graph) => walks.renameOutput(graph, name, output, to))
            }
          />
        ))}
      </Section>
      <Section
        title={strings.inspector.resultsForLaterSteps}
        aside={<Count of={Object.keys(walk.results ?? {}).length} />}
      >
        {Object.entries(walk.results ?? {}).map(([result, written]) => {
          const { from, collect } = readResult(written);
          const loops = endOf(from, factsOf(walk), "source").place?.loops ?? [];
          const inLoop = loops.length > 0;
          const inMap = mapLeft(factsOf(walk), { left: loops }) !== null;
          return (
            <div key={result} className="wg-record">
              <NameField
                label={`${name}.${result}`}
                value={result}
                onEnter={(to) =>
                  apply(strings.inspector.rename(result), (graph) => walks.renameResult(graph, name, result, to))
                }
              />
              <ChoiceField
                label={strings.inspector.isTheValue}
                value={from}
                options={sources}
                onChoose={(to) => set(result, to, collect)}
                problems={problems.filter((problem) =>
                  problem.pointer.startsWith(join("walks", name, "results", result)),
                )}
              />
              <IconButton
                label={strings.inspector.removeTheResult(result)}
                onClick={() =>
                  attempt(strings.inspector.removeTheResult(result), (graph) =>
                    walks.setResult(graph, name, result, null),
                  )
                }
              >
                <Trash2 size={14} />
              </IconButton>
              {(inLoop || collect) && (
                <ChoiceField
                  label={strings.inspector.ofItsIterations}
                  value={optionOf(collect)}
                  options={[{ value: "last", label: strings.inspector.theLastValue, disabled: inMap }, ...COLLECTS]}
                  onChoose={(option) => set(result, from, collectOf(option))}
                  hint={strings.inspector.howIterationsAreKept}
                />
              )}
            </div>
          );
        })}
        <AddField
          label={strings.inspector.addAResult}
          placeholder={strings.inspector.addAResultItsName}
          onAdd={(result) =>
            sources[0] === undefined ? strings.inspector.putAComponentInto : set(result, sources[0])
          }
        />
      </Section>
    </>
  );
}

function sourcesOf(graph: GraphDocument, walk: Walk, catalogue: Parameters<typeof portsOf>[1]): string[] {
  const { uses, merges } = factsOf(walk);
  const ports = [...uses.values()].flatMap((entry) =>
    portsOf(graph, catalogue, entry.node).outputs.map((port) => `${entry.name}.${port.name}`),
  );
  return [...ports, ...[...merges.keys()].map((name) => `@merge.${name}`)];
}

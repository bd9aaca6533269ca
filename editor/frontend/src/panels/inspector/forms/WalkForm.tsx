// A Walk: its label, what it takes, what it sends to the client and keeps for later steps.
import { Trash2 } from "lucide-react";
import { useMemo } from "react";
import * as walks from "../../../document/edits/walks";
import { readResult } from "../../../document/names";
import { MODALITIES, parseType, portsOf } from "../../../document/ports";
import { join } from "../../../document/pointer";
import { factsOf } from "../../../document/routes";
import type { GraphDocument, Walk } from "../../../document/types";
import { useEditorState } from "../../../store/react";
import { Button, IconButton } from "../../../ui/kit";
import { plural } from "../../../ui/words";
import { Glyph, ProblemLines, Section } from "../../common/bits";
import { tasksOfWalk } from "../../common/scope";
import { useApply, useProblems } from "../../common/apply";
import { AddField, CheckField, ChoiceField, NameField, TextField } from "../fields/fields";

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
    const refused = apply(`Rename the Walk ${name}`, (graph) => walks.renameWalk(graph, name, to));
    if (refused === null) editor.open({ kind: "walk", walk: to, inside: null });
    return refused;
  };
  const duplicate = () => {
    let made = "";
    const copied = attempt(`Duplicate the Walk ${name}`, (graph) => {
      const answer = walks.duplicateWalk(graph, name);
      made = answer.name;
      return answer.graph;
    });
    if (copied) editor.open({ kind: "walk", walk: made, inside: null });
  };
  return (
    <>
      <NameField label="Name" value={name} onEnter={rename} problems={[...own, ...body]} />
      <TextField
        label="Label"
        value={walk.label ?? ""}
        placeholder="What it does, in a few words"
        live
        onEnter={(label) =>
          apply(`Label the Walk ${name}`, (graph) => walks.setWalkLabel(graph, name, label), `walk/${name}/label`)
        }
      />
      <Section title="Inputs" aside={<Count of={Object.keys(walk.inputs ?? {}).length} />}>
        <Inputs name={name} walk={walk} />
      </Section>
      <Section title="Used by" aside={<small>{plural(tasks.length, "task")}</small>}>
        {tasks.length === 0 && <p className="wg-quiet">No task has a step with this Walk: it never runs.</p>}
        <div className="wg-links">
          {tasks.map((task) => (
            <Button key={task} kind="quiet" onClick={() => editor.see({ tab: "tasks", selection: [`task:${task}`] })}>
              {task}
            </Button>
          ))}
        </div>
      </Section>
      <div className="wg-actions">
        <Button onClick={duplicate}>Duplicate</Button>
        <Button
          kind="danger"
          onClick={() => attempt(`Remove the Walk ${name}`, (graph) => walks.removeWalk(graph, name))}
        >
          Remove
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
      <p className="wg-quiet">What a task’s step gives this Walk. Inside, edges read it as @in.name.</p>
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
              label="Name"
              value={input}
              onEnter={(to) => apply(`Rename ${input}`, (graph) => walks.renameInput(graph, name, input, to))}
            />
            <TextField
              label={
                <>
                  <Glyph type={type} /> Type
                </>
              }
              value={type}
              mono
              onEnter={(text) =>
                parseType(text) === null
                  ? `Write one of ${MODALITIES.slice(0, 4).join(", ")}, …, or like latents: float[n, 64].`
                  : apply(`Set the type of ${input}`, (graph) => walks.setInput(graph, name, input, text.trim()))
              }
            />
          </div>
          <IconButton
            label={`Remove the input ${input}`}
            onClick={() => attempt(`Remove the input ${input}`, (graph) => walks.removeInput(graph, name, input))}
          >
            <Trash2 size={14} />
          </IconButton>
          <ProblemLines
            problems={problems.filter((problem) => problem.pointer === join("walks", name, "inputs", input))}
          />
        </div>
      ))}
      <AddField
        label="Add an input"
        placeholder="Add an input: its name"
        onAdd={(input) =>
          apply(`Add the input ${input}`, (graph) => walks.addInput(graph, name, input, guess(input)))
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
  const set = (result: string, from: string | null, collect = false) =>
    apply(`Set the result ${result}`, (graph) => walks.setResult(graph, name, result, from, collect));
  return (
    <>
      <Section title="To the client" aside={<Count of={outputs.length} />}>
        {outputs.length === 0 && <p className="wg-quiet">Connect a port to “+ output” on the canvas.</p>}
        {outputs.map((output) => (
          <NameField
            key={output}
            label={<code>@out.{output}</code>}
            value={output}
            onEnter={(to) => apply(`Rename ${output}`, (graph) => walks.renameOutput(graph, name, output, to))}
          />
        ))}
      </Section>
      <Section title="Results for later steps" aside={<Count of={Object.keys(walk.results ?? {}).length} />}>
        {Object.entries(walk.results ?? {}).map(([result, written]) => {
          const { from, collect } = readResult(written);
          const inLoop = (factsOf(walk).uses.get(from.split(".", 1)[0] ?? "")?.loops.length ?? 0) > 0;
          return (
            <div key={result} className="wg-record">
              <NameField
                label={`${name}.${result}`}
                value={result}
                onEnter={(to) => apply(`Rename ${result}`, (graph) => walks.renameResult(graph, name, result, to))}
              />
              <ChoiceField
                label="is the value of"
                value={from}
                options={sources}
                onChoose={(to) => set(result, to, collect)}
                problems={problems.filter((problem) =>
                  problem.pointer.startsWith(join("walks", name, "results", result)),
                )}
              />
              <IconButton
                label={`Remove the result ${result}`}
                onClick={() =>
                  attempt(`Remove the result ${result}`, (graph) => walks.setResult(graph, name, result, null))
                }
              >
                <Trash2 size={14} />
              </IconButton>
              {(inLoop || collect) && (
                <CheckField
                  label="All iterations, stacked"
                  value={collect}
                  onChange={(on) => set(result, from, on)}
                  hint="Otherwise the last iteration’s value."
                />
              )}
            </div>
          );
        })}
        <AddField
          label="Add a result"
          placeholder="Add a result: its name"
          onAdd={(result) =>
            sources[0] === undefined ? "Put a component into the Walk first." : set(result, sources[0])
          }
        />
      </Section>
    </>
  );
}

function sourcesOf(graph: GraphDocument, walk: Walk, catalogue: Parameters<typeof portsOf>[1]): string[] {
  return [...factsOf(walk).uses.values()].flatMap((entry) =>
    portsOf(graph, catalogue, entry.node).outputs.map((port) => `${entry.name}.${port.name}`),
  );
}

// The simulator: choose the shape of a request, and see the Walks that it would run, before anything is deployed.
import { ArrowLeft, ArrowRight, Plus, RotateCcw, X } from "lucide-react";
import { useState } from "react";
import type { Literal, Task, TaskParam } from "../../document/types";
import { Badge, Button, IconButton } from "../../ui/kit";
import { withSeed } from "../model/bindings";
import { ValueCell } from "../request/Params";
import {
  bounds,
  firstChoice,
  fitting,
  missing,
  startValue,
  whyNotMore,
  whyNotValue,
  type Choice,
} from "../model/simulate";
import { SimulatorResult } from "./SimulatorResult";
import type { Simulation } from "./useSimulation";
import { Modality } from "../cells/widgets";
import { strings } from "../../strings";

interface SimulatorProps {
  name: string;
  task: Task;
  choice: Choice;
  onChoose: (choice: Choice) => void;
  simulation: Simulation;
}

export function Simulator({ name, task, choice: raw, onChoose, simulation }: SimulatorProps) {
  const choice = fitting(raw, task);
  const lacking = missing(task, choice);
  const changed = Object.keys(choice.params).length > 0;
  return (
    <aside className="wg-simulator" aria-label={strings.tasks.simulator}>
      <header>
        <h2>{strings.tasks.simulate}</h2>
        <span className="note">{strings.tasks.whatARequestWouldRun}</span>
        <IconButton label={strings.tasks.resetToTheDefaults} onClick={() => onChoose(firstChoice(task))}>
          <RotateCcw size={14} />
        </IconButton>
      </header>
      <Given task={task} choice={choice} onChoose={onChoose} />
      {lacking.length > 0 && (
        <p className="hint">
          {strings.tasks.aRequestMustAlsoHave} {lacking.map((name) => `“${name}”`).join(", ")}
          {strings.tasks.withoutItThisOne}
        </p>
      )}
      <Values task={task} choice={choice} onChoose={onChoose} open={changed} />
      <SimulatorResult name={name} simulation={simulation} />
    </aside>
  );
}

type Part = Pick<SimulatorProps, "task" | "choice" | "onChoose">;

function Given({ task, choice, onChoose }: Part) {
  const inputs = Object.entries(task.inputs ?? {});
  const set = (given: string[]) => onChoose({ ...choice, given });
  const swap = (index: number, other: number) =>
    set(
      choice.given.map((name, i) => (i === index ? choice.given[other]! : i === other ? choice.given[index]! : name)),
    );
  if (inputs.length === 0) return <p className="hint">{strings.tasks.thisTaskHasNoInputs}</p>;
  return (
    <div className="given">
      <h3>{strings.tasks.theRequestHasInThis}</h3>
      {choice.given.length > 0 && (
        <ol>
          {choice.given.map((name, index) => (
            <li key={index}>
              <Modality type={task.inputs?.[name]?.modality ?? ""} text={name} />
              {index > 0 && (
                <IconButton label={strings.tasks.earlier(name)} onClick={() => swap(index, index - 1)}>
                  <ArrowLeft size={12} />
                </IconButton>
              )}
              {index < choice.given.length - 1 && (
                <IconButton label={strings.tasks.later(name)} onClick={() => swap(index, index + 1)}>
                  <ArrowRight size={12} />
                </IconButton>
              )}
              <IconButton
                label={strings.tasks.removeFromTheRequest(name)}
                onClick={() => set(choice.given.filter((_, i) => i !== index))}
              >
                <X size={12} />
              </IconButton>
            </li>
          ))}
        </ol>
      )}
      <div className="offer">
        {inputs.map(([name, input]) => {
          const refused = whyNotMore(name, input, choice.given);
          return (
            <Button
              key={name}
              disabled={refused !== null}
              title={refused ?? strings.tasks.addToTheRequest(name)}
              onClick={() => set([...choice.given, name])}
            >
              <Plus size={12} aria-hidden /> <Modality type={input.modality} text={name} />
            </Button>
          );
        })}
      </div>
    </div>
  );
}

function Values({ task, choice, onChoose, open }: Part & { open: boolean }) {
  const [shown, setShown] = useState(open);
  const { seed, ...params } = withSeed(task);
  const entries = Object.entries(params);
  if (!seed || entries.length === 0) return null;
  const changed = Object.keys(choice.params).length;
  const set = (name: string, value: Literal | undefined) => {
    const { [name]: _, ...rest } = choice.params;
    onChoose({ ...choice, params: value === undefined ? rest : { ...rest, [name]: value } });
  };
  return (
    <details className="values" open={shown} onToggle={(event) => setShown(event.currentTarget.open)}>
      <summary>
        {strings.tasks.parameters} <span className="note">{entries.length}</span>
        {changed > 0 && <Badge kind="busy">{strings.tasks.changed(changed)}</Badge>}
      </summary>
      <div className="grid">
        {entries.map(([name, param]) => (
          <Value key={name} {...{ name, param }} value={choice.params[name]} onChange={(value) => set(name, value)} />
        ))}
      </div>
    </details>
  );
}

interface ValueProps {
  name: string;
  param: TaskParam;
  value: Literal | undefined;
  onChange: (value: Literal | undefined) => void;
}

function Value({ name, param, value, onChange }: ValueProps) {
  const shown = value ?? startValue(param);
  const fault = whyNotValue(shown, param);
  const set = (next: Literal) => onChange(next === param.default ? undefined : next);
  return (
    <div className={`value ${value === undefined ? "" : "changed"}`}>
      <span className="name" title={param.description}>
        {name}
      </span>
      <ValueCell live label={strings.tasks.inTheSimulation(name)} param={param} value={shown} onChange={set} />
      {value === undefined ? (
        <span />
      ) : (
        <IconButton label={strings.tasks.reset(name)} onClick={() => onChange(undefined)}>
          <RotateCcw size={12} />
        </IconButton>
      )}
      <span className={fault ? "error" : "hint"}>{fault ?? bounds(param)}</span>
    </div>
  );
}

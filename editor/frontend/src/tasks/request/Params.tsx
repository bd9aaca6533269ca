// The parameters of a task: type, default, bounds, choices. The form and the schema of its requests come from these.
import { Plus, X } from "lucide-react";
import type { Problem } from "../../messages/answers";
import type { Literal, Task, TaskParam } from "../../document/types";
import { Button, Check, IconButton, Select } from "../../ui/kit";
import { Table } from "../../ui/Table";
import type { useTaskEdits } from "../model/actions";
import { under } from "./Declarations";
import { readChoices } from "../model/values";
import { startValue, whyNotValue } from "../model/simulate";
import { NumberCell, ProblemLines, TextCell } from "../cells/widgets";
import { strings } from "../../strings";

const TYPES = ["integer", "number", "boolean", "string"] as const;

interface ParamsProps {
  task: Task;
  problems: readonly Problem[];
  edits: ReturnType<typeof useTaskEdits>;
}

export function Params({ task, problems, edits }: ParamsProps) {
  const params = Object.entries(task.params ?? {});
  return (
    <section className="wg-card" aria-label={strings.tasks.parameters}>
      <header>
        <h2>{strings.tasks.parameters}</h2>
        <span className="note">
          <code>{strings.tasks.seed}</code> {strings.tasks.isAlwaysAvailable}
        </span>
        <Button kind="quiet" onClick={edits.addParam}>
          <Plus size={14} aria-hidden /> {strings.tasks.parameter}
        </Button>
      </header>
      {params.length === 0 ? (
        <p className="hint">{strings.tasks.noneYetParametersCanSteer}</p>
      ) : (
        <div className="wg-scroll">
          <Table
            className="wg-declared params"
            columns={[
              strings.tasks.name,
              strings.tasks.type,
              { title: strings.tasks.theClientMustGive, children: strings.tasks.required },
              strings.tasks.default,
              strings.tasks.from2,
              strings.tasks.to2,
              strings.tasks.choices,
              { "aria-label": strings.tasks.actions },
            ]}
          >
            {params.map(([name, param]) => (
              <ParamRow key={name} {...{ name, param, edits }} problems={under(problems, `/params/${name}`)} />
            ))}
          </Table>
        </div>
      )}
    </section>
  );
}

interface ParamRowProps {
  name: string;
  param: TaskParam;
  problems: readonly Problem[];
  edits: ParamsProps["edits"];
}

function ParamRow({ name, param, problems, edits }: ParamRowProps) {
  const set = (fields: Partial<TaskParam>, merge?: string) => edits.setParam(name, fields, merge);
  const required = param.default === undefined || param.default === null;
  const numeric = param.type === "integer" || param.type === "number";
  return (
    <tbody>
      <tr>
        <td>
          <TextCell
            mono
            label={strings.tasks.nameOfTheParameter}
            value={name}
            onCommit={(value) => edits.renameParam(name, value)}
          />
        </td>
        <td>
          <Select
            aria-label={strings.tasks.typeWithName(name)}
            value={param.type}
            options={TYPES}
            onChange={(type) => set(retyped(param, type as TaskParam["type"]))}
          />
        </td>
        <td className="middle">
          <Check
            label={strings.tasks.theClientMustGiveWithName(name)}
            checked={required}
            onChange={(on) => set({ default: on ? undefined : startValue({ ...param, default: null }) })}
          />
        </td>
        <td>
          {required ? (
            <span className="wg-nothing">{strings.tasks.none}</span>
          ) : (
            <ValueCell
              label={strings.tasks.defaultWithName(name)}
              param={param}
              value={param.default ?? ""}
              onChange={(value) => set({ default: value })}
            />
          )}
        </td>
        {(["min", "max"] as const).map((bound) => (
          <td key={bound}>
            {numeric && (
              <NumberCell
                label={`${bound === "min" ? strings.tasks.minimum : strings.tasks.maximum} ${name}`}
                whole={param.type === "integer"}
                value={param[bound]}
                placeholder={strings.tasks.any}
                onCommit={(value) => set({ [bound]: value })}
              />
            )}
          </td>
        ))}
        <td>
          {param.type !== "boolean" && (
            <TextCell
              mono
              label={strings.tasks.choicesOfWithCommasBetween(name)}
              value={(param.choices ?? []).join(", ")}
              placeholder={strings.tasks.any}
              onCommit={(text) => set({ choices: readChoices(text, param.type) })}
            />
          )}
        </td>
        <td className="actions">
          <IconButton label={strings.tasks.removeTheParameter(name)} onClick={() => edits.removeParam(name)}>
            <X size={14} />
          </IconButton>
        </td>
      </tr>
      <tr className="description">
        <td colSpan={7}>
          <TextCell
            live
            grows
            label={strings.tasks.descriptionWithName(name)}
            value={param.description ?? ""}
            placeholder={strings.tasks.whatItDoes}
            onCommit={(text) => set({ description: text || undefined }, `param ${name}`)}
          />
        </td>
        <td />
      </tr>
      {problems.length > 0 && (
        <tr className="faults">
          <td colSpan={8}>
            <ProblemLines problems={problems} />
          </td>
        </tr>
      )}
    </tbody>
  );
}

/** Keeps the fields that fit the new type and removes the others. */
function retyped(param: TaskParam, type: TaskParam["type"]): Partial<TaskParam> {
  const numeric = type === "integer" || type === "number";
  const required = param.default === undefined || param.default === null;
  const bounds = numeric ? {} : { min: undefined, max: undefined };
  const kept = { ...param, type, ...bounds, choices: undefined, default: null };
  return { type, ...bounds, choices: undefined, default: required ? undefined : startValue(kept) };
}

interface ValueCellProps {
  label: string;
  param: TaskParam;
  value: Literal;
  onChange: (value: Literal) => void;
  live?: boolean;
}

/** A value of a parameter, by its type and choices. */
export function ValueCell({ label, param, value, onChange, live }: ValueCellProps) {
  if (param.choices?.length) {
    const shown = param.choices.includes(value) ? param.choices : [value, ...param.choices];
    const options = shown.map((choice) => ({ value: String(choice), label: String(choice) }));
    const pick = (text: string) => onChange(shown.find((choice) => String(choice) === text) ?? text);
    return <Select aria-label={label} value={String(value)} options={options} onChange={pick} />;
  }
  if (param.type === "boolean")
    return (
      <Select
        aria-label={label}
        value={String(value)}
        options={[
          { value: "true", label: strings.tasks.yes },
          { value: "false", label: strings.tasks.no },
        ]}
        onChange={(text) => onChange(text === "true")}
      />
    );
  if (param.type === "string")
    return (
      <TextCell
        label={label}
        value={String(value)}
        placeholder={strings.tasks.empty}
        onCommit={onChange}
        live={live}
      />
    );
  return (
    <NumberCell
      label={label}
      whole={param.type === "integer"}
      live={live}
      wrong={whyNotValue(value, param) !== null}
      value={typeof value === "number" ? value : null}
      onCommit={(number) => number !== undefined && onChange(number)}
    />
  );
}

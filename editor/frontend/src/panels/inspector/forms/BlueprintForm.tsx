// An open blueprint: its name, what it does, and the parameters that nodes of it set.
import { Trash2 } from "lucide-react";
import { renameInside } from "../../../document/edits/blueprints";
import { withKey } from "../../../document/edits/parts/records";
import * as tasks from "../../../document/edits/tasks";
import { join } from "../../../document/pointer";
import type { Literal, TaskParam } from "../../../document/types";
import type { InsideEditor } from "../../../store/inside";
import { useEditorState } from "../../../store/react";
import { IconButton } from "../../../ui/kit";
import { ProblemLines, Section } from "../../common/bits";
import { useApply, useProblems } from "../../common/apply";
import { AddField, ChoiceField, NameField, NumberField, TextField } from "../fields/fields";
import { strings } from "../../../strings";

const words = strings.inspector;
const TYPES = ["integer", "number", "boolean", "string"] as const;

/** The first value of a parameter of each type. */
const FIRST: Readonly<Record<TaskParam["type"], Literal>> = { integer: 1, number: 1, boolean: false, string: "" };

export function BlueprintForm({ inside }: { inside: InsideEditor }) {
  const { apply } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const name = inside.blueprint;
  const own = useProblems(join("walks", name), true);
  const params = Object.entries(graph.tasks?.[name]?.params ?? {});
  return (
    <>
      <NameField label={words.name} value={name} onEnter={(to) => inside.rename(to)} problems={own} />
      <TextField
        label={words.description}
        value={graph.description ?? ""}
        placeholder={words.whatTheBlueprintDoes}
        lines={3}
        live
        onEnter={(text) =>
          apply(words.describeTheBlueprint, (now) => withKey(now, "description", text || undefined), "description")
        }
      />
      <Section title={words.parameters} aside={<small>{params.length}</small>}>
        <p className="wg-quiet">{words.nodesSetThem}</p>
        {params.map(([key, param]) => (
          <ParamRecord key={key} blueprint={name} name={key} param={param} />
        ))}
        <AddField
          label={words.addAParameter}
          placeholder={words.addAParameterItsName}
          onAdd={(key) =>
            apply(words.addTheParameter(key), (now) =>
              tasks.addTaskParam(now, name, key, { type: "integer", default: FIRST.integer }),
            )
          }
        />
      </Section>
    </>
  );
}

interface ParamProps {
  blueprint: string;
  name: string;
  param: TaskParam;
}

function ParamRecord({ blueprint, name, param }: ParamProps) {
  const { apply, attempt } = useApply();
  const problems = useProblems(join("tasks", blueprint, "params", name));
  const set = (fields: Partial<Record<keyof TaskParam, unknown>>, merge?: string) =>
    apply(
      words.changeTheParameter(name),
      (graph) => tasks.setTaskParam(graph, blueprint, name, fields as Partial<TaskParam>),
      merge,
    );
  const retype = (type: string) =>
    set({ type, default: FIRST[type as TaskParam["type"]], min: null, max: null, choices: null });
  const integer = param.type === "integer";
  const bound = (key: "min" | "max", label: string) => (
    <NumberField label={label} value={param[key]} integer={integer} onNumber={(value) => set({ [key]: value })} />
  );
  return (
    <div className="wg-record" role="group" aria-label={words.theParameter(name)}>
      <div className="wg-pair">
        <NameField
          label={words.name}
          value={name}
          onEnter={(to) => apply(words.renameTheParameter(name), (graph) => renameInside(graph, blueprint, name, to))}
        />
        <ChoiceField label={words.type} value={param.type} options={TYPES} onChoose={retype} />
      </div>
      <Default param={param} onValue={(value) => set({ default: value })} />
      {(integer || param.type === "number") && (
        <div className="wg-pair">
          {bound("min", words.least)}
          {bound("max", words.most)}
        </div>
      )}
      <TextField
        label={words.help}
        value={param.description ?? ""}
        placeholder={words.whatItChanges}
        live
        onEnter={(text) => set({ description: text || null }, `param/${name}/description`)}
      />
      <ProblemLines problems={problems} />
      <IconButton
        label={words.removeTheParameter(name)}
        onClick={() =>
          attempt(words.removeTheParameter(name), (graph) => tasks.removeTaskParam(graph, blueprint, name))
        }
      >
        <Trash2 size={14} />
      </IconButton>
    </div>
  );
}

/** Empty: every node has to give it; of a text, the empty one is a default too. */
function Default({ param, onValue }: { param: TaskParam; onValue: (value: Literal | null) => string | null }) {
  const { type, default: value } = param;
  if (type === "boolean")
    return (
      <ChoiceField
        label={words.defaultValue}
        value={value == null ? "" : String(value)}
        options={[
          { value: "", label: words.none },
          { value: "true", label: strings.tasks.yes },
          { value: "false", label: strings.tasks.no },
        ]}
        onChoose={(text) => onValue(text === "" ? null : text === "true")}
      />
    );
  if (type === "string")
    return <TextField label={words.defaultValue} value={String(value ?? "")} onEnter={(text) => onValue(text)} />;
  return (
    <NumberField
      label={words.defaultValue}
      value={typeof value === "number" ? value : null}
      integer={type === "integer"}
      min={param.min ?? null}
      max={param.max ?? null}
      onNumber={onValue}
    />
  );
}

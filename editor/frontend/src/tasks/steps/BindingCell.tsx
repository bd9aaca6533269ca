// The bindings of a Walk's inputs at a step: one line per input, with a choice of sources or free text.
import { X } from "lucide-react";
import { useState } from "react";
import type { Catalogue, Problem } from "../../messages/answers";
import { join } from "../../document/pointer";
import type { GraphDocument, Literal, Task } from "../../document/types";
import { IconButton } from "../../ui/kit";
import { isReference, options, readLiteral, type Option } from "../model/bindings";
import { nameOf, type WalkRow } from "../model/rows";
import { Modality, TextCell } from "../cells/widgets";
import { strings } from "../../strings";

interface BindingCellProps {
  graph: GraphDocument;
  catalogue: Catalogue;
  task: Task;
  row: WalkRow;
  problems: readonly Problem[];
  onBind: (input: string, value: Literal | undefined) => void;
}

export function BindingCell({ graph, catalogue, task, row, problems, onBind }: BindingCellProps) {
  const declared = graph.walks?.[row.step.walk]?.inputs ?? {};
  const bound = row.step.with ?? {};
  const extra = Object.keys(bound).filter((name) => !(name in declared));
  if (Object.keys(declared).length + extra.length === 0)
    return <span className="wg-nothing">{strings.tasks.nothing}</span>;
  const isBad = (name: string) => problems.some((p) => p.pointer === row.pointer + join("with", name));
  return (
    <div className="wg-bindings">
      {Object.entries(declared).map(([name, type]) => (
        <div key={name} className="binding">
          <Modality type={String(type)} text={name} />
          <Binding
            key={`${row.step.walk} ${name}`}
            label={strings.tasks.of(name, nameOf(row))}
            type={String(type)}
            value={bound[name]}
            invalid={isBad(name)}
            found={options(graph, catalogue, task, row, String(type))}
            onBind={(value) => onBind(name, value)}
          />
        </div>
      ))}
      {extra.map((name) => (
        <div key={name} className="binding extra">
          <span className="unknown" title={strings.tasks.theWalkHasNoSuch}>
            {name}
          </span>
          <code>{String(bound[name])}</code>
          <IconButton label={strings.tasks.removeTheBinding(name)} onClick={() => onBind(name, undefined)}>
            <X size={13} />
          </IconButton>
        </div>
      ))}
    </div>
  );
}

const NOTHING = " nothing";
const WRITE = " write";

interface BindingProps {
  label: string;
  type: string;
  value: Literal | undefined;
  invalid: boolean;
  found: readonly Option[];
  onBind: (value: Literal | undefined) => void;
}

function Binding({ label, type, value, invalid, found, onBind }: BindingProps) {
  const [writing, setWriting] = useState(false);
  const known = value === undefined || found.some((option) => option.value === value);
  if (writing || !known)
    return (
      <span className="written">
        <TextCell
          mono={isReference(value)}
          label={strings.tasks.aValueOrTaskXPart(label)}
          value={value === undefined ? "" : String(value)}
          placeholder={strings.tasks.aValue}
          invalid={invalid}
          onCommit={(text) => {
            setWriting(false);
            onBind(text.trim() === "" ? undefined : isReference(text.trim()) ? text.trim() : readLiteral(text, type));
          }}
        />
        <IconButton
          label={strings.tasks.chooseASource(label)}
          onClick={() => {
            setWriting(false);
            onBind(undefined);
          }}
        >
          <X size={13} />
        </IconButton>
      </span>
    );
  const grouped = (
    ["This part", "This turn", "This pass", "The request", "Earlier steps", "The pass before"] as const
  )
    .map((group) => ({ group, entries: found.filter((option) => option.group === group) }))
    .filter(({ entries }) => entries.length > 0);
  return (
    <select
      className="wg-input wg-mono"
      aria-label={label}
      aria-invalid={invalid || undefined}
      value={value === undefined ? NOTHING : String(value)}
      onChange={(event) => {
        const chosen = event.target.value;
        if (chosen === WRITE) setWriting(true);
        else onBind(chosen === NOTHING ? undefined : chosen);
      }}
    >
      <option value={NOTHING}>{strings.tasks.notBound}</option>
      {grouped.map(({ group, entries }) => (
        <optgroup key={group} label={group}>
          {entries.map((option) => (
            <option
              key={option.value}
              value={option.value}
              disabled={option.refused !== null && option.value !== value}
            >
              {option.refused ? `${option.value} (${option.refused})` : option.value}
            </option>
          ))}
        </optgroup>
      ))}
      <option value={WRITE}>{strings.tasks.writeAValue}</option>
    </select>
  );
}

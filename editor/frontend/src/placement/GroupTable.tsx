// The groups of the placement as its author wrote them, with what they have: memory, width, copies.
import { useEffect, useState } from "react";
import type { Problem } from "../messages/answers";
import { Check, Input, Select } from "../ui/kit";
import { Table } from "../ui/Table";
import { ProblemList, RankMark, type Action } from "./board/bits";
import { resizeGroup, setGroup } from "../document/placement/edits";
import { parseMemory } from "./model/memory";
import { ALL } from "../document/placement/resolve";
import type { Group, PlacementDocument } from "../document/placement/schema.generated";
import { dividesWeights, fieldsOf, widthOf, type Width, type WidthField } from "../document/placement/width";
import { strings } from "../strings";

/** Ranks of a replica and replicas that can be given here. */
const MOST = 16;

const DIVIDED = (["tensor_parallel", "sequence_parallel"] as const).map((value) => ({
  value,
  label: strings.placement.divided[value],
}));

interface GroupTableProps {
  placement: PlacementDocument;
  problems: ReadonlyMap<number, Problem[]>;
  actions: (problem: Problem) => Action[];
  onEdit: (label: string, change: (placement: PlacementDocument) => PlacementDocument) => void;
}

export function GroupTable({ placement, problems, actions, onEdit }: GroupTableProps) {
  return (
    <>
      <p className="explain">{strings.placement.aLaterGroupOverrides}</p>
      <Table
        className="wg-table groups"
        columns={[
          strings.placement.components,
          strings.placement.walks,
          strings.placement.ranks,
          strings.placement.memory,
          strings.placement.width,
          strings.placement.replicas,
        ]}
      >
        <tbody>
          {placement.groups.map((group, index) => (
            <GroupRow
              key={index}
              group={group}
              index={index}
              problems={problems.get(index) ?? []}
              actions={actions}
              onEdit={onEdit}
            />
          ))}
        </tbody>
      </Table>
    </>
  );
}

interface GroupRowProps extends Pick<GroupTableProps, "actions" | "onEdit"> {
  group: Group;
  index: number;
  problems: Problem[];
}

function GroupRow({ group, index, problems, actions, onEdit }: GroupRowProps) {
  const name = strings.placement.group(index + 1);
  const width = widthOf(group);
  const wrong = (field: string) => problems.some((problem) => problem.pointer.endsWith(`/${field}`));
  return (
    <>
      <tr className={problems.length > 0 ? "noted" : ""}>
        <td className="names">
          {group.nodes.map((entry) => (entry === ALL ? strings.placement.allOthers : entry)).join(", ")}
        </td>
        <td className="names">
          {group.walks ? group.walks.join(", ") : <span className="about">{strings.placement.all2}</span>}
        </td>
        <td>
          <span className="way">
            {group.ranks.map((rank) => (
              <RankMark key={rank} rank={rank} />
            ))}
          </span>
        </td>
        <td>
          <MemoryField
            name={name}
            memory={group.memory ?? null}
            onChange={(memory) =>
              onEdit(strings.placement.memoryWithName(name), (placement) => setGroup(placement, index, { memory }))
            }
          />
        </td>
        <td>
          <CountField
            label={strings.placement.widthWithName(name)}
            value={width.count}
            most={MOST}
            invalid={wrong(width.field)}
            onChange={(count) =>
              onEdit(strings.placement.widthWithName(name), (placement) =>
                resizeGroup(placement, index, "width", count),
              )
            }
          />
          {width.count > 1 && (
            <DivisionFields
              name={name}
              width={width}
              wrong={wrong}
              onChange={(label, next) =>
                onEdit(label, (placement) => setGroup(placement, index, fieldsOf({ ...width, ...next })))
              }
            />
          )}
        </td>
        <td>
          <CountField
            label={strings.placement.replicasWithName(name)}
            value={group.replicas ?? 1}
            most={MOST}
            invalid={wrong("replicas")}
            onChange={(count) =>
              onEdit(strings.placement.replicasWithName(name), (placement) =>
                resizeGroup(placement, index, "replicas", count),
              )
            }
          />
        </td>
      </tr>
      {problems.length > 0 && (
        <tr>
          <td colSpan={6}>
            <ProblemList problems={problems} actions={actions} />
          </td>
        </tr>
      )}
    </>
  );
}

interface DivisionFieldsProps {
  name: string;
  width: Width;
  wrong: (field: string) => boolean;
  onChange: (label: string, next: Partial<Width>) => void;
}

/** What a group of several ranks divides, and whether they hold whole experts. */
function DivisionFields({ name, width, wrong, onChange }: DivisionFieldsProps) {
  const divided = strings.placement.whatIsDivided(name);
  const whole = strings.placement.wholeExpertsWithName(name);
  const redundant = strings.placement.redundantExpertsWithName(name);
  return (
    <>
      <Select
        aria-label={divided}
        value={width.field}
        options={DIVIDED}
        onChange={(field) => onChange(divided, { field: field as WidthField })}
      />
      {dividesWeights(width) && (
        <Check
          label={whole}
          shown={strings.placement.wholeExperts}
          checked={width.redundant !== null}
          onChange={(checked) => onChange(whole, { redundant: checked ? 0 : null })}
        />
      )}
      {width.redundant !== null && (
        <label className="redundant">
          <CountField
            label={redundant}
            value={width.redundant}
            least={0}
            invalid={wrong("redundant_experts")}
            onChange={(count) => onChange(redundant, { redundant: count })}
          />
          {strings.placement.redundantExperts}
        </label>
      )}
    </>
  );
}

interface MemoryFieldProps {
  name: string;
  memory: number | string | null;
  onChange: (memory: number | string | null) => void;
}

/** Takes what is typed when it is left, or at Enter. */
function MemoryField({ name, memory, onChange }: MemoryFieldProps) {
  const shown = memory === null ? "" : String(memory);
  const [text, setText] = useState(shown);
  useEffect(() => setText(shown), [shown]);
  const read = parseMemory(text);
  const commit = () => {
    if ("memory" in read && read.memory !== memory) onChange(read.memory);
  };
  return (
    <>
      <Input
        aria-label={strings.placement.memoryWithName(name)}
        aria-invalid={"error" in read}
        placeholder={strings.placement.theRest}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onBlur={commit}
        onKeyDown={(event) => {
          if (event.key === "Enter") commit();
          if (event.key === "Escape") setText(shown);
        }}
      />
      {"error" in read && (
        <span className="error" role="alert">
          {read.error}
        </span>
      )}
    </>
  );
}

interface CountFieldProps {
  label: string;
  value: number;
  least?: number;
  most?: number;
  invalid: boolean;
  onChange: (value: number) => void;
}

function CountField({ label, value, least = 1, most, invalid, onChange }: CountFieldProps) {
  return (
    <Input
      type="number"
      min={least}
      max={most}
      aria-label={label}
      aria-invalid={invalid}
      value={value}
      onChange={(event) => {
        const number = event.target.valueAsNumber;
        if (Number.isInteger(number) && number >= least && number <= (most ?? number)) onChange(number);
      }}
    />
  );
}

// The groups of the placement as its author wrote them, with what they have: memory, width, copies.
import { useEffect, useState } from "react";
import type { Problem } from "../messages/answers";
import { Input } from "../ui/kit";
import { Table } from "../ui/Table";
import { ProblemList, RankMark, type Action } from "./board/bits";
import { resizeGroup, setGroup } from "../document/placement/edits";
import { parseMemory } from "./model/memory";
import { ALL } from "../document/placement/resolve";
import type { Group, PlacementDocument } from "../document/placement/schema.generated";

interface GroupTableProps {
  placement: PlacementDocument;
  problems: ReadonlyMap<number, Problem[]>;
  actions: (problem: Problem) => Action[];
  onEdit: (label: string, change: (placement: PlacementDocument) => PlacementDocument) => void;
}

export function GroupTable({ placement, problems, actions, onEdit }: GroupTableProps) {
  return (
    <>
      <p className="explain">
        A later group overrides an earlier one for the same component. Memory is of each rank: a size, a share of what
        the device has free, or nothing for what is left. Tensor-parallel width and copies can be written down, but
        nothing with more than one of them can be deployed.
      </p>
      <Table className="wg-table groups" columns={["Components", "Walks", "Ranks", "Memory", "Width", "Copies"]}>
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
  const name = `group ${index + 1}`;
  const wrong = (field: string) => problems.some((problem) => problem.pointer.endsWith(`/${field}`));
  return (
    <>
      <tr className={problems.length > 0 ? "noted" : ""}>
        <td className="names">{group.nodes.map((entry) => (entry === ALL ? "all others" : entry)).join(", ")}</td>
        <td className="names">{group.walks ? group.walks.join(", ") : <span className="about">all</span>}</td>
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
            onChange={(memory) => onEdit(`Memory of ${name}`, (placement) => setGroup(placement, index, { memory }))}
          />
        </td>
        <td>
          <CountField
            label={`Tensor-parallel width of ${name}`}
            value={group.tensor_parallel ?? 1}
            invalid={wrong("tensor_parallel")}
            onChange={(width) =>
              onEdit(`Width of ${name}`, (placement) => resizeGroup(placement, index, "tensor_parallel", width))
            }
          />
        </td>
        <td>
          <CountField
            label={`Copies of ${name}`}
            value={group.replicas ?? 1}
            invalid={wrong("replicas")}
            onChange={(count) =>
              onEdit(`Copies of ${name}`, (placement) => resizeGroup(placement, index, "replicas", count))
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
        aria-label={`Memory of ${name}`}
        aria-invalid={"error" in read}
        placeholder="what is left"
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
  invalid: boolean;
  onChange: (value: number) => void;
}

function CountField({ label, value, invalid, onChange }: CountFieldProps) {
  return (
    <Input
      type="number"
      min={1}
      max={16}
      aria-label={label}
      aria-invalid={invalid}
      value={value}
      onChange={(event) => {
        const number = Number(event.target.value);
        if (Number.isInteger(number) && number >= 1 && number <= 16) onChange(number);
      }}
    />
  );
}

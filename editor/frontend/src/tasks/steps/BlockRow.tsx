// Heads of the blocks: "For each part", `text ->` inside it, "First that holds".
import { GitBranch, Repeat, X } from "lucide-react";
import type { Problem } from "../../messages/answers";
import { Button, IconButton } from "../../ui/kit";
import type { useTaskEdits } from "../model/actions";
import { Grip, MenuButton } from "./Grip";
import { PART_KINDS, type FirstRow, type ForRow, type PartRow } from "../model/rows";
import { indent, type RowHandle } from "./handle";
import { Modality, ProblemLines } from "../cells/widgets";
import { strings } from "../../strings";

type Edits = ReturnType<typeof useTaskEdits>;

interface BlockRowProps {
  row: ForRow | FirstRow;
  columns: number;
  handle: RowHandle;
  drop: string;
  problems: readonly Problem[];
  edits: Edits;
}

export function BlockRow({ row, columns, handle, drop, problems, edits }: BlockRowProps) {
  const title = row.kind === "for" ? strings.tasks.forEachPart : strings.tasks.firstMatch;
  return (
    <tr data-pointer={row.pointer} className={`block ${drop}`}>
      <td className="grip">
        <Grip row={row} what={title} handle={handle} edits={edits} />
      </td>
      <th colSpan={columns - 2} scope="rowgroup" style={{ paddingLeft: indent(row.depth) }}>
        <div className="block-head">
          {row.kind === "for" ? <Repeat size={14} aria-hidden /> : <GitBranch size={14} aria-hidden />}
          {title}
          <span className="note">
            {row.kind === "for" ? strings.tasks.ofTheRequestInOrder : strings.tasks.oneOfTheseRuns}
          </span>
          {row.kind === "for" && <AddParts row={row} edits={edits} />}
        </div>
        <ProblemLines problems={problems} />
      </th>
      <td className="actions">
        <MenuButton row={row} what={title} handle={handle} />
      </td>
    </tr>
  );
}

function AddParts({ row, edits }: { row: ForRow; edits: Edits }) {
  const free = PART_KINDS.filter((kind) => !Array.isArray(row.step[kind]));
  return (
    <span className="add-parts">
      {free.map((kind) => (
        <Button
          key={kind}
          kind="quiet"
          onClick={() => edits.addPart(row.pointer, kind)}
          title={strings.tasks.addSteps(kind)}
        >
          + <Modality type={kind} />
        </Button>
      ))}
    </span>
  );
}

interface PartHeaderProps {
  row: PartRow;
  columns: number;
  drop: string;
  problems: readonly Problem[];
  edits: Edits;
}

export function PartHeader({ row, columns, drop, problems, edits }: PartHeaderProps) {
  return (
    <tr data-pointer={row.pointer} className={`part ${drop}`}>
      <td className="grip" />
      <th colSpan={columns - 2} scope="rowgroup" style={{ paddingLeft: indent(row.depth) }}>
        <Modality type={row.modality} /> <span aria-hidden>→</span>
        <ProblemLines problems={problems} />
      </th>
      <td className="actions">
        <IconButton
          label={strings.tasks.removeTheSteps(row.modality)}
          onClick={() => edits.removePart(row.list, row.modality)}
        >
          <X size={14} />
        </IconButton>
      </td>
    </tr>
  );
}

// Heads of the blocks: "For each part", `text ->` inside it, "First that holds".
import { GitBranch, MessageCircle, Repeat, X } from "lucide-react";
import type { Problem } from "../../messages/answers";
import { Button, IconButton } from "../../ui/kit";
import type { useTaskEdits } from "../model/actions";
import { Grip, MenuButton } from "./Grip";
import { branchOf, ROLES, type Branch } from "../../document/edits/parts/steps";
import { kindsOf, overTurns, type FirstRow, type ForRow, type PartRow } from "../model/rows";
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
  const turns = row.kind === "for" && overTurns(row.step);
  const each = turns ? strings.tasks.forEachTurn : strings.tasks.forEachPart;
  const title = row.kind === "for" ? each : strings.tasks.firstMatch;
  const within = turns
    ? strings.tasks.ofTheConversationInOrder
    : row.turn === null
      ? strings.tasks.ofTheRequestInOrder
      : strings.tasks.ofTheTurnInOrder;
  return (
    <tr data-pointer={row.pointer} className={`block ${drop}`}>
      <td className="grip">
        <Grip row={row} what={title} handle={handle} edits={edits} />
      </td>
      <th colSpan={columns - 2} scope="rowgroup" style={{ paddingLeft: indent(row.depth) }}>
        <div className="block-head">
          {row.kind === "for" ? <Repeat size={14} aria-hidden /> : <GitBranch size={14} aria-hidden />}
          {title}
          <span className="note">{row.kind === "for" ? within : strings.tasks.oneOfTheseRuns}</span>
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
  const free = kindsOf(row.step).filter((kind) => branchOf(row.step, kind) === undefined);
  return (
    <span className="add-parts">
      {free.map((kind) => (
        <Button
          key={kind}
          kind="quiet"
          onClick={() => edits.addPart(row.pointer, kind)}
          title={strings.tasks.addSteps(kind)}
        >
          + <Kind branch={kind} />
        </Button>
      ))}
    </span>
  );
}

/** A modality with its glyph, or the role of a turn. */
function Kind({ branch }: { branch: Branch }) {
  return (ROLES as readonly string[]).includes(branch) ? (
    <span className="wg-role">
      <MessageCircle size={12} aria-hidden /> {branch}
    </span>
  ) : (
    <Modality type={branch} />
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
        <Kind branch={row.branch} /> <span aria-hidden>→</span>
        <ProblemLines problems={problems} />
      </th>
      <td className="actions">
        <IconButton
          label={strings.tasks.removeTheSteps(row.branch)}
          onClick={() => edits.removePart(row.list, row.branch)}
        >
          <X size={14} />
        </IconButton>
      </td>
    </tr>
  );
}

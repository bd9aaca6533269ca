// Heads of the blocks: "For each part", `text ->` inside it, "First that holds".
import { GitBranch, MessageCircle, Repeat } from "lucide-react";
import { Button } from "../../ui/kit";
import { branchOf, ROLES, type Branch } from "../../document/edits/parts/steps";
import { kindsOf, overTurns, type FirstRow, type ForRow, type PartRow } from "../model/rows";
import { BlockHead, PartHead, type BlockProps, type Edits } from "./Head";
import { Modality } from "../cells/widgets";
import { strings } from "../../strings";

export function BlockRow(props: BlockProps<ForRow | FirstRow>) {
  const { row, edits } = props;
  if (row.kind === "first")
    return (
      <BlockHead {...props} what={strings.tasks.firstMatch} icon={<GitBranch size={14} aria-hidden />}>
        <span className="note">{strings.tasks.oneOfTheseRuns}</span>
      </BlockHead>
    );
  const turns = overTurns(row.step);
  const within = turns
    ? strings.tasks.ofTheConversationInOrder
    : row.turn === null
      ? strings.tasks.ofTheRequestInOrder
      : strings.tasks.ofTheTurnInOrder;
  return (
    <BlockHead
      {...props}
      what={turns ? strings.tasks.forEachTurn : strings.tasks.forEachPart}
      icon={<Repeat size={14} aria-hidden />}
    >
      <span className="note">{within}</span>
      <AddParts row={row} edits={edits} />
    </BlockHead>
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

export function PartHeader(props: Omit<BlockProps<PartRow>, "handle">) {
  const { row, edits } = props;
  const remove = {
    label: strings.tasks.removeTheSteps(row.branch),
    run: () => edits.removePart(row.list, row.branch),
  };
  return (
    <PartHead {...props} className="part" remove={remove}>
      <Kind branch={row.branch} /> <span aria-hidden>→</span>
    </PartHead>
  );
}

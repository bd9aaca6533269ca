// The handle of a row: drag it with the pointer, or move it with the arrow keys.
import { Ellipsis, GripVertical } from "lucide-react";
import type { KeyboardEvent } from "react";
import { IconButton } from "../../ui/kit";
import type { useTaskEdits } from "../model/actions";
import type { Row } from "../model/rows";
import type { RowHandle } from "./handle";
import { strings } from "../../strings";

interface GripProps {
  row: Row;
  what: string;
  handle: RowHandle;
  edits: ReturnType<typeof useTaskEdits>;
}

export function Grip({ row, what, handle, edits }: GripProps) {
  const keys = (event: KeyboardEvent) => {
    const direction = { ArrowUp: -1, ArrowDown: 1 }[event.key] as -1 | 1 | undefined;
    if (direction) handle.move(row, direction);
    else if (event.key === "Delete" || event.key === "Backspace") edits.removeStep(row.pointer);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <button
      type="button"
      className="wg-grip"
      draggable
      aria-label={strings.tasks.moveArrowKeysMove(what)}
      title={strings.tasks.dragOrMove}
      onKeyDown={keys}
      onDragStart={(event) => {
        const line = event.currentTarget.closest("tr");
        if (line) event.dataTransfer.setDragImage(line, 12, 12);
        event.dataTransfer.effectAllowed = "move";
        event.dataTransfer.setData("text/plain", what);
        handle.grab(row);
      }}
      onDragEnd={handle.release}
    >
      <GripVertical size={14} aria-hidden />
    </button>
  );
}

export function MenuButton({ row, what, handle }: Omit<GripProps, "edits">) {
  return (
    <IconButton
      label={strings.tasks.moreActions(what)}
      aria-haspopup="menu"
      onClick={(event) => {
        const box = event.currentTarget.getBoundingClientRect();
        handle.menu(row, { x: box.right - 200, y: box.bottom + 2 });
      }}
    >
      <Ellipsis size={15} />
    </IconButton>
  );
}

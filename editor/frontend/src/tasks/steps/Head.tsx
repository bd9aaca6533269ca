// What the heads of blocks share: grip, title, problems and menu; the heads of what is inside; the list of values.
import { X } from "lucide-react";
import type { ReactNode } from "react";
import type { Problem } from "../../messages/answers";
import type { GraphDocument, Task } from "../../document/types";
import { IconButton } from "../../ui/kit";
import type { useTaskEdits } from "../model/actions";
import type { Row } from "../model/rows";
import { Grip, MenuButton } from "./Grip";
import { indent, type RowHandle } from "./handle";
import { ProblemLines } from "../cells/widgets";

export type Edits = ReturnType<typeof useTaskEdits>;

interface LineProps<R extends Row> {
  row: R;
  columns: number;
  drop: string;
  problems: readonly Problem[];
}

/** Props of a block that can be moved. */
export interface BlockProps<R extends Row> extends LineProps<R> {
  handle: RowHandle;
  edits: Edits;
}

/** Props of a block that names values of the task. */
export interface ValuesProps<R extends Row> extends BlockProps<R> {
  graph: GraphDocument;
  task: Task;
}

interface BlockHeadProps extends BlockProps<Row> {
  what: string;
  icon: ReactNode;
  /** Under the title. */
  below?: ReactNode;
  className?: string;
  /** Beside the title. */
  children: ReactNode;
}

export function BlockHead(props: BlockHeadProps) {
  const { row, what, icon, columns, handle, drop, problems, edits, below, className = "", children } = props;
  return (
    <tr data-pointer={row.pointer} className={`block ${drop}`}>
      <td className="grip">
        <Grip row={row} what={what} handle={handle} edits={edits} />
      </td>
      <th colSpan={columns - 2} scope="rowgroup" style={{ paddingLeft: indent(row.depth) }}>
        <div className={`block-head ${className}`}>
          {icon}
          {what}
          {children}
        </div>
        {below}
        <ProblemLines problems={problems} />
      </th>
      <td className="actions">
        <MenuButton row={row} what={what} handle={handle} />
      </td>
    </tr>
  );
}

interface PartHeadProps extends LineProps<Row> {
  className: string;
  remove: { label: string; run: () => void };
  children: ReactNode;
}

/** The head of the steps for one kind of part, or of one case. */
export function PartHead({ row, columns, drop, problems, className, remove, children }: PartHeadProps) {
  return (
    <tr data-pointer={row.pointer} className={`${className} ${drop}`}>
      <td className="grip" />
      <th colSpan={columns - 2} scope="rowgroup" style={{ paddingLeft: indent(row.depth) }}>
        {children}
        <ProblemLines problems={problems} />
      </th>
      <td className="actions">
        <IconButton label={remove.label} onClick={remove.run}>
          <X size={14} />
        </IconButton>
      </td>
    </tr>
  );
}

interface ValueSelectProps {
  label: string;
  value: string;
  /** The words where there is no value. */
  empty: string;
  /** By title; without a title they stand by themselves. */
  groups: readonly (readonly [title: string, values: readonly string[]])[];
  invalid?: boolean;
  className?: string;
  onChange: (value: string) => void;
}

/** A value of the task; one that isn't among the known ones stays. */
export function ValueSelect({ label, value, empty, groups, invalid, className = "", onChange }: ValueSelectProps) {
  const known = value === "" || groups.some(([, values]) => values.includes(value));
  return (
    <select
      className={`wg-input wg-mono ${className}`}
      aria-label={label}
      aria-invalid={invalid || undefined}
      value={value}
      onChange={(event) => onChange(event.target.value)}
    >
      <option value="">{empty}</option>
      {!known && <option value={value}>{value}</option>}
      {groups.map(([title, values]) => {
        const options = values.map((each) => (
          <option key={each} value={each}>
            {each}
          </option>
        ));
        if (title === "" || options.length === 0) return options;
        return (
          <optgroup key={title} label={title}>
            {options}
          </optgroup>
        );
      })}
    </select>
  );
}

// A table under its headings.
import type { ReactNode, TableHTMLAttributes, ThHTMLAttributes } from "react";

/** A heading: its words, or a cell with a title, a class, or a name for screen readers alone; null: no such column. */
export type Column = string | ThHTMLAttributes<HTMLTableCellElement> | null;

interface TableProps extends TableHTMLAttributes<HTMLTableElement> {
  columns: readonly Column[];
  caption?: ReactNode;
  /** The body, or several. */
  children: ReactNode;
}

export function Table({ columns, caption, children, className = "wg-table", ...rest }: TableProps) {
  return (
    <table className={className} {...rest}>
      {caption && <caption>{caption}</caption>}
      <thead>
        <tr>
          {columns.map((column, index) => {
            if (column === null) return null;
            return <th key={index} scope="col" {...(typeof column === "string" ? { children: column } : column)} />;
          })}
        </tr>
      </thead>
      {children}
    </table>
  );
}

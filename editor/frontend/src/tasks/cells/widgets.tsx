// Cells of the tables: fields that take what was typed when it is done, or while it is typed.
import { TriangleAlert } from "lucide-react";
import { useEffect, useState, type ChangeEvent, type KeyboardEvent } from "react";
import type { Problem } from "../../messages/answers";
import { isModified } from "../../ui/keys";
import { Prose } from "../../ui/kit";
import { color, glyph, modalityOf } from "../../ui/modality";
import { strings } from "../../strings";

interface TextCellProps {
  label: string;
  value: string;
  onCommit: (value: string) => void;
  placeholder?: string;
  mono?: boolean;
  /** Commit at every key, not only at Enter and when leaving. */
  live?: boolean;
  invalid?: boolean;
  /** As many lines as the text needs; it is one line of text all the same. */
  grows?: boolean;
}

export function TextCell({ label, value, onCommit, placeholder, mono, live, invalid, grows }: TextCellProps) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  const commit = () => {
    if (typed !== value) onCommit(typed);
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === "Enter") {
      if (!isModified(event)) event.preventDefault();
      commit();
    }
    if (event.key === "Escape") setTyped(value);
    if (event.key !== "Tab" && !isModified(event)) event.stopPropagation();
  };
  const field = {
    className: `wg-input ${mono ? "wg-mono" : ""} ${grows ? "wg-tasks-grow" : ""}`,
    "aria-label": label,
    "aria-invalid": invalid || undefined,
    value: typed,
    placeholder,
    spellCheck: false,
    autoComplete: "off",
    onChange: (event: ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) => {
      const text = event.target.value.replace(/\n/g, " ");
      setTyped(text);
      if (live) onCommit(text);
    },
    onBlur: commit,
    onKeyDown: keys,
  };
  return grows ? (
    <textarea rows={1} {...field} />
  ) : (
    <input {...field} title={typed.length > 24 ? typed : undefined} />
  );
}

/** A number, or nothing where `optional`; what is no number stays on the screen and is not taken. */
export function NumberCell({
  label,
  value,
  onCommit,
  placeholder,
  whole,
  live,
  wrong: refused,
}: {
  label: string;
  value: number | null | undefined;
  onCommit: (value: number | undefined) => void;
  placeholder?: string;
  whole?: boolean;
  live?: boolean;
  /** Marked as wrong for a reason of its owner. */
  wrong?: boolean;
}) {
  const shown = value === null || value === undefined ? "" : String(value);
  const [typed, setTyped] = useState(shown);
  useEffect(() => setTyped((now) => (now.trim() !== "" && Number(now) === Number(shown) ? now : shown)), [shown]);
  const isWrong = (text: string) => {
    const number = Number(text);
    return text.trim() !== "" && (!Number.isFinite(number) || (whole === true && !Number.isInteger(number)));
  };
  const wrong = isWrong(typed);
  const commit = (text = typed) => {
    if (!isWrong(text) && text !== shown) onCommit(text.trim() === "" ? undefined : Number(text));
  };
  return (
    <input
      className="wg-input wg-mono"
      inputMode={whole ? "numeric" : "decimal"}
      aria-label={label}
      aria-invalid={wrong || refused || undefined}
      title={wrong ? strings.tasks.isNeeded(whole ? strings.tasks.aWholeNumber : strings.tasks.aNumber) : undefined}
      value={typed}
      placeholder={placeholder}
      onChange={(event) => {
        setTyped(event.target.value);
        if (live && event.target.value.trim() !== "") commit(event.target.value);
      }}
      onBlur={() => commit()}
      onKeyDown={(event) => {
        if (event.key === "Enter") commit();
        if (event.key === "Escape") setTyped(shown);
        if (event.key !== "Tab" && !isModified(event)) event.stopPropagation();
      }}
    />
  );
}

/** A modality's glyph and name in its colour. */
export function Modality({ type, text }: { type: string; text?: string }) {
  return (
    <span className="wg-modality" title={type}>
      <b style={{ color: color(type) }} aria-hidden>
        {glyph(type)}
      </b>
      {text ?? modalityOf(type)}
    </span>
  );
}

export function ProblemLines({ problems }: { problems: readonly Problem[] }) {
  if (problems.length === 0) return null;
  return (
    <ul className="wg-problem-lines">
      {problems.map((problem) => (
        <li key={`${problem.code} ${problem.pointer}`} className={problem.severity}>
          <TriangleAlert size={13} aria-hidden />
          <span>
            <span className="visually-hidden">{problem.severity}: </span>
            <Prose text={problem.message} />
          </span>
        </li>
      ))}
    </ul>
  );
}

// The inspector's fields: each holds one value of the document and enters it as one undoable step.
import { RotateCcw, SquareFunction } from "lucide-react";
import {
  useId,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
  type ChangeEvent,
  type KeyboardEvent,
  type ReactNode,
  type SyntheticEvent,
} from "react";
import type { Problem } from "../../../messages/answers";
import { isName } from "../../../document/names";
import { isModified } from "../../../ui/keys";
import { Field, IconButton, Select } from "../../../ui/kit";
import { ProblemLines } from "../../common/bits";
import { completed, completions, wordBefore } from "../../../document/expressions";
import { valueOf, type ScopeName } from "../../common/scope";
import { useDraft, type Enter } from "./draft";
import { strings } from "../../../strings";

const NONE: readonly Problem[] = [];

interface TextProps {
  label: ReactNode;
  value: string;
  onEnter: Enter;
  hint?: ReactNode;
  aside?: ReactNode;
  placeholder?: string;
  /** Enter at every keystroke: free text that can't be wrong. */
  live?: boolean;
  lines?: number;
  mono?: boolean;
  numeric?: boolean;
  problems?: readonly Problem[];
  /** Names that the text may use, offered while it is edited. */
  scope?: readonly ScopeName[];
  /** A sign before the text, as `=` before an expression. */
  sign?: string;
  autoFocus?: boolean;
}

export function TextField(props: TextProps) {
  const { label, value, onEnter, hint, aside, placeholder, live, lines = 1, problems = NONE, scope, sign } = props;
  const draft = useDraft(value, onEnter, live);
  const input = useRef<HTMLInputElement & HTMLTextAreaElement>(null);
  const wrong = problems.some((problem) => problem.severity === "error");
  const onKeyDown = (event: KeyboardEvent) => {
    const at = input.current?.selectionStart ?? draft.text.length;
    const word = scope ? wordBefore(draft.text, at) : "";
    const [first] = scope && word !== "" ? completions(draft.text, at, scope) : [];
    if (event.key === "Tab" && !event.shiftKey && first && first.name !== word) {
      event.preventDefault();
      insert(first.name);
    } else if (event.key === "Enter" && isModified(event)) {
      if (draft.settle()) return;
    } else if (event.key === "Enter" && lines === 1) draft.settle();
    else if (event.key === "Escape") draft.discard();
    else return;
    event.stopPropagation();
  };
  const [caret, setCaret] = useState(value.length);
  const placed = useRef<number | null>(null);
  const fitting = useMemo(() => (scope ? completions(draft.text, caret, scope) : []), [scope, draft.text, caret]);
  const insert = (name: string) => {
    const { selectionStart: from, selectionEnd: to } = input.current!;
    const at = from ?? draft.text.length;
    const made = completed(draft.text, at, to ?? at, name);
    draft.type(made.text);
    setCaret(made.at);
    placed.current = made.at;
  };
  // At once, before the next key: the text is React's, which leaves the caret at its end.
  useLayoutEffect(() => {
    if (placed.current === null) return;
    input.current?.setSelectionRange(placed.current, placed.current);
    placed.current = null;
  });
  const type = ({ target }: ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) => {
    draft.type(target.value);
    setCaret(target.selectionStart ?? target.value.length);
  };
  const shared = {
    ref: input,
    className: `wg-input${props.mono ? " mono" : ""}`,
    value: draft.text,
    placeholder,
    onBlur: () => void draft.settle(),
    onKeyDown,
    onSelect: (event: SyntheticEvent<HTMLInputElement | HTMLTextAreaElement>) =>
      setCaret(event.currentTarget.selectionStart ?? draft.text.length),
    spellCheck: !props.mono && !props.numeric,
    autoFocus: props.autoFocus,
  };
  return (
    <div className="wg-entry">
      <Field label={label} hint={hint} aside={aside} error={draft.error}>
        {(field) => (
          <div className={sign ? "signed" : ""}>
            {sign && <span aria-hidden="true">{sign}</span>}
            {lines > 1 ? (
              <textarea
                {...field}
                {...shared}
                rows={lines}
                aria-invalid={field["aria-invalid"] || wrong}
                onChange={type}
              />
            ) : (
              <input
                {...field}
                {...shared}
                inputMode={props.numeric ? "decimal" : undefined}
                aria-invalid={field["aria-invalid"] || wrong}
                onChange={type}
              />
            )}
          </div>
        )}
      </Field>
      {scope && <Value text={draft.text} scope={scope} />}
      {fitting.length > 0 && <Scope names={fitting} onPick={insert} />}
      <ProblemLines problems={problems} />
    </div>
  );
}

/** The value of the expression where a request leaves the parameters at their defaults, in the first iteration. */
function Value({ text, scope }: { text: string; scope: readonly ScopeName[] }) {
  const value = text.trim() === "" ? null : valueOf(text, scope);
  if (value === null || String(value) === text.trim()) return null;
  const shown = typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value);
  return (
    <div className="expression-value" title={strings.inspector.forTheDefaults}>
      = <b>{shown}</b> <span>{strings.inspector.withTheDefaults}</span>
    </div>
  );
}

/** The names in scope that fit what is typed, and what they mean: shown while the field next to it has the focus. */
function Scope({ names, onPick }: { names: readonly ScopeName[]; onPick: (name: string) => void }) {
  return (
    <div className="scope" aria-label={strings.inspector.namesThatFitHere} role="group">
      <ScopeHelp />
      {names.map(({ name, about }) => (
        <button
          key={name}
          type="button"
          tabIndex={-1}
          title={about}
          onPointerDown={(event) => event.preventDefault()}
          onClick={() => onPick(name)}
        >
          {name}
        </button>
      ))}
    </div>
  );
}

/** The functions and operators, in a window that stays open beside the field. */
function ScopeHelp() {
  return (
    <a
      className="help"
      href={EXPRESSIONS_PAGE}
      target="_blank"
      rel="noopener"
      tabIndex={-1}
      onPointerDown={(event) => event.preventDefault()}
    >
      {strings.inspector.whatTheseMean}
    </a>
  );
}

/** The studio's page about expressions. */
const EXPRESSIONS_PAGE = "/studio/expressions";

/** An expression that may be absent: cleared, it goes away. */
export function ExpressionField({ onEnter, ...rest }: Omit<TextProps, "mono" | "lines" | "live">) {
  return <TextField {...rest} mono onEnter={(text) => onEnter(text.trim())} />;
}

export function NameField({ onEnter, ...rest }: Omit<TextProps, "mono" | "lines" | "live">) {
  const enter: Enter = (text) => {
    const name = text.trim();
    return isName(name) ? onEnter(name) : strings.inspector.aNameBegins;
  };
  return <TextField {...rest} onEnter={enter} />;
}

interface NumberProps extends Omit<TextProps, "value" | "onEnter" | "mono" | "lines" | "live" | "numeric"> {
  value: number | null | undefined;
  integer?: boolean;
  min?: number | null;
  max?: number | null;
  /** null: the field was cleared. */
  onNumber: (value: number | null) => string | null;
}

export function NumberField({ value, integer = false, min = null, max = null, onNumber, ...rest }: NumberProps) {
  const enter: Enter = (text) => {
    if (text.trim() === "") return onNumber(null);
    return whyNotNumber(text, { integer, min, max }) ?? onNumber(Number(text));
  };
  return <TextField {...rest} numeric value={value == null ? "" : String(value)} onEnter={enter} />;
}

/** The fault of a typed number, or null. */
export function whyNotNumber(
  text: string,
  { integer, min, max }: { integer: boolean; min: number | null; max: number | null },
): string | null {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) return strings.inspector.isNotANumber(text.trim());
  if (integer && !Number.isInteger(value)) return strings.inspector.itMustBeAWholeNumber;
  if (min !== null && value < min) return strings.inspector.itMustBeAtLeast(min);
  if (max !== null && value > max) return strings.inspector.itMustBeAtMost(max);
  return null;
}

interface ChoiceProps {
  label: ReactNode;
  value: string;
  options: readonly (string | { value: string; label: string; disabled?: boolean })[];
  onChoose: (value: string) => void;
  hint?: ReactNode;
  aside?: ReactNode;
  problems?: readonly Problem[];
}

export function ChoiceField({ label, value, options, onChoose, hint, aside, problems = NONE }: ChoiceProps) {
  const known = options.some((option) => (typeof option === "string" ? option : option.value) === value);
  const all = known ? options : [{ value, label: value ? strings.inspector.unknown(value) : "—" }, ...options];
  return (
    <div className="wg-entry">
      <Field label={label} hint={hint} aside={aside}>
        {(field) => (
          <Select
            {...field}
            aria-invalid={problems.some((problem) => problem.severity === "error")}
            value={value}
            onChange={onChoose}
            options={all}
          />
        )}
      </Field>
      <ProblemLines problems={problems} />
    </div>
  );
}

interface CheckProps {
  label: ReactNode;
  value: boolean;
  onChange: (value: boolean) => void;
  hint?: ReactNode;
  disabled?: boolean;
  problems?: readonly Problem[];
}

export function CheckField({ label, value, onChange, hint, disabled, problems = NONE }: CheckProps) {
  const id = useId();
  return (
    <div className="wg-entry check">
      <label className={disabled ? "disabled" : ""}>
        <input
          type="checkbox"
          checked={value}
          disabled={disabled}
          aria-describedby={hint ? id : undefined}
          onChange={(event) => onChange(event.target.checked)}
        />
        {label}
      </label>
      {hint && (
        <div id={id} className="hint">
          {hint}
        </div>
      )}
      <ProblemLines problems={problems} />
    </div>
  );
}

export function ResetButton({ name, onReset }: { name: string; onReset: () => void }) {
  return (
    <IconButton label={strings.inspector.resetToItsDefault(name)} onClick={onReset}>
      <RotateCcw size={12} />
    </IconButton>
  );
}

export function ExpressionToggle({ name, on, onToggle }: { name: string; on: boolean; onToggle: () => void }) {
  return (
    <IconButton
      label={on ? strings.inspector.giveAFixedValue(name) : strings.inspector.computeFromTheTasksParameters(name)}
      aria-pressed={on}
      onClick={onToggle}
    >
      <SquareFunction size={13} />
    </IconButton>
  );
}

/** A text that, entered, adds something and is empty again. */
export function AddField({
  label,
  placeholder,
  onAdd,
}: {
  label: string;
  placeholder: string;
  onAdd: (text: string) => string | null;
}) {
  const [round, setRound] = useState(0);
  return (
    <TextField
      key={round}
      label={<span className="visually-hidden">{label}</span>}
      value=""
      placeholder={placeholder}
      onEnter={(text) => {
        if (text.trim() === "") return null;
        if (!isName(text.trim())) return strings.inspector.aNameBegins2;
        const refused = onAdd(text.trim());
        if (refused === null) setRound(round + 1);
        return refused;
      }}
    />
  );
}

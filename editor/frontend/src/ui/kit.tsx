// The few widgets that all panels share. Native elements, so that keyboard and screen readers work as everywhere.
import { X } from "lucide-react";
import {
  useEffect,
  useId,
  useRef,
  type ButtonHTMLAttributes,
  type InputHTMLAttributes,
  type KeyboardEvent,
  type ReactNode,
} from "react";
import { shown } from "./keys";
import { strings } from "../strings";

type ButtonProps = ButtonHTMLAttributes<HTMLButtonElement> & { kind?: "plain" | "primary" | "danger" | "quiet" };

export function Button({ kind = "plain", className = "", ...rest }: ButtonProps) {
  return <button type="button" className={`wg-button ${kind} ${className}`} {...rest} />;
}

/** A button whose face is an icon; `label` is its name and its tooltip. */
export function IconButton({ label, children, ...rest }: Omit<ButtonProps, "title"> & { label: string }) {
  return (
    <Button kind="quiet" aria-label={label} title={label} {...rest} className={`icon ${rest.className ?? ""}`}>
      {children}
    </Button>
  );
}

interface FieldProps {
  label: ReactNode;
  hint?: ReactNode;
  error?: string | null;
  /** Shown at the label's right: a unit, a reset button. */
  aside?: ReactNode;
  children: (props: { id: string; "aria-describedby": string; "aria-invalid": boolean }) => ReactNode;
}

export function Field({ label, hint, error, aside, children }: FieldProps) {
  const id = useId();
  const about = `${id}-about`;
  return (
    <div className="wg-field">
      <div className="label">
        <label htmlFor={id}>{label}</label>
        {aside}
      </div>
      {children({ id, "aria-describedby": about, "aria-invalid": Boolean(error) })}
      <div id={about} className={error ? "error" : "hint"} role={error ? "alert" : undefined}>
        {error ?? hint}
      </div>
    </div>
  );
}

export function Input(props: InputHTMLAttributes<HTMLInputElement>) {
  return <input {...props} className={`wg-input ${props.className ?? ""}`} />;
}

interface SelectProps {
  value: string;
  onChange: (value: string) => void;
  options: readonly (string | { value: string; label: string; disabled?: boolean })[];
  id?: string;
  "aria-label"?: string;
  "aria-describedby"?: string;
  "aria-invalid"?: boolean;
  disabled?: boolean;
}

export function Select({ options, onChange, ...rest }: SelectProps) {
  return (
    <select className="wg-input" {...rest} onChange={(event) => onChange(event.target.value)}>
      {options.map((option) => {
        const { value, label, disabled } =
          typeof option === "string" ? { value: option, label: option, disabled: false } : option;
        return (
          <option key={value} value={value} disabled={disabled}>
            {label}
          </option>
        );
      })}
    </select>
  );
}

export function Check({
  label,
  checked,
  onChange,
  shown,
}: {
  label: string;
  checked: boolean;
  onChange: (checked: boolean) => void;
  /** Words beside the box, which the label says too; without them it is a tooltip. */
  shown?: string;
}) {
  return (
    <label className="wg-check" title={shown ? undefined : label}>
      <input
        type="checkbox"
        checked={checked}
        aria-label={label}
        onChange={(event) => onChange(event.target.checked)}
      />
      {shown}
    </label>
  );
}

interface TabsProps<T extends string> {
  label: string;
  value: T;
  onChange: (value: T) => void;
  tabs: readonly { value: T; label: ReactNode; title?: string }[];
}

/** Tabs that the arrow keys move between. */
export function Tabs<T extends string>({ label, value, onChange, tabs }: TabsProps<T>) {
  const move = (event: KeyboardEvent<HTMLDivElement>) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const index = tabs.findIndex((tab) => tab.value === value);
    const next = tabs[(index + step + tabs.length) % tabs.length];
    if (!next) return;
    event.preventDefault();
    onChange(next.value);
    event.currentTarget.querySelectorAll<HTMLElement>("[role=tab]")[tabs.indexOf(next)]?.focus();
  };
  return (
    <div className="wg-tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          key={tab.value}
          type="button"
          role="tab"
          aria-selected={tab.value === value}
          tabIndex={tab.value === value ? 0 : -1}
          title={tab.title}
          onClick={() => onChange(tab.value)}
        >
          {tab.label}
        </button>
      ))}
    </div>
  );
}

export interface MenuEntry {
  label: string;
  run: () => void;
  /** `Mod+D`. */
  keys?: string;
  disabled?: boolean;
  /** A line above it. */
  apart?: boolean;
}

/** A menu at a place of the window; closes at Escape, at a press elsewhere, and after a choice. */
export function Menu({
  at,
  entries,
  onClose,
}: {
  at: { x: number; y: number };
  entries: MenuEntry[];
  onClose: () => void;
}) {
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => {
    root.current?.querySelector<HTMLElement>("[role=menuitem]:not(:disabled)")?.focus();
    const away = (event: PointerEvent) => {
      if (root.current && !event.composedPath().includes(root.current)) onClose();
    };
    window.addEventListener("pointerdown", away, true);
    return () => window.removeEventListener("pointerdown", away, true);
  }, [onClose]);
  const move = (event: KeyboardEvent) => {
    const items = [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]:not(:disabled)") ?? [])];
    const active = items.indexOf((root.current?.getRootNode() as Document | ShadowRoot).activeElement as HTMLElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") onClose();
    if (step) items[(active + step + items.length) % items.length]?.focus();
    event.stopPropagation();
  };
  const place = {
    left: Math.min(at.x, window.innerWidth - 240),
    top: Math.max(8, Math.min(at.y, window.innerHeight - 40 - entries.length * 28)),
  };
  return (
    <div ref={root} className="wg-menu" role="menu" style={place} onKeyDown={move}>
      {entries.map((entry) => (
        <div key={entry.label}>
          {entry.apart && <hr />}
          <button
            type="button"
            role="menuitem"
            disabled={entry.disabled}
            onClick={() => {
              onClose();
              entry.run();
            }}
          >
            {entry.label}
            {entry.keys && <kbd>{shown(entry.keys)}</kbd>}
          </button>
        </div>
      ))}
    </div>
  );
}

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
  footer?: ReactNode;
}

/** A modal dialog; Escape closes it. Mount it to open it. */
export function Dialog({ title, onClose, children, footer }: DialogProps) {
  const root = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    root.current?.showModal();
    // A dialog that asks for something begins there, not at its cross.
    root.current?.querySelector<HTMLElement>(".body :is(input, textarea, select):not(:disabled)")?.focus();
  }, []);
  return (
    <dialog
      ref={root}
      className="wg-dialog"
      aria-label={title}
      onClose={onClose}
      onKeyDown={(event) => event.stopPropagation()}
    >
      <header>
        <h2>{title}</h2>
        <IconButton label={strings.ui.close} onClick={onClose}>
          <X size={16} />
        </IconButton>
      </header>
      <div className="body">{children}</div>
      {footer && <footer>{footer}</footer>}
    </dialog>
  );
}

export function Badge({ kind = "", children, title }: { kind?: string; children: ReactNode; title?: string }) {
  return (
    <span className={`wg-badge ${kind}`} title={title}>
      {children}
    </span>
  );
}

/** A sentence; what stands in backticks is a name. */
export function Prose({ text }: { text: string }) {
  return text.split(/`([^`]+)`/).map((piece, index) => (index % 2 ? <code key={index}>{piece}</code> : piece));
}

/** The content of an empty panel: what it would show, and how to get it. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="wg-empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

import { isModified } from "../../ui/keys";
import { useRef } from "react";

interface Props {
  label: string;
  value: string;
  /** false: it was refused, and the earlier text comes back. */
  onChange: (value: string) => boolean;
  className?: string;
  placeholder?: string;
}

/** A text that is edited where it stands: Enter or leaving keeps it, Escape doesn't. */
export function InPlace({ label, value, onChange, className = "", placeholder }: Props) {
  const dropped = useRef(false);
  return (
    <input
      key={value}
      className={`nodrag wg-in-place ${className}`}
      aria-label={label}
      title={value ? `${label}: ${value}` : label}
      defaultValue={value}
      placeholder={placeholder}
      size={Math.min(Math.max((value || placeholder || "").length, 3), 34)}
      spellCheck={false}
      onBlur={(event) => {
        const text = event.target.value.trim();
        if (dropped.current || text === value) event.target.value = value;
        else if (!onChange(text)) event.target.value = value;
        dropped.current = false;
      }}
      onKeyDown={(event) => {
        if (!isModified(event)) event.stopPropagation();
        dropped.current = event.key === "Escape";
        if (event.key === "Enter" || event.key === "Escape") event.currentTarget.blur();
      }}
    />
  );
}

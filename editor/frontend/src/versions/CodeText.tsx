// Coloured text with line numbers, to be read or to be edited.
import { memo, useEffect, useRef, type KeyboardEvent } from "react";
import { highlight } from "./highlight";

interface CodeTextProps {
  text: string;
  language: "json" | "python";
  label: string;
}

export function CodeText({ text, language, label }: CodeTextProps) {
  return (
    <div className="wg-source" role="region" aria-label={label} tabIndex={0}>
      <Coloured text={text} language={language} fault={null} />
    </div>
  );
}

interface CodeEditorProps {
  text: string;
  label: string;
  /** A line that is wrong, from 1. */
  fault: number | null;
  onChange: (text: string) => void;
  onApply: () => void;
  onCancel: () => void;
}

/** Ctrl+Enter applies, Escape gives up. */
export function CodeEditor({ text, label, fault, onChange, onApply, onCancel }: CodeEditorProps) {
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => area.current?.focus({ preventScroll: true }), []);
  useEffect(() => {
    if (fault === null) return;
    const frame = area.current?.closest<HTMLElement>(".wg-source");
    const line = frame?.querySelector<HTMLElement>(`[data-line="${fault}"]`);
    // Not `scrollIntoView`: it would move the line numbers out of sight too.
    if (frame && line) frame.scrollTop = line.offsetTop - frame.clientHeight / 2;
  }, [fault]);
  const keys = (event: KeyboardEvent) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) onApply();
    else if (event.key === "Escape") onCancel();
    event.stopPropagation();
  };
  return (
    <div className="wg-source editing">
      <Coloured text={text} language="json" fault={fault} />
      <textarea
        ref={area}
        aria-label={label}
        aria-invalid={fault !== null || undefined}
        value={text}
        wrap="off"
        spellCheck={false}
        autoComplete="off"
        autoCapitalize="off"
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={keys}
      />
    </div>
  );
}

interface ColouredProps {
  text: string;
  language: "json" | "python";
  fault: number | null;
}

const Coloured = memo(function Coloured({ text, language, fault }: ColouredProps) {
  const lines = highlight(text, language);
  const shown = lines.at(-1)?.length === 0 && lines.length > 1 ? lines.slice(0, -1) : lines;
  return (
    <pre>
      {shown.map((tokens, index) => (
        <span key={index} className={`line ${fault === index + 1 ? "fault" : ""}`} data-line={index + 1}>
          {tokens.map((token, at) =>
            token.kind === "plain" ? (
              token.text
            ) : (
              <span key={at} className={token.kind}>
                {token.text}
              </span>
            ),
          )}
          {"\n"}
        </span>
      ))}
    </pre>
  );
});

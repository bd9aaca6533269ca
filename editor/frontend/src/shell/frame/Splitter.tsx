// The line between two panes: drag it, or move it with the arrow keys.
import { useRef, type KeyboardEvent, type PointerEvent } from "react";

interface SplitterProps {
  label: string;
  /** Width or height of the pane that it sizes, in pixels. */
  size: number;
  min: number;
  max: number;
  /** On which side of the line that pane is. */
  side: "left" | "right" | "bottom";
  onResize: (size: number) => void;
}

const STEP = 16;

export function Splitter({ label, size, min, max, side, onResize }: SplitterProps) {
  const start = useRef<{ at: number; size: number } | null>(null);
  const across = side !== "bottom";
  const sign = side === "left" ? 1 : -1;
  const set = (wanted: number) => onResize(Math.round(Math.min(max, Math.max(min, wanted))));
  const at = (event: PointerEvent) => (across ? event.clientX : event.clientY);
  const onKeyDown = (event: KeyboardEvent) => {
    const steps: Record<string, number> = across
      ? { ArrowRight: STEP, ArrowLeft: -STEP }
      : { ArrowDown: STEP, ArrowUp: -STEP };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    set(size + sign * step);
  };
  return (
    <div
      className={`wg-splitter ${across ? "across" : "along"}`}
      role="separator"
      aria-label={label}
      aria-orientation={across ? "vertical" : "horizontal"}
      aria-valuenow={size}
      aria-valuemin={min}
      aria-valuemax={max}
      tabIndex={0}
      onKeyDown={onKeyDown}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        start.current = { at: at(event), size };
      }}
      onPointerMove={(event) => {
        if (start.current) set(start.current.size + sign * (at(event) - start.current.at));
      }}
      onPointerUp={() => (start.current = null)}
      onPointerCancel={() => (start.current = null)}
    />
  );
}

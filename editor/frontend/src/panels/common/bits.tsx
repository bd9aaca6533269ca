// Small pieces that several panels show: a port's glyph, a port's row, a problem's mark, a section that folds.
import { ChevronRight, CircleAlert, TriangleAlert } from "lucide-react";
import { useState, type ReactNode } from "react";
import type { Component, Port, Problem } from "../../messages/answers";
import { costText, stateKindText } from "../../catalogue/catalogue";
import { Button, Prose } from "../../ui/kit";
import { color, glyph, modalityOf } from "../../ui/modality";
import { plural } from "../../ui/words";
import { strings } from "../../strings";

export function Glyph({ type }: { type: string }) {
  return (
    <span className="wg-glyph" style={{ color: color(type) }} aria-hidden="true">
      {glyph(type)}
    </span>
  );
}

export function PortRow({ port, side }: { port: Port; side: "in" | "out" }) {
  const [, shape = ""] = port.type.split(/:\s*/, 2);
  return (
    <li className={`wg-port-row ${side}`}>
      <Glyph type={port.type} />
      <span className="name">{port.name}</span>
      <code title={port.type}>
        {modalityOf(port.type) === port.name ? "" : `${modalityOf(port.type)} `}
        {shape}
      </code>
      {port.optional && <span className="may">{strings.panels.optional}</span>}
      {port.description && (
        <span className="about">
          <Prose text={port.description} />
        </span>
      )}
    </li>
  );
}

export function Ports({ component }: { component: Component }) {
  return (
    <>
      {(["inputs", "outputs"] as const).map(
        (side) =>
          component[side].length > 0 && (
            <div key={side}>
              <h4>{side === "inputs" ? strings.panels.takes : strings.panels.gives}</h4>
              <ul className="wg-ports">
                {component[side].map((port) => (
                  <PortRow key={port.name} port={port} side={side === "inputs" ? "in" : "out"} />
                ))}
              </ul>
            </div>
          ),
      )}
    </>
  );
}

/** Its costs and needs, as short facts. */
export function facts(component: Component): string[] {
  if (component.task || component.outside || component.served) return [strings.panels.runByTheService];
  return [
    costText(component.cost),
    component.host ? strings.panels.runsOnTheCpu : "",
    component.weights ? strings.panels.weights(component.families.join(" or ")) : strings.panels.noWeights,
    ...component.states.map((state) => `${state.slot}: ${stateKindText(state.kind)}`),
  ].filter(Boolean);
}

export const UNAVAILABLE = strings.panels.noNetworkYetCan;

export function ProblemMark({ problems }: { problems: readonly Problem[] }) {
  if (problems.length === 0) return null;
  const errors = problems.filter((problem) => problem.severity === "error").length;
  const label = errors ? plural(errors, "error") : plural(problems.length, "warning");
  return (
    <span
      className={`wg-mark ${errors ? "bad" : "warn"}`}
      role="img"
      aria-label={label}
      title={problems.map((problem) => problem.message).join("\n")}
    >
      {errors ? <CircleAlert size={13} /> : <TriangleAlert size={13} />}
    </span>
  );
}

export function ProblemLines({ problems }: { problems: readonly Problem[] }) {
  return problems.map((problem) => (
    <p
      key={`${problem.pointer} ${problem.code} ${problem.message}`}
      className={`wg-problem-line ${problem.severity}`}
    >
      {problem.severity === "error" ? <CircleAlert size={13} /> : <TriangleAlert size={13} />}
      <span>
        <span className="visually-hidden">{problem.severity}: </span>
        <Prose text={problem.message} />
      </span>
    </p>
  ));
}

interface SectionProps {
  title: ReactNode;
  aside?: ReactNode;
  /** Open at first. */
  open?: boolean;
  children: ReactNode;
}

export function Section({ title, aside, open: first = true, children }: SectionProps) {
  const [open, setOpen] = useState(first);
  return (
    <section className="wg-section">
      <header>
        <h3>
          <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
            <ChevronRight size={14} className={open ? "open" : ""} />
            {title}
          </button>
        </h3>
        {aside}
      </header>
      {open && <div className="inside">{children}</div>}
    </section>
  );
}

/** The button that removes the subject of a form. */
export function Removal({ onRemove, children }: { onRemove: () => void; children: ReactNode }) {
  return (
    <div className="wg-actions">
      <Button kind="danger" onClick={onRemove}>
        {children}
      </Button>
    </div>
  );
}

// The card of a component, next to its row of the palette.
import type { Component } from "../../messages/answers";
import { ComponentIcon } from "../../catalogue/ComponentIcon";
import { Prose } from "../../ui/kit";
import { facts, Ports, UNAVAILABLE } from "../common/bits";
import { Examples } from "../common/Examples";
import { strings } from "../../strings";

export function ComponentCard({ component, beside }: { component: Component; beside: DOMRect }) {
  const width = 300;
  const right = beside.right + 8 + width <= window.innerWidth;
  const top = Math.max(8, Math.min(beside.top - 8, window.innerHeight - 428));
  const place = { left: right ? beside.right + 8 : Math.max(8, beside.left - width - 8), top, width };
  return (
    <div className="wg-palette-card" style={place} role="tooltip" id="wg-palette-card">
      <h2>
        <ComponentIcon component={component} />
        {component.name}
      </h2>
      <p>
        <Prose text={component.description} />
      </p>
      {!component.available && <p className="unavailable">{UNAVAILABLE}</p>}
      <Ports component={component} />
      {Object.keys(component.params).length > 0 && (
        <div>
          <h4>{strings.panels.parameters}</h4>
          <ul className="wg-inline params">
            {Object.entries(component.params).map(([name, param]) => (
              <li key={name}>
                <code>{name}</code>{" "}
                {param.default === null ? <em>{strings.panels.required}</em> : `= ${String(param.default)}`}
              </li>
            ))}
          </ul>
        </div>
      )}
      <Examples component={component} most={1} />
      <p className="facts">{facts(component).join(" · ")}</p>
    </div>
  );
}

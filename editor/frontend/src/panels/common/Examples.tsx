// Examples of a component: what it makes of some values.
import { shaped } from "../../document/shaping";
import type { Component, ComponentExample, Port } from "../../messages/answers";
import { Prose } from "../../ui/kit";
import { strings } from "../../strings";

export function Examples({ component, most }: { component: Component; most?: number }) {
  const shown = (component.examples ?? []).slice(0, most);
  return (
    <>
      {shown.map((example, index) => (
        <div key={index} className="wg-example">
          <h4>{strings.panels.example}</h4>
          {example.note !== "" && (
            <p>
              <Prose text={example.note} />
            </p>
          )}
          <dl>
            {rowsOf(component, example).map(({ side, name, value }) => (
              <div key={`${side} ${name}`} className={side}>
                <dt>{side === "out" ? `› ${name}` : name}</dt>
                <dd title={value}>{value}</dd>
              </div>
            ))}
          </dl>
        </div>
      ))}
    </>
  );
}

/** The values of an example as text: parameters, what it takes, what it gives. */
export function rowsOf(component: Component, example: ComponentExample) {
  const rows = (side: "param" | "in" | "out", values: Record<string, unknown>, ports: readonly Port[]) =>
    Object.entries(values).map(([name, value]) => {
      const type = ports.find((port) => port.name === name)?.type;
      return { side, name, value: valueText(type, value) };
    });
  const { inputs, outputs } = shaped(component, example.params);
  return [
    ...rows("param", example.params, []),
    ...rows("in", example.inputs, inputs),
    ...rows("out", example.outputs, outputs),
  ];
}

/** A value as JSON; a text at a port of another type describes the value. */
function valueText(type: string | undefined, value: unknown): string {
  const described = typeof value === "string" && type !== undefined && !/^text\b/.test(type);
  return described ? value : JSON.stringify(value);
}

// The tile of a component: its picture in the colour of its category.
import type { Component } from "../messages/answers";
import { groupOf } from "./catalogue";
import { iconOf, toneOf } from "./icons";

export function ComponentIcon({ component, size = 15 }: { component: Component | undefined; size?: number }) {
  const Icon = iconOf(component);
  const tone = { "--tone": toneOf(component ? groupOf(component) : "") } as React.CSSProperties;
  return (
    <span className="wg-tile" style={tone} aria-hidden="true">
      <Icon size={size} strokeWidth={1.8} />
    </span>
  );
}

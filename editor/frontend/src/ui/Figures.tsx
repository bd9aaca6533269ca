// Figures beside each other, each under its name.

/** A name, its figure in words, and what it is of. */
export type Figure = readonly [name: string, value: string, about?: string];

export function Figures({ figures, label }: { figures: readonly Figure[]; label?: string }) {
  return (
    <dl className="wg-figures" aria-label={label}>
      {figures.map(([name, value, about]) => (
        <div key={name} title={about}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

// How a stream's chunks lie over its items, drawn: one row a chunk.
import type { ChunkPolicy } from "../../../document/types";
import { chunksOf, policyText, whyNotPolicy, type Chunk } from "./chunks";
import { strings } from "../../../strings";

const ROWS = 6;
const STEP = 15;

/** Items to draw: enough for a few chunks to show the rhythm. */
function itemsToShow(policy: ChunkPolicy): number {
  switch (policy.policy) {
    case "fixed":
      return Math.min(60, (policy.first ?? policy.size) + 3 * policy.size);
    case "sliding":
      return Math.min(60, (policy.first ?? policy.window) + 4 * policy.stride);
    case "left_context":
      return Math.min(60, (policy.first ?? policy.chunk) + 3 * policy.chunk);
    case "whole":
      return 8;
  }
}

export function ChunkPicture({ policy }: { policy: ChunkPolicy }) {
  if (whyNotPolicy(policy) !== null) return null;
  const items = itemsToShow(policy);
  const all = chunksOf(policy, items, ROWS);
  const absent = all.findIndex((chunk) => chunk.absent);
  const chunks = absent < 0 ? all : all.slice(0, absent + 1);
  const width = 260;
  const unit = width / (items + 1);
  const height = (chunks.length + 1) * STEP + 4;
  return (
    <figure className="wg-chunks">
      <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label={policyText(policy)}>
        {Array.from({ length: items }, (_, item) => (
          <rect
            key={item}
            className="item"
            x={item * unit + unit * 0.12}
            y={1}
            width={unit * 0.76}
            height={STEP - 6}
            rx={Math.min(2, unit / 4)}
          />
        ))}
        {chunks.map((chunk, row) => (
          <Bar key={row} chunk={chunk} y={(row + 1) * STEP + 1} unit={unit} />
        ))}
      </svg>
      <figcaption>
        <span className="new" /> {strings.inspector.newItems}
        {chunks.some((chunk) => chunk.context > 0) && (
          <>
            <span className="context" /> {strings.inspector.deliveredBefore}
          </>
        )}
      </figcaption>
    </figure>
  );
}

function Bar({ chunk, y, unit }: { chunk: Chunk; y: number; unit: number }) {
  const bar = (from: number, to: number, kind: string) => (
    <rect
      className={kind}
      x={from * unit}
      y={y}
      width={Math.max((to - from) * unit - 1, 1)}
      height={STEP - 5}
      rx={2}
    />
  );
  const fresh = chunk.start + chunk.context;
  if (chunk.absent)
    return (
      <text x={chunk.start * unit} y={y + 9} className="absent" textAnchor="end">
        {strings.inspector.thenNothingNew}
      </text>
    );
  return (
    <g>
      {chunk.context > 0 && bar(chunk.start, fresh, "context")}
      {chunk.stop > fresh && bar(fresh, chunk.stop, "new")}
      {chunk.last && chunk.stop === fresh && (
        <text x={chunk.start * unit - 3} y={y + 9} className="absent" textAnchor="end">
          {strings.inspector.atTheEndNothingNew}
        </text>
      )}
    </g>
  );
}

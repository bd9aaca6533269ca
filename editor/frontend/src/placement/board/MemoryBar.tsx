// A rank's memory: a bar of what fills it, and a legend with sizes.
import { TriangleAlert } from "lucide-react";
import type { CSSProperties } from "react";
import { showBytes } from "../../ui/words";
import { type LaneMemory, type Part } from "../model/memory";
import { strings } from "../../strings";

const share = (bytes: number, scale: number): CSSProperties => ({ width: `${(100 * bytes) / scale}%` });

export function MemoryBar({ memory, rank }: { memory: LaneMemory; rank: number }) {
  const { parts, scale, device, limit, end } = memory;
  const over = Math.max(memory.over, memory.deviceOver);
  const name = strings.placement.memoryOfRank(rank, showBytes(memory.total), showBytes(memory.capacity));
  return (
    <div className={`wg-rank-memory ${over > 0 ? "over" : ""}`}>
      <div className="figures">
        <b>{showBytes(memory.total)}</b>
        <span className="of">
          {strings.placement.of(showBytes(memory.capacity))}
          {device && device.total > memory.capacity && (
            <> {strings.placement.hasFree(device.name, showBytes(device.free))}</>
          )}
        </span>
      </div>
      <div className="bar" role="img" aria-label={name}>
        {memory.elsewhere > 0 && (
          <i
            className="elsewhere"
            style={share(memory.elsewhere, scale)}
            title={strings.placement.takenByOtherDeployments(showBytes(memory.elsewhere))}
          />
        )}
        {memory.neighbours > 0 && (
          <i
            className="neighbours"
            style={share(memory.neighbours, scale)}
            title={strings.placement.forTheOtherRanks(showBytes(memory.neighbours))}
          />
        )}
        {parts.map((part) => (
          <i key={part.key} className={part.kind} style={share(part.bytes, scale)} title={titleOf(part)} />
        ))}
        {end > limit && (
          <s style={{ left: `${(100 * limit) / scale}%`, width: `${(100 * (end - limit)) / scale}%` }} />
        )}
        {limit < scale && (
          <u style={{ left: `${(100 * limit) / scale}%` }} title={strings.placement.theMemoryThatTheRank} />
        )}
      </div>
      {over > 0 && (
        <p className="excess" role="alert">
          <TriangleAlert size={13} aria-hidden />
          {memory.over > 0
            ? strings.placement.needsMoreThanItHas(showBytes(memory.over))
            : strings.placement.moreThanHasFree(
                showBytes(memory.deviceOver),
                device?.name ?? strings.placement.theDevice,
              )}
        </p>
      )}
      <dl className="legend">
        {parts.map((part) => (
          <div key={part.key} title={titleOf(part)}>
            <dt>
              <i className={part.kind} aria-hidden />
              {part.label}
            </dt>
            <dd>{showBytes(part.bytes)}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

function titleOf(part: Part): string {
  return `${part.label}: ${showBytes(part.bytes)}${part.about ? `; ${part.about}` : ""}`;
}

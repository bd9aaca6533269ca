// One rank: its device, what fills its memory, and the components that run there.
import { Cpu, MemoryStick, Trash2 } from "lucide-react";
import type { CSSProperties } from "react";
import { IconButton, Select } from "../../ui/kit";
import { showBytes } from "../../ui/words";
import { ProblemList, RankMark } from "./bits";
import { NEW_RANK, useBoard } from "./board";
import { ChipView } from "./ChipView";
import type { Chip, Lane } from "../model/lanes";
import { devicesOf, laneMemory } from "../model/memory";
import { MemoryBar } from "./MemoryBar";
import { rankColor } from "../model/ranks";
import type { Drag, DragSource } from "./useDrag";
import { ANY } from "../../document/placement/hosts";
import { strings } from "../../strings";

interface LaneProps {
  lane: Lane;
  drag: Drag | null;
  source: DragSource;
  onDevice: (rank: number, device: string) => void;
  onHost: (rank: number, host: string) => void;
  onRemove: (rank: number) => void;
}

export function LaneView({ lane, drag, source, onDevice, onHost, onRemove }: LaneProps) {
  const board = useBoard();
  const { rank, device } = lane;
  const shown = board.plan?.ranks.find((entry) => entry.rank === rank);
  const problems = board.problems.lane.get(rank) ?? [];
  const target = drag?.targets.includes(rank) ? "target" : "";
  const style = { "--rank": rankColor(rank) } as CSSProperties;
  return (
    <section
      className={`lane ${target}`}
      data-lane={rank}
      style={style}
      aria-label={strings.placement.rank2(rank, device)}
    >
      <header>
        <RankMark rank={rank} />
        <DeviceSelect lane={lane} onDevice={onDevice} />
        {!board.fixed && (
          <IconButton
            label={strings.placement.removeRankItsComponentsGo(rank)}
            disabled={board.placement.ranks.length < 2}
            onClick={() => onRemove(rank)}
          >
            <Trash2 size={14} />
          </IconButton>
        )}
      </header>
      {!board.fixed && <HostSelect lane={lane} onHost={onHost} />}
      {shown && board.plan ? (
        <MemoryBar memory={laneMemory(board.plan, shown)} rank={rank} />
      ) : (
        <p className="no-memory">
          <MemoryStick size={13} aria-hidden /> {strings.placement.memoryIsShownOnceEvery}
        </p>
      )}
      {lane.serving !== null && (
        <p className="serving">
          {strings.placement.repeatsWhatServes} <RankMark rank={lane.serving} />
        </p>
      )}
      <ProblemList problems={problems} actions={board.actions} />
      <Chips chips={lane.chips} label={strings.placement.componentsOnRank(rank)} drag={drag} source={source} />
      {lane.isDefault && !board.fixed && <p className="default-note">{strings.placement.newComponentsComeHere}</p>}
    </section>
  );
}

/** Components that no rank runs. */
export function UnplacedLane({ chips, drag, source }: { chips: Chip[]; drag: Drag | null; source: DragSource }) {
  const board = useBoard();
  const ranks = board.lanes.lanes.map((lane) => lane.rank);
  return (
    <section className="lane unplaced" aria-label={strings.placement.notPlaced2}>
      <header>
        <h2>{strings.placement.notPlaced2}</h2>
      </header>
      <p className="no-memory">{strings.placement.noRankRunsTheseDrag}</p>
      <div className="actions">
        {ranks.slice(0, 6).map((rank) => (
          <button key={rank} type="button" className="wg-button" onClick={() => board.move(chips, rank)}>
            {strings.placement.allTo} <RankMark rank={rank} />
          </button>
        ))}
      </div>
      <Chips chips={chips} label={strings.placement.componentsWithoutARank} drag={drag} source={source} />
    </section>
  );
}

/** Where one more rank is added, and where chips can be dropped for a rank of their own. */
export function NewLane({ drag, onAdd }: { drag: Drag | null; onAdd: () => void }) {
  return (
    <button
      type="button"
      className={`lane new ${drag?.targets.includes(NEW_RANK) ? "target" : ""}`}
      data-lane={NEW_RANK}
      onClick={onAdd}
    >
      {drag?.widens
        ? strings.placement.dropHereForOneMoreRank
        : drag
          ? strings.placement.dropHereForARank
          : strings.placement.addARank2}
    </button>
  );
}

function Chips({
  chips,
  label,
  drag,
  source,
}: {
  chips: Chip[];
  label: string;
  drag: Drag | null;
  source: DragSource;
}) {
  const { selected, fixed } = useBoard();
  const entry = chips.find((chip) => selected.has(chip.key)) ?? chips[0];
  if (chips.length === 0) return <p className="nothing">{strings.placement.noComponentRunsHereDrag}</p>;
  return (
    <div className={`chips ${fixed ? "fixed" : ""}`} role="listbox" aria-label={label} aria-multiselectable="true">
      {chips.map((chip) => (
        <ChipView
          key={chip.key}
          chip={chip}
          among={chips}
          entry={chip === entry}
          source={source}
          dragged={drag?.chips.some((other) => other.key === chip.key) ?? false}
        />
      ))}
    </div>
  );
}

/** Another host for a rank, or any, where there are several. */
function HostSelect({ lane, onHost }: { lane: Lane; onHost: LaneProps["onHost"] }) {
  const { hosts } = useBoard();
  const known = hosts.includes(lane.host);
  const named = known ? hosts : [lane.host, ...hosts];
  if (named.length < 2 && !lane.unpinned) return null;
  const options = named.map((value) => ({ value, label: strings.placement.onHost(value) }));
  const any = lane.unpinned ? strings.placement.onAnyHostNow(lane.host) : strings.placement.onAnyHost;
  return (
    <Select
      aria-label={strings.placement.hostOfRank(lane.rank)}
      aria-invalid={!known}
      value={lane.unpinned ? ANY : lane.host}
      onChange={(host) => onHost(lane.rank, host)}
      options={[...options, { value: ANY, label: any }]}
    />
  );
}

function DeviceSelect({ lane, onDevice }: { lane: Lane; onDevice: LaneProps["onDevice"] }) {
  const { plan, fixed } = useBoard();
  const devices = plan ? devicesOf(plan, lane.host) : [];
  const known = devices.some((device) => device.name === lane.device);
  const label = (name: string) => {
    const device = devices.find((entry) => entry.name === name);
    if (!device) return strings.placement.notPresent(name || "none");
    const title = device.hypothetical ? "" : device.title;
    const numa = device.numa == null ? "" : strings.placement.numaNode(device.numa);
    return [name, showBytes(device.total), title, numa].filter(Boolean).join(" · ");
  };
  if (fixed)
    return (
      <span className="device">
        <Cpu size={13} aria-hidden /> {label(lane.device)}
      </span>
    );
  const options = [...(known ? [] : [lane.device]), ...devices.map((device) => device.name)];
  return (
    <Select
      aria-label={strings.placement.deviceOfRank(lane.rank)}
      aria-invalid={!known && devices.length > 0}
      value={lane.device}
      onChange={(device) => onDevice(lane.rank, device)}
      options={options.map((value) => ({ value, label: label(value) }))}
    />
  );
}

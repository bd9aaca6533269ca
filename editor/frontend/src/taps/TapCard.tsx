// The card of a tap: its newest sample or the held one, its rate, and its actions.
import { Filter, Move, Pause, Pin, Play, Trash2, X } from "lucide-react";
import { memo, useState, type KeyboardEvent, type PointerEvent } from "react";
import { useEditor } from "../store/react";
import { useSamples, type Seen, type TapShown } from "../store/watch";
import { IconButton, Select } from "../ui/kit";
import { useFocus } from "../telemetry/activity";
import { lookAtRun, lookEvery, removeTap } from "./actions";
import { closeCard } from "./cards";
import { whereWords } from "./looks";
import { INSIDE, INTERVALS } from "./places";
import { SampleView } from "./SampleView";
import { strings } from "../strings";

interface Props {
  deployment: string;
  tap: TapShown;
  pinned: boolean;
  onPin: () => void;
  /** By so many pixels of the screen. */
  onMove: (dx: number, dy: number) => void;
}

const STEP = 16;
const ARROWS: Record<string, [number, number]> = {
  ArrowLeft: [-STEP, 0],
  ArrowRight: [STEP, 0],
  ArrowUp: [0, -STEP],
  ArrowDown: [0, STEP],
};

export const TapCard = memo(function TapCard({ deployment, tap, pinned, onPin, onMove }: Props) {
  const [held, hold] = useState<Seen | null>(null);
  const samples = useSamples(deployment, tap.id);
  const seen = held ?? samples[0] ?? null;
  return (
    <section className="wg-tap-card nowheel" aria-label={strings.taps.tapOf(tapName(tap), tap.walk)}>
      <Head tap={tap} pinned={pinned} onPin={onPin} onMove={onMove} />
      <div className="body">
        {tap.inside && <p className="note">{INSIDE}</p>}
        <Newest seen={seen} />
      </div>
      <footer>
        <Often tap={tap} />
        <OneRun tap={tap} seen={seen} />
        <IconButton
          label={held ? strings.taps.showNewValues : strings.taps.holdThisValue}
          aria-pressed={held !== null}
          disabled={!seen}
          onClick={() => hold(held ? null : seen)}
        >
          {held ? <Play size={13} /> : <Pause size={13} />}
        </IconButton>
      </footer>
    </section>
  );
});

function Head({ tap, pinned, onPin, onMove }: Omit<Props, "deployment">) {
  const editor = useEditor();
  const move = (event: PointerEvent<HTMLElement>) => {
    if (event.currentTarget.hasPointerCapture(event.pointerId)) onMove(event.movementX, event.movementY);
  };
  const key = (event: KeyboardEvent) => {
    const by = ARROWS[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    onMove(...by);
  };
  return (
    <header
      onPointerDown={(event) => {
        if (!(event.target as Element).closest("button")) event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={move}
    >
      <strong title={strings.taps.in(tapName(tap), tap.walk)}>{tapName(tap)}</strong>
      <IconButton label={strings.taps.moveWithTheArrowKeys} className="mover" onKeyDown={key}>
        <Move size={12} />
      </IconButton>
      <IconButton
        label={pinned ? strings.taps.letItFollowTheEdge : strings.taps.pinItHere}
        aria-pressed={pinned}
        onClick={onPin}
      >
        <Pin size={12} />
      </IconButton>
      <IconButton label={strings.taps.removeTheTap} onClick={() => void removeTap(editor, tap.id)}>
        <Trash2 size={12} />
      </IconButton>
      <IconButton label={strings.taps.closeTheTapStays} onClick={() => closeCard(tap.id)}>
        <X size={13} />
      </IconButton>
    </header>
  );
}

/** The tapped place: a source, or one edge. */
export function tapName({ source, to }: TapShown): string {
  return to ? `${source} → ${to}` : source;
}

/** The value with where and when, or that none has come. */
export function Newest({ seen }: { seen: Seen | null }) {
  if (!seen) return <p className="wg-quiet">{strings.taps.waitingForTheNextValue}</p>;
  const { sample, at } = seen;
  return (
    <>
      <SampleView sample={sample} />
      <small className="where" title={strings.taps.run(sample.run)}>
        {whereWords(sample)} · <time>{clock(at)}</time>
      </small>
    </>
  );
}

/** How often it looks. */
export function Often({ tap }: { tap: TapShown }) {
  const editor = useEditor();
  const own = INTERVALS.some(({ value }) => Number(value) === tap.interval);
  const options = own
    ? INTERVALS
    : [{ value: `${tap.interval}`, label: strings.taps.everyS(tap.interval) }, ...INTERVALS];
  return (
    <Select
      aria-label={strings.taps.samplingRateAtMost}
      value={options.find(({ value }) => Number(value) === tap.interval)?.value ?? ""}
      options={options}
      onChange={(value) => void lookEvery(editor, tap, Number(value))}
    />
  );
}

/** Looks at the run alone that is in focus, else at the one whose value is shown. */
function OneRun({ tap, seen }: { tap: TapShown; seen: Seen | null }) {
  const editor = useEditor();
  const focused = useFocus();
  const run = focused ?? seen?.sample.run ?? null;
  const label = tap.run ? strings.taps.onlyRunShowAllRuns(tap.run.slice(0, 8)) : strings.taps.showOnlyThisRun;
  return (
    <IconButton
      label={label}
      aria-pressed={tap.run !== null}
      disabled={tap.run === null && run === null}
      onClick={() => void lookAtRun(editor, tap, tap.run === null ? run : null)}
    >
      <Filter size={13} />
    </IconButton>
  );
}

const times = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" });

function clock(at: number): string {
  return times.format(at * 1000);
}

// The tap of an edge in the inspector: armed or not, with what it has seen.
import { Crosshair } from "lucide-react";
import { useEditor } from "../store/react";
import { tapsAt, useDeployed, useSamples, useWatch, type TapShown } from "../store/watch";
import { Button } from "../ui/kit";
import { removeTap, toggleTap } from "./actions";
import { openCard } from "./cards";
import { INSIDE, type Place } from "./places";
import { Newest, Often } from "./TapCard";
import { strings } from "../strings";

export function TapField({ place }: { place: Place }) {
  const editor = useEditor();
  const deployment = useDeployed();
  const watch = useWatch(deployment);
  const [tap] = tapsAt(watch, place.walk, place.source, place.to);
  if (!tap || deployment === null)
    return (
      <div className="wg-tap-field">
        <Button disabled={deployment === null} onClick={() => void toggleTap(editor, place)}>
          <Crosshair size={14} aria-hidden /> {strings.taps.tapThisEdge}
        </Button>
        <p className="wg-quiet">
          {deployment === null
            ? strings.taps.deployTheGraphToSee
            : strings.taps.showsTheValuesThatLeave(place.to ? "loop" : "source")}
        </p>
      </div>
    );
  return <Armed deployment={deployment} tap={tap} />;
}

function Armed({ deployment, tap }: { deployment: string; tap: TapShown }) {
  const editor = useEditor();
  const samples = useSamples(deployment, tap.id);
  return (
    <div className="wg-tap-field">
      {tap.inside && <p className="wg-quiet">{INSIDE}</p>}
      <Newest seen={samples[0] ?? null} />
      <div className="row">
        <Often tap={tap} />
        <Button onClick={() => openCard(tap.id)}>{strings.taps.showAtTheEdge}</Button>
        <Button kind="danger" onClick={() => void removeTap(editor, tap.id)}>
          {strings.taps.remove}
        </Button>
      </div>
    </div>
  );
}

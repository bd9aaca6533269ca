import { strings } from "../strings";

import { Badge } from "../ui/kit";
import { showMicros } from "./model/span";
import type { TraceShown } from "./model/types";

/** How wrong the times of other hosts may be. */
export function Clocks({ trace: { clocks = [], early = 0 } }: { trace: TraceShown }) {
  return (
    <>
      {clocks.map(({ host, error }) => (
        <Badge key={host} title={strings.trace.itsClockWasMeasured}>
          {strings.trace.timesOfHost(host, showMicros(error))}
        </Badge>
      ))}
      {early > 0 && (
        <Badge kind="warn" title={strings.trace.moreThanTheBounds}>
          {strings.trace.early(early)}
        </Badge>
      )}
    </>
  );
}

// The trace as a page of its own.
import { Deployments } from "../../store/deployments";
import { TraceView } from "../../trace/TraceView";
import { AlonePage } from "./AlonePage";
import { strings } from "../../strings";

const ATTACHED = [Deployments];

export function TracePage({ deployment }: { deployment: string | undefined }) {
  return (
    <AlonePage deployment={deployment} label={strings.shell.theTrace} attached={ATTACHED}>
      <TraceView alone />
    </AlonePage>
  );
}

// The playground as a page of its own.
import { PlayView } from "../../play/PlayView";
import { Following } from "../../session/following";
import { Deployments } from "../../store/deployments";
import { AlonePage } from "./AlonePage";
import { strings } from "../../strings";

const ATTACHED = [Deployments, Following];

export function PlayPage({ deployment }: { deployment: string | undefined }) {
  return (
    <AlonePage deployment={deployment} label={strings.shell.thePlayground} attached={ATTACHED}>
      <PlayView alone />
    </AlonePage>
  );
}

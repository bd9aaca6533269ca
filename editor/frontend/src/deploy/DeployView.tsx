// The deployments of this graph, the changes, and the actions to deploy them.
import { CirclePlay, ListRestart, Rocket, Square, Undo2 } from "lucide-react";
import { useState } from "react";
import type { DeploymentShown } from "../messages/answers";
import { equal } from "../document/diff";
import { deploymentOf } from "../store/deployments";
import type { PlacementDocument } from "../document/placement/schema.generated";
import { useEditor, useEditorState } from "../store/react";
import { Badge, Button, Dialog, Empty, Prose } from "../ui/kit";
import { Figures } from "../ui/Figures";
import { plural, showTime } from "../ui/words";
import { deploy, giveUpNext, GRACE, restart, switchTo, undeploy, type Refusal } from "./actions";
import { Changes, useDeployedPlacement, usePlacementChanges } from "./Changes";
import { advice, deploymentPhase, serves } from "./phases";
import { forecast } from "./forecast";
import { Reached } from "./Reached";
import { Refused } from "./Refused";
import { Sessions } from "./Sessions";
import { Steps, Workers } from "./Workers";
import { strings } from "../strings";

type Question = "switch" | "restart" | "undeploy";

export function DeployView() {
  const editor = useEditor();
  const name = useEditorState((state) => state.name);
  const deployments = useEditorState((state) => state.deployments);
  const plan = useEditorState((state) => state.planned.plan);
  const [asking, ask] = useState<Question | null>(null);
  const [busy, setBusy] = useState<string | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const deployment = deploymentOf(deployments, name);
  const running = useDeployedPlacement(deployment);
  const others = Object.values(deployments).filter((other) => other.id !== deployment?.id);
  const perform = async (what: string, action: () => Promise<Refusal | null>) => {
    ask(null);
    setBusy(what);
    setRefusal(null);
    const refused = await action();
    setBusy(null);
    setRefusal(refused);
    if (refused) editor.say(refused.message, "error");
  };
  const expected = refusal ? null : forecast(plan);
  return (
    <div className="wg-deploy">
      <div className="column">
        <Head
          deployment={deployment}
          running={running}
          busy={busy}
          onDeploy={() => void perform("deploying", () => deploy(editor))}
          onAsk={ask}
        />
        {refusal && <Refused title={strings.deploy.theServiceRefused} refusal={refusal} />}
        {deployment ? (
          <Running
            deployment={deployment}
            onGiveUp={() => void perform(strings.deploy.stoppingTheSwitch, () => giveUpNext(editor, deployment.id))}
          />
        ) : (
          <Empty title={strings.deploy.notDeployed}>{strings.deploy.deployingStartsOneProcessPer}</Empty>
        )}
        {expected && <Refused title={strings.deploy.whyThisCantBeDeployed} refusal={expected} />}
        <Others deployments={others} />
      </div>
      {deployment && (
        <aside className="column" aria-label={strings.deploy.whatWouldChange}>
          <h2>{strings.deploy.whatWouldChange}</h2>
          <Changes running={running} />
        </aside>
      )}
      {asking && deployment && (
        <Confirm
          question={asking}
          deployment={deployment}
          onClose={() => ask(null)}
          onYes={(grace) => {
            if (asking === "switch") void perform("switching", () => switchTo(editor, deployment.id));
            if (asking === "restart") void perform("restarting", () => restart(editor, deployment.id));
            if (asking === "undeploy") void perform("undeploying", () => undeploy(editor, deployment.id, grace));
          }}
        />
      )}
    </div>
  );
}

interface HeadProps {
  deployment: DeploymentShown | null;
  /** The placement that runs. */
  running: PlacementDocument | null;
  busy: string | null;
  onDeploy: () => void;
  onAsk: (question: Question) => void;
}

function Head({ deployment, running, busy, onDeploy, onAsk }: HeadProps) {
  const name = useEditorState((state) => state.name);
  const hardware = useEditorState((state) => state.planned.hardware);
  const deployed = useEditorState((state) => state.deployed);
  const graph = useEditorState((state) => state.documents.graph);
  const places = usePlacementChanges(running);
  const same = deployed !== null && equal(deployed, graph) && (places === null || places.length === 0);
  return (
    <header className="head">
      <div>
        <h1>{deployment?.id ?? name}</h1>
        {deployment && <StateBadge state={deployment.state} />}
        {busy && <Badge kind="busy">{busy} …</Badge>}
      </div>
      <div className="actions">
        {deployment ? (
          <>
            <Button kind={same ? "plain" : "primary"} disabled={busy !== null} onClick={() => onAsk("switch")}>
              <Rocket size={14} aria-hidden /> {strings.deploy.deployThisVersion}
            </Button>
            <Button disabled={busy !== null} onClick={() => onAsk("restart")}>
              <ListRestart size={14} aria-hidden /> {strings.deploy.restart}
            </Button>
            <Button kind="danger" disabled={busy !== null} onClick={() => onAsk("undeploy")}>
              <Square size={14} aria-hidden /> {strings.deploy.undeploy}
            </Button>
          </>
        ) : (
          <Button kind="primary" disabled={busy !== null} onClick={onDeploy}>
            <CirclePlay size={14} aria-hidden /> {strings.deploy.deploy}
          </Button>
        )}
      </div>
      {hardware !== "" && <p className="quiet">{strings.deploy.thePlanAssumesGpusDeploying(hardware)}</p>}
    </header>
  );
}

function StateBadge({ state }: { state: string }) {
  const { label, tone } = deploymentPhase(state);
  return <Badge kind={tone}>{label}</Badge>;
}

function Running({ deployment, onGiveUp }: { deployment: DeploymentShown; onGiveUp: () => void }) {
  const { id, state, reason, ranks, running, waiting, restarts, next, tasks } = deployment;
  const failed = state === "failed";
  return (
    <>
      {next && <Next id={id} next={next} onGiveUp={onGiveUp} />}
      <section className="version" aria-label={strings.deploy.theServingVersion}>
        {next && <h2>{strings.deploy.theServingVersion}</h2>}
        {reason && (
          <p className={failed ? "failure" : "reason"} role={failed ? "alert" : undefined}>
            <Prose text={reason} />
            {failed && <span className="advice">{advice(reason)}</span>}
          </p>
        )}
        {(state === "starting" || failed) && <Steps ranks={ranks} failed={failed} />}
        {serves(deployment) && (
          <Figures
            figures={[
              ["running", String(running)],
              ["waiting", String(waiting)],
              ["restarts", String(restarts)],
              ["since", showTime(deployment.created_at)],
            ]}
          />
        )}
        {serves(deployment) && tasks.length > 0 && <p className="quiet">{strings.deploy.serves(tasks.join(", "))}</p>}
        {serves(deployment) && <Reached deployment={deployment} />}
        <Workers id={id} ranks={ranks} told={reason} />
        {serves(deployment) && <Sessions deployment={deployment} />}
      </section>
    </>
  );
}

interface NextProps {
  id: string;
  next: NonNullable<DeploymentShown["next"]>;
  onGiveUp: () => void;
}

/** The version that takes over once it is ready. */
function Next({ id, next, onGiveUp }: NextProps) {
  const failed = next.state === "failed";
  return (
    <section className={`version next ${failed ? "failed" : ""}`} aria-label={strings.deploy.theNextVersion}>
      <header>
        <h2>{failed ? strings.deploy.theSwitchFailedTheOld : strings.deploy.theNextVersionIsStarting}</h2>
        <Button onClick={onGiveUp}>
          <Undo2 size={14} aria-hidden /> {failed ? strings.deploy.dismiss : strings.deploy.stopTheSwitch}
        </Button>
      </header>
      {failed ? (
        <p className="failure" role="alert">
          <Prose text={next.reason ?? strings.deploy.itCouldNotStart} />
          <span className="advice">{advice(next.reason)}</span>
        </p>
      ) : (
        <p className="quiet">{strings.deploy.theVersionBelowServesUntil}</p>
      )}
      <Steps ranks={next.ranks} failed={failed} />
      <Workers id={`${id} next`} ranks={next.ranks} told={next.reason} />
    </section>
  );
}

interface ConfirmProps {
  question: Question;
  deployment: DeploymentShown;
  onClose: () => void;
  onYes: (grace: number) => void;
}

const TITLES: Record<Question, string> = {
  switch: strings.deploy.deployThisVersion2,
  restart: strings.deploy.restart2,
  undeploy: strings.deploy.undeploy2,
};

function Confirm({ question, deployment, onClose, onYes }: ConfirmProps) {
  const { running, waiting, id } = deployment;
  const now =
    running + waiting === 0
      ? strings.deploy.noRequestsAreRunning
      : strings.deploy.nowAnd(
          plural(running, "request"),
          running === 1 ? "runs" : "run",
          waiting,
          waiting === 1 ? "waits" : "wait",
        );
  const footer = (
    <>
      <Button onClick={onClose}>{strings.deploy.cancel}</Button>
      {question === "undeploy" ? (
        <>
          <Button kind="danger" onClick={() => onYes(0)}>
            {strings.deploy.endAllNow}
          </Button>
          <Button kind="primary" onClick={() => onYes(GRACE)}>
            {strings.deploy.letThemFinish}
          </Button>
        </>
      ) : (
        <Button kind="primary" onClick={() => onYes(GRACE)}>
          {question === "switch" ? strings.deploy.switch : strings.deploy.restart}
        </Button>
      )}
    </>
  );
  return (
    <Dialog title={TITLES[question]} onClose={onClose} footer={footer}>
      <p>{now}</p>
      {question === "undeploy" ? (
        <p>
          <b>{id}</b> {strings.deploy.takesNoNewRequests(GRACE)}
        </p>
      ) : (
        <ul className="wg-deploy-points">
          <li>
            {strings.deploy.startsBesideTheOldOne(
              question === "switch" ? strings.deploy.theNewVersion : strings.deploy.aFreshCopy,
            )}
          </li>
          <li>{strings.deploy.onceItIsReady(GRACE)}</li>
          <li>{strings.deploy.sessionsEndWithTheOld}</li>
        </ul>
      )}
    </Dialog>
  );
}

function Others({ deployments }: { deployments: readonly DeploymentShown[] }) {
  if (deployments.length === 0) return null;
  return (
    <section className="others" aria-label={strings.deploy.otherDeploymentsOnThisMachine}>
      <h3>{strings.deploy.alsoOnThisMachine}</h3>
      <ul>
        {deployments.map(({ id, graph, state, running, ranks, scratch }) => {
          const devices = [...new Set(ranks.map((rank) => rank.device ?? "…"))].join(", ");
          return (
            <li key={id}>
              <b>{id}</b>
              {scratch && <span className="quiet">{strings.deploy.scratch}</span>}
              {graph !== id && <span className="quiet">{strings.deploy.of(graph)}</span>}
              <StateBadge state={state} />
              <span className="quiet">
                {devices}
                {running > 0 && ` · ${plural(running, "request")}`}
              </span>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

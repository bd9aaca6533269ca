// The settings: how the studio looks in this browser, its keys, and what the operator of the service has set.
import { useEffect, useState } from "react";
import { ApiError, call } from "../../api/client";
import type { EnvironmentShown } from "../../messages/answers";
import { setDensity, useDensity, type Density } from "../../store/preferences";
import { Badge } from "../../ui/kit";
import { KeyList } from "../frame/KeyList";
import { chooseTheme, THEMES, useChosenTheme } from "../host/theme";
import { strings } from "../../strings";

const DENSITIES: readonly Density[] = ["comfortable", "compact"];
const FORBIDDEN = 403;

export function SettingsPage() {
  return (
    <main className="wg-settings" aria-label={strings.shell.settings}>
      <Appearance />
      <section aria-labelledby="wg-settings-keys">
        <h2 id="wg-settings-keys">{strings.shell.keyboard2}</h2>
        <p className="about">{strings.shell.pressAKeyToChange}</p>
        <KeyList />
      </section>
      <Service />
    </main>
  );
}

function Appearance() {
  const density = useDensity();
  const theme = useChosenTheme();
  return (
    <section aria-labelledby="wg-settings-look">
      <h2 id="wg-settings-look">{strings.shell.appearance}</h2>
      <p className="about">{strings.shell.keptByThisBrowser}</p>
      <Choice
        label={strings.shell.theme}
        options={THEMES}
        names={strings.shell.themes}
        value={theme}
        onChange={chooseTheme}
      />
      <Choice
        label={strings.shell.density}
        options={DENSITIES}
        names={strings.shell.densities}
        value={density}
        onChange={setDensity}
      />
    </section>
  );
}

interface ChoiceProps<T extends string> {
  label: string;
  options: readonly T[];
  names: Readonly<Record<T, string>>;
  value: T;
  onChange: (value: T) => void;
}

function Choice<T extends string>({ label, options, names, value, onChange }: ChoiceProps<T>) {
  return (
    <fieldset>
      <legend>{label}</legend>
      {options.map((option) => (
        <label key={option}>
          <input type="radio" name={label} checked={option === value} onChange={() => onChange(option)} />
          {names[option]}
        </label>
      ))}
    </fieldset>
  );
}

// ── the service ─────────────────────────────────────────────────────────────────────────────────

function Service() {
  const [found, setFound] = useState<EnvironmentShown | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    const control = new AbortController();
    call<EnvironmentShown>("/api/v1/settings", { signal: control.signal }).then(
      ({ value }) => setFound(value),
      (error: unknown) => !control.signal.aborted && setProblem(reasonOf(error)),
    );
    return () => control.abort();
  }, []);
  return (
    <section aria-labelledby="wg-settings-service">
      <h2 id="wg-settings-service">{strings.shell.theService}</h2>
      {problem && <p role="alert">{problem}</p>}
      {found && <Environment found={found} />}
    </section>
  );
}

function reasonOf(error: unknown): string {
  if (error instanceof ApiError && error.status === FORBIDDEN) return strings.shell.onlyItsOperatorSees;
  return error instanceof Error ? error.message : String(error);
}

function Environment({ found }: { found: EnvironmentShown }) {
  const { version, settings, hosts, plugins } = found;
  return (
    <>
      <p className="about">{strings.shell.readWhenItStarts(version)}</p>
      <h3>{strings.shell.serversThatNodesMayCall}</h3>
      {hosts.length === 0 ? (
        <p>{strings.shell.noneSeeCallHosts}</p>
      ) : (
        <ul>
          {hosts.map((host) => (
            <li key={host}>
              <code>{host}</code>
            </li>
          ))}
        </ul>
      )}
      <h3>{strings.shell.plugIns}</h3>
      {plugins.length === 0 ? (
        <p>{strings.shell.noneSeePlugIns}</p>
      ) : (
        <ul>
          {plugins.map(({ name, installed }) => (
            <li key={name}>
              <code>{name}</code> {!installed && <Badge kind="bad">{strings.shell.notInstalled}</Badge>}
            </li>
          ))}
        </ul>
      )}
      <h3>{strings.shell.allSettings}</h3>
      <table className="wg-table">
        <thead>
          <tr>
            <th>{strings.shell.variable}</th>
            <th>{strings.shell.value}</th>
            <th>{strings.shell.meaning}</th>
          </tr>
        </thead>
        <tbody>
          {settings.map(({ name, value, source, secret, meaning }) => (
            <tr key={name}>
              <td>
                <code>{name}</code>
              </td>
              <td>
                <code>{secret ? strings.shell.hidden : value || strings.shell.none}</code>{" "}
                {source === "set" && <Badge kind="busy">{strings.shell.set}</Badge>}
              </td>
              <td>{meaning}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
